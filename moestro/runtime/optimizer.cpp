#include "moestro/runtime/optimizer.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include "moestro/core/error.h"
#include "moestro/kernels/adamw.h"

namespace moestro::runtime {
namespace {

double gradient_norm(Optimizer& optimizer) {
  double sum = 0.0;
  for (layers::Parameter* parameter : optimizer.parameters) {
    layers::finish_gradient(*parameter);
    sum += kernels::sum_of_squares(parameter->grad.numel(), parameter->grad.data_ptr<float>());
  }
  return std::sqrt(sum);
}

/// A sign of a NaN says nothing.
std::string number_text(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{:.4g}", value);
}

/// A parameter that holds infinities or NaNs, or empty.
std::string unusable_parameter(const Optimizer& optimizer) {
  for (const layers::Parameter* parameter : optimizer.parameters) {
    const at::Tensor& value = parameter->value;
    if (!std::isfinite(kernels::sum_of_squares(value.numel(), value.data_ptr<float>()))) {
      return parameter->name;
    }
  }
  return "";
}

/// What may be wrong, and what to do about it.
std::string likely_cause(const Optimizer& optimizer, std::int64_t step) {
  const std::string parameter = unusable_parameter(optimizer);
  if (step > 1) {
    return fmt::format(
        "{}lower optimizer.lr or raise optimizer.warmup_steps, and begin again, or from an older "
        "checkpoint: remove the newer step folders of checkpoint.folder",
        parameter.empty() ? "" : fmt::format("{} is not finite; ", parameter));
  }
  if (!parameter.empty()) {
    return fmt::format(
        "no update has been made, and {} is not finite from the start; check the "
        "weights of model.load, or initializer_range in config.json",
        parameter);
  }
  return "no update has been made; check initializer_range and the multipliers in config.json, the "
         "weights of model.load and the coefficients of [balance]";
}

void require_finite(const Optimizer& optimizer, std::int64_t step, double loss, double norm) {
  if (std::isfinite(loss) && std::isfinite(norm)) return;
  throw input_error(
      fmt::format("step {}", step),
      "expected a finite loss and gradient norm, got loss {} and gradient norm {}; {}",
      number_text(loss), number_text(norm), likely_cause(optimizer, step));
}

kernels::bf16* rounded_copy(const layers::Parameter& parameter) {
  const bool is_own = parameter.compute.scalar_type() == at::kBFloat16;
  return is_own ? static_cast<kernels::bf16*>(parameter.compute.data_ptr()) : nullptr;
}

}  // namespace

Optimizer make_optimizer(const OptimizerSection& config, std::int64_t total_steps,
                         std::vector<layers::Parameter*> parameters) {
  Optimizer optimizer{config, total_steps, std::move(parameters), {}};
  for (const layers::Parameter* parameter : optimizer.parameters) {
    optimizer.moments.push_back(
        {at::zeros_like(parameter->value), at::zeros_like(parameter->value)});
  }
  return optimizer;
}

double learning_rate(const OptimizerSection& config, std::int64_t total_steps, std::int64_t step) {
  if (step <= config.warmup_steps) {
    return config.lr * static_cast<double>(step) / static_cast<double>(config.warmup_steps);
  }
  if (config.schedule == LrSchedule::constant) return config.lr;
  const std::int64_t decay_steps = std::max<std::int64_t>(total_steps - config.warmup_steps, 1);
  const double progress = std::min(
      1.0, static_cast<double>(step - config.warmup_steps) / static_cast<double>(decay_steps));
  const double remaining = config.schedule == LrSchedule::linear
                               ? 1.0 - progress
                               : 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return config.min_lr + (config.lr - config.min_lr) * remaining;
}

void begin_gradients(Optimizer& optimizer) {
  for (layers::Parameter* parameter : optimizer.parameters) layers::begin_gradient(*parameter);
}

double usable_gradient_norm(Optimizer& optimizer, std::int64_t step, double loss) {
  const double norm = gradient_norm(optimizer);
  require_finite(optimizer, step, loss, norm);
  return norm;
}

void apply_update(Optimizer& optimizer, std::int64_t step, double norm) {
  const OptimizerSection& config = optimizer.config;
  kernels::AdamwStep adamw{
      .lr = static_cast<float>(learning_rate(config, optimizer.total_steps, step)),
      .beta1 = static_cast<float>(config.betas[0]),
      .beta2 = static_cast<float>(config.betas[1]),
      .epsilon = static_cast<float>(config.eps),
      .step = step};
  // torch's clip_grad_norm_ adds 1e-6, so that the same numbers follow.
  const double clip = config.clip > 0.0 ? std::min(1.0, config.clip / (norm + 1e-6)) : 1.0;
  adamw.gradient_scale = static_cast<float>(clip);
  for (std::size_t i = 0; i < optimizer.parameters.size(); ++i) {
    layers::Parameter& parameter = *optimizer.parameters[i];
    Moments& moments = optimizer.moments[i];
    adamw.weight_decay = parameter.decays ? static_cast<float>(config.weight_decay) : 0.0F;
    kernels::adamw(adamw, parameter.value.numel(), parameter.value.data_ptr<float>(),
                   parameter.grad.data_ptr<float>(), moments.first.data_ptr<float>(),
                   moments.second.data_ptr<float>(), rounded_copy(parameter));
  }
}

double update(Optimizer& optimizer, std::int64_t step, double loss) {
  const double norm = usable_gradient_norm(optimizer, step, loss);
  apply_update(optimizer, step, norm);
  return norm;
}

}  // namespace moestro::runtime
