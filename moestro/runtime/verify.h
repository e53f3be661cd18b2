#pragma once
// Compares the model against reference outputs in a folder (../docs/formats.md#reference-outputs):
// config.json, model.safetensors, inputs.safetensors, expected.safetensors, optionally steps.json.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "moestro/runtime/run_config.h"

namespace moestro::runtime {

/// Tolerances of verify_against: these in f32, wider ones in bf16. A loss is a difference of
/// logits: its tolerance is multiplied by the largest of them where that is above 1.
struct VerifyTolerance {
  double logits = 2e-5, gradient = 1e-4, loss = 2e-5, aux_loss = 2e-5, steps_loss = 1e-3,
         steps_grad_norm = 1e-2;
};

/// Largest |ours - expected| / largest |expected|, per kind of tensor.
struct VerifyResult {
  double logits_max_rel = 0.0;
  double hidden_max_rel = 0.0;
  double loss_abs = 0.0;
  double gradient_max_rel = 0.0;
  std::string worst_tensor;  // the gradient that differs most
  std::optional<double> aux_loss_abs;
  std::optional<double> steps_loss_max_abs;
  std::optional<double> steps_grad_norm_max_rel;
  VerifyTolerance tolerance;  // of `logits` for hidden states, too
  bool within_tolerance = false;
};

struct VerifyOptions {
  Dtype dtype = Dtype::f32;
  Recompute recompute = Recompute::none;
  bool defer_weight_gradients = false;
  int threads = 0;
};

/// Options from `--set key=value`: train.dtype, train.recompute, train.threads and
/// train.defer_weight_gradients. Errors: input, as read_run_config.
[[nodiscard]] VerifyOptions read_verify_options(const std::vector<std::string>& overrides);

/// Errors: input, if the folder lacks a file or a tensor, or a shape disagrees.
[[nodiscard]] VerifyResult verify_against(const std::filesystem::path& folder,
                                          const VerifyOptions& options);

}  // namespace moestro::runtime
