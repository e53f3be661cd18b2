#pragma once
// A trainable tensor: f32 master value, the copy that ops compute with, and its f32 gradient.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace moestro::layers {

/// Slices are the leading-dimension pieces whose gradients are written independently: 1 for most
/// tensors, one per expert for stacked experts.
struct Parameter {
  std::string name;              // for messages: "layers.3.moe.gate_up"
  at::Tensor value;              // f32
  at::Tensor compute;            // `value` itself, or its bf16 rounding; refreshed by the optimizer
  at::Tensor grad;               // f32, same shape; meaningful after finish_gradient()
  bool decays = false;           // weight decay applies (two or more dimensions)
  std::vector<bool> is_written;  // per slice: whether grad holds this step's sum yet

  [[nodiscard]] bool defined() const { return value.defined(); }
};

/// Allocates a parameter of zeros, without a gradient.
/// Shapes: [shape...]; slices must divide shape[0].
[[nodiscard]] Parameter make_parameter(std::string name, const std::vector<std::int64_t>& shape,
                                       std::int64_t slices = 1);

/// Allocates the gradient (uninitialised; begin_gradient makes it logically zero).
void allocate_gradient(Parameter& parameter);
/// Sets the compute dtype: shares the master in f32, makes a rounded copy in bf16.
void set_compute_dtype(Parameter& parameter, at::ScalarType dtype);
/// Rounds the master into the compute copy.
void refresh_compute(Parameter& parameter);

/// Forgets the gradient without touching memory: the first writer of each slice overwrites.
void begin_gradient(Parameter& parameter);
/// Zeroes slices nobody wrote.
void finish_gradient(Parameter& parameter);

/// Where a writer of slice `slice` puts its product, and whether it adds to what is there.
struct GradientTarget {
  float* data = nullptr;
  bool accumulate = false;
};
/// Claims the slice: marks it written. Not thread-safe; claim before going parallel.
[[nodiscard]] GradientTarget claim_gradient(Parameter& parameter, std::int64_t slice = 0);
/// Claims every slice for a writer that only adds: zeroes those not yet written.
[[nodiscard]] float* claim_gradient_for_adding(Parameter& parameter);

}  // namespace moestro::layers
