#pragma once
// AdamW over the decoder's parameters: f32 state, decoupled decay, global-norm clipping, schedule.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "moestro/layers/parameter.h"
#include "moestro/runtime/run_config.h"

namespace moestro::runtime {

/// First and second moments of one parameter, f32, its shape.
struct Moments {
  at::Tensor first, second;
};

struct Optimizer {
  OptimizerSection config;
  std::int64_t total_steps = 0;  // what the schedule decays over
  std::vector<layers::Parameter*> parameters;
  std::vector<Moments> moments;  // one per parameter
};

/// An optimizer with zero moments for these parameters, whose gradients must be allocated.
[[nodiscard]] Optimizer make_optimizer(const OptimizerSection& config, std::int64_t total_steps,
                                       std::vector<layers::Parameter*> parameters);

/// Learning rate of step `step` (from 1): linear warm-up over warmup_steps, then constant, or
/// linear or cosine decay that reaches min_lr at total_steps.
[[nodiscard]] double learning_rate(const OptimizerSection& config, std::int64_t total_steps,
                                   std::int64_t step);

/// Forgets all gradients: the next writers overwrite.
void begin_gradients(Optimizer& optimizer);

/// The gradient norm, before clipping. `loss` is that of the step. Errors: input, if loss or norm
/// is not finite; names causes that fit: before the first update, the learning rate is none.
[[nodiscard]] double usable_gradient_norm(Optimizer& optimizer, std::int64_t step, double loss);

/// Clips and updates every parameter and its compute copy.
void apply_update(Optimizer& optimizer, std::int64_t step, double norm);

/// Both. Returns the norm.
double update(Optimizer& optimizer, std::int64_t step, double loss);

}  // namespace moestro::runtime
