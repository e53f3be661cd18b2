#pragma once
// How an operation of ours becomes part of torch's autograd graph: compute the output, then say how
// its gradient becomes the gradients of the inputs.
//
//   at::Tensor y = ...;  // computed from x
//   return record(y, {x}, [=](const at::Tensor& dy) { return Tensors{scale * dy}; });
//
// Weights are not inputs: their gradients are written straight into Parameter::grad, at once or, of
// the ops that ops.h names, later (GradientQueue): that lets a zero-bubble schedule place them.

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace moestro::layers {

using Tensors = std::vector<at::Tensor>;

/// One gradient per input, in order; an undefined tensor means zero.
using BackwardFunction = std::function<Tensors(const at::Tensor& d_output)>;

/// Whether anything will ask for gradients of an operation on these inputs.
[[nodiscard]] bool needs_gradient(const Tensors& inputs);

/// Attaches `backward` to `output` when needs_gradient(inputs). The closure is dropped after its
/// one run, and with it what it saved. Capture detached tensors only, never `output` itself.
[[nodiscard]] at::Tensor record(at::Tensor output, const Tensors& inputs,
                                BackwardFunction backward);

/// Work that makes weight gradients, waiting to be run in order (the W of a B/W split).
class GradientQueue {
 public:
  void push(std::function<void()> work) { work_.push_back(std::move(work)); }
  [[nodiscard]] std::size_t size() const { return work_.size(); }
  /// Runs and forgets everything queued so far, oldest first.
  void run();

 private:
  std::vector<std::function<void()>> work_;
};

/// Runs the work now, or queues it when there is a queue.
void weight_gradient(GradientQueue* queue, std::function<void()> work);

}  // namespace moestro::layers
