#pragma once
// Checkpoints of a run: a Hugging Face folder per saved step that also holds what resuming needs.

#include <cstdint>
#include <optional>
#include <string>

#include "moestro/data/batches.h"
#include "moestro/runtime/model_loading.h"
#include "moestro/runtime/optimizer.h"
#include "moestro/runtime/run_config.h"

namespace moestro::runtime {

/// Where a run stands after a step.
struct Progress {
  std::int64_t step = 0;
  std::int64_t tokens_seen = 0;
  data::BatchPosition position;
};

/// Writes checkpoint.folder/step-NNNNNN: config.json and model.safetensors in f32, readable by
/// transformers; optimizer moments; trainer.json. The folder appears only when complete.
/// Returns its path. Errors: io.
[[nodiscard]] std::string save_checkpoint(const RunConfig& config, const Progress& progress,
                                          LoadedModel& model, Optimizer& optimizer);

/// Loads the newest complete checkpoint of `folder` into the model and optimizer; nullopt if there
/// is none. Errors: input, if it is of another model or cannot be read.
[[nodiscard]] std::optional<Progress> load_newest_checkpoint(const std::string& folder,
                                                             const RunConfig& config,
                                                             LoadedModel& model,
                                                             Optimizer& optimizer);

}  // namespace moestro::runtime
