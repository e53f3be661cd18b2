#include "moestro/layers/products.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "moestro/kernels/adamw.h"
#include "moestro/kernels/bias.h"
#include "moestro/kernels/gemm.h"
#include "moestro/layers/typed.h"

namespace moestro::layers {
namespace {

/// A contiguous two-dimensional tensor as a GEMM operand.
template <class T>
kernels::Matrix<const T> operand(const at::Tensor& tensor) {
  return kernels::rows_of<const T>(data<T>(tensor), tensor.size(0), tensor.size(1));
}

template <class T>
kernels::Matrix<T> result(const at::Tensor& tensor) {
  return kernels::rows_of(data<T>(tensor), tensor.size(0), tensor.size(1));
}

}  // namespace

void multiply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& y, bool accumulate) {
  with_type(x.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    const auto w = kernels::transposed(operand<T>(weight));
    if (y.scalar_type() == at::kFloat) {
      kernels::gemm_rows<T, float>(operand<T>(x), w, result<float>(y), accumulate);
    } else {
      kernels::gemm_rows<T, T>(operand<T>(x), w, result<T>(y), accumulate);
    }
  });
}

at::Tensor input_gradient(const at::Tensor& dy, const at::Tensor& weight) {
  at::Tensor dx = at::empty({dy.size(0), weight.size(1)}, dy.options());
  with_type(dy.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    kernels::gemm_rows<T, T>(operand<T>(dy), operand<T>(weight), result<T>(dx));
  });
  return dx;
}

void add_linear_gradients(const at::Tensor& x, const at::Tensor& dy, Parameter& weight,
                          Parameter* bias) {
  with_type(x.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    const GradientTarget target = claim_gradient(weight);
    kernels::gemm_weight_gradient<T>(operand<T>(dy), operand<T>(x),
                                     kernels::rows_of(target.data, dy.size(1), x.size(1)),
                                     target.accumulate);
    if (bias != nullptr) {
      kernels::add_column_sums(dy.size(0), dy.size(1), data<T>(dy),
                               claim_gradient_for_adding(*bias));
    }
  });
}

at::Tensor to_compute(const at::Tensor& gradient, double multiplier, at::ScalarType dtype) {
  const at::Tensor g = multiplier == 1.0 ? gradient.contiguous() : gradient * multiplier;
  if (dtype == g.scalar_type()) return g;
  at::Tensor rounded = at::empty(g.sizes(), g.options().dtype(dtype));
  kernels::to_bf16(g.numel(), data<float>(g), data<kernels::bf16>(rounded));
  return rounded;
}

}  // namespace moestro::layers
