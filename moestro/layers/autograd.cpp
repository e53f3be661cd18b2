#include "moestro/layers/autograd.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "moestro/core/error.h"

namespace moestro::layers {
namespace {

class ClosureNode final : public torch::autograd::Node {
 public:
  ClosureNode(torch::autograd::edge_list edges, BackwardFunction backward)
      : Node(std::move(edges)), backward_(std::move(backward)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    MOESTRO_CHECK(backward_ != nullptr, "a graph of ours can run backward only once");
    if (!gradients[0].defined()) return torch::autograd::variable_list(num_outputs());
    return backward_(gradients[0]);
  }
  void release_variables() override { backward_ = nullptr; }

 private:
  BackwardFunction backward_;
};

}  // namespace

bool needs_gradient(const Tensors& inputs) {
  if (!at::GradMode::is_enabled()) return false;
  for (const at::Tensor& input : inputs) {
    if (input.defined() && input.requires_grad()) return true;
  }
  return false;
}

at::Tensor record(at::Tensor output, const Tensors& inputs, BackwardFunction backward) {
  if (!needs_gradient(inputs)) return output;
  torch::autograd::edge_list edges;
  for (const at::Tensor& input : inputs) {
    edges.push_back(input.defined() ? torch::autograd::impl::gradient_edge(input)
                                    : torch::autograd::Edge());
  }
  auto node = c10::make_intrusive<ClosureNode>(std::move(edges), std::move(backward));
  torch::autograd::set_history(output, node);
  return output;
}

void GradientQueue::run() {
  for (auto& work : std::exchange(work_, {})) {
    work();
    work = nullptr;  // frees what this piece kept alive before the next one allocates
  }
}

void weight_gradient(GradientQueue* queue, std::function<void()> work) {
  if (queue != nullptr) {
    queue->push(std::move(work));
  } else {
    work();
  }
}

}  // namespace moestro::layers
