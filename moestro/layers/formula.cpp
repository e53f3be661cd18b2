#include "moestro/layers/formula.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>

namespace moestro::layers {
namespace {

Tensors detached(const Tensors& tensors) {
  Tensors result;
  for (const at::Tensor& t : tensors) result.push_back(t.defined() ? t.detach() : t);
  return result;
}

/// Detached copies that gradients can be taken for.
Tensors leaves(const Tensors& tensors) {
  Tensors result;
  for (const at::Tensor& t : tensors) {
    const bool is_real = t.defined() && t.is_floating_point();
    result.push_back(is_real ? t.detach().set_requires_grad(true) : t);
  }
  return result;
}

/// d formula / d wanted applied to d_output, undefined where nothing flows.
Tensors gradients(const at::Tensor& output, const Tensors& wanted, const at::Tensor& d_output) {
  Tensors asked;
  for (const at::Tensor& w : wanted) {
    if (w.defined() && w.requires_grad()) asked.push_back(w);
  }
  Tensors found;
  if (!asked.empty()) {
    found = torch::autograd::grad({output}, asked, {d_output}, /*retain_graph=*/std::nullopt,
                                  /*create_graph=*/false, /*allow_unused=*/true);
  }
  Tensors result;
  std::size_t next = 0;
  for (const at::Tensor& w : wanted) {
    result.push_back(w.defined() && w.requires_grad() ? found[next++] : at::Tensor());
  }
  return result;
}

Tensors compute_copies(const std::vector<Parameter*>& parameters) {
  Tensors weights;
  for (const Parameter* p : parameters) weights.push_back(p ? p->compute : at::Tensor());
  return weights;
}

void add_weight_gradients(const std::vector<Parameter*>& parameters, const Tensors& gradients) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i] == nullptr || !gradients[i].defined()) continue;
    finish_gradient(*parameters[i]);
    parameters[i]->grad.add_(gradients[i]);
  }
}

}  // namespace

at::Tensor apply_formula(const Context& context, const Tensors& inputs,
                         const std::vector<Parameter*>& parameters, const Formula& formula) {
  at::Tensor output;
  {
    const c10::NoGradGuard no_grad;
    output = formula(inputs, compute_copies(parameters));
  }
  return record(output, inputs,
                [saved = detached(inputs), parameters, formula,
                 queue = context.queue](const at::Tensor& d_output) {
                  weight_gradient(queue, [=] {
                    const c10::AutoGradMode with_grad(true);
                    const Tensors weights = leaves(compute_copies(parameters));
                    const at::Tensor y = formula(saved, weights);
                    if (y.requires_grad()) {
                      add_weight_gradients(parameters, gradients(y, weights, d_output));
                    }
                  });
                  const c10::AutoGradMode with_grad(true);
                  const Tensors fresh = leaves(saved);
                  const at::Tensor y = formula(fresh, compute_copies(parameters));
                  return y.requires_grad() ? gradients(y, fresh, d_output) : Tensors(saved.size());
                });
}

}  // namespace moestro::layers
