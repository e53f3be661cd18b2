#pragma once
// The ATen meaning of an op: a formula over inputs and weights, made differentiable for any device
// by evaluating it once more under torch's own autograd when the gradient arrives.

#include <functional>
#include <vector>

#include "moestro/layers/autograd.h"
#include "moestro/layers/context.h"
#include "moestro/layers/parameter.h"

namespace moestro::layers {

using Formula = std::function<at::Tensor(const Tensors& inputs, const Tensors& weights)>;

/// formula(inputs, compute copies of parameters); weight gradients go to Parameter::grad through
/// the context's queue. Inputs may be undefined; null parameters become undefined weights.
/// Cost: the formula runs once more for input gradients and once more for weight gradients.
[[nodiscard]] at::Tensor apply_formula(const Context& context, const Tensors& inputs,
                                       const std::vector<Parameter*>& parameters,
                                       const Formula& formula);

}  // namespace moestro::layers
