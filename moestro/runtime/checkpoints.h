#pragma once
// Checkpoints of a run: a Hugging Face folder per saved step that also holds what resuming needs.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "moestro/data/batches.h"
#include "moestro/runtime/model_loading.h"
#include "moestro/runtime/optimizer.h"

namespace moestro::runtime {

/// Where a run stands after a step.
struct Progress {
  std::int64_t step = 0;
  std::int64_t tokens_seen = 0;
  data::BatchPosition position;
  std::vector<float> recent_losses;  // of that step, the last, and of two at most
};

/// What must agree for a position in the data to mean the same windows; but for the seed, which may
/// be changed: the rest of the epoch then comes in another order.
struct DataIdentity {
  std::int64_t seq_len = 0;
  std::int64_t seed = 0;
  std::string tokenizer;
  std::string fingerprint;   // of the training tokens
  std::int64_t windows = 0;  // per epoch
};

/// What a checkpoint remembers of its run, so that a resumed one can say what has changed.
struct RunIdentity {
  DataIdentity data;
  Settings settings;
};

/// A hash of a token stream, as text: changes when any token does.
[[nodiscard]] std::string fingerprint(std::span<const data::Token> tokens);

/// Writes ROOT/step-NNNNNN: config.json and model.safetensors in f32, readable by
/// transformers; optimizer moments; trainer.json. The folder appears only when complete.
/// Returns its path. Errors: io.
[[nodiscard]] std::string save_checkpoint(const std::string& root, const RunIdentity& identity,
                                          const Progress& progress, LoadedModel& model,
                                          Optimizer& optimizer);

/// Where a run goes on.
struct Resumption {
  std::string folder;  // the checkpoint that was loaded
  Progress progress;
  std::vector<std::string> damaged;  // newer checkpoints, which could not be read
  Settings settings;                 // of the run that wrote it; empty if it did not say
  std::int64_t seed = 0;             // of the order of its data
};

/// Says in one note which settings differ from those a checkpoint was written with, old and new;
/// in a warning, if the data come in another order. Nothing if nothing differs.
void report_changes(const Resumption& from, const RunIdentity& identity);

/// Loads the newest checkpoint of `folder` that can be read into the model and optimizer; nullopt
/// if there is none at all. Damaged ones are named in a warning each, with what is wrong.
/// Errors: input, if a checkpoint is of another model, of other data or of another version of the
/// format, if a file of one cannot be opened, or if all are damaged; io, if the system refuses.
[[nodiscard]] std::optional<Resumption> load_newest_checkpoint(const std::string& folder,
                                                               const RunIdentity& identity,
                                                               LoadedModel& model,
                                                               Optimizer& optimizer);

}  // namespace moestro::runtime
