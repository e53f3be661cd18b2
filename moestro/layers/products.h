#pragma once
// The three matrix products of a linear map, on tensors: forward, input gradient, weight gradient.

#include <ATen/core/Tensor.h>

#include "moestro/layers/parameter.h"

namespace moestro::layers {

/// y (+)= x W^T. Shapes: x [T, in] and weight [out, in] of one compute dtype, y [T, out] of that
/// dtype or f32 (only f32 accumulates).
void multiply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& y, bool accumulate);

/// dy W. Shapes: dy [T, out] and weight [out, in] of one compute dtype, result [T, in].
[[nodiscard]] at::Tensor input_gradient(const at::Tensor& dy, const at::Tensor& weight);

/// weight.grad (+)= dy^T x and, unless bias is null, bias.grad += column sums of dy.
/// Shapes: x [T, in], dy [T, out].
void add_linear_gradients(const at::Tensor& x, const at::Tensor& dy, Parameter& weight,
                          Parameter* bias);

/// multiplier * gradient, contiguous, in the compute dtype. Shapes: gradient f32 of any shape.
[[nodiscard]] at::Tensor to_compute(const at::Tensor& gradient, double multiplier,
                                    at::ScalarType dtype);

}  // namespace moestro::layers
