#pragma once
// Checkpoints from which training continues exactly: a Hugging Face folder (f32 master weights)
// with two more files, optimizer.safetensors (AdamW moments) and trainer.json (everything else).
// A run keeps them as step-000100, step-000200, ... in one folder.
//
//   save_training_checkpoint(step_folder(root, step), config_json, state, {specs, weights, m, v});
//   for (const auto& folder : step_folders(root)) Json state = read_training_state(folder);

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "moestro/checkpoint/hf_folder.h"
#include "moestro/checkpoint/safetensors.h"
#include "moestro/checkpoint/save.h"
#include "moestro/core/json.h"
#include "moestro/model/tensors.h"

namespace moestro::checkpoint {

inline constexpr const char* kCheckpointFormat = "moestro-checkpoint";
inline constexpr std::int64_t kCheckpointVersion = 1;
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";

/// What a checkpoint of a run stores of its tensors, in f32.
struct TrainingTensors {
  std::vector<model::TensorSpec> specs;
  TensorValues weights;
  TensorValues exp_avg, exp_avg_sq;  // asked only for tensors with has_optimizer_state
};

/// Whether the optimizer updates a tensor. Selection biases are updated by rule, without moments.
[[nodiscard]] bool has_optimizer_state(const model::TensorSpec& spec);

/// Writes a whole checkpoint, which appears only when complete. `config_json` is the text of
/// config.json, whose dtype becomes f32; `state` becomes trainer.json after format and version: an
/// object that check_state accepts (docs/formats.md).
/// Errors: internal, if it does not; input, if tensors hold numbers that no training can go on with
/// (a diverged run); as AtomicFolder; io.
void save_training_checkpoint(const std::filesystem::path& folder, std::string_view config_json,
                              const Json& state, const TrainingTensors& tensors);

/// Reads trainer.json. Errors: input, if there is none, it is of another format or version, says
/// what cannot be (check_state), or names another step than the folder, where that is of a step.
[[nodiscard]] Json read_training_state(const std::filesystem::path& folder);

/// Errors: input, if a file of a checkpoint is there but cannot be opened, which is no damage.
void require_readable_files(const std::filesystem::path& folder);

/// Errors: input, if trainer.json is sound but of another version of the format: such a checkpoint
/// is not damaged, and nobody may replace it. What cannot be read so far is left to
/// read_training_state.
void check_version(const std::filesystem::path& folder);

/// Reads both moments of a tensor from an optimizer file (`folder / kOptimizerFile`).
/// Shapes: both spans have spec.elements(). Errors: input, if one is absent, of another shape or
/// holds numbers that are not finite (or squares below 0).
void read_moments(const SafetensorsFile& file, const model::TensorSpec& spec,
                  std::span<float> exp_avg, std::span<float> exp_avg_sq);

/// Whether a folder is a checkpoint of a run: its name is that of a step, or it has files that
/// training adds.
[[nodiscard]] bool is_of_run(const std::filesystem::path& folder);

/// Why training could not go on from a folder; empty if it could, or if the folder is not of a run.
/// Reads trainer.json and all moments. Errors: io.
[[nodiscard]] std::string why_not_resumable(const HfFolder& folder,
                                            const model::ModelConfig& config);

/// The step in the name of a step folder, or nothing if it is none.
[[nodiscard]] std::optional<std::int64_t> step_of(const std::string& name);

/// "ROOT/step-000123".
[[nodiscard]] std::filesystem::path step_folder(const std::filesystem::path& root,
                                                std::int64_t step);

/// The step folders of a run's folder, highest step first, complete or not; none if it does not
/// exist. Folders that are still being written are not among them. Errors: io.
[[nodiscard]] std::vector<std::filesystem::path> step_folders(const std::filesystem::path& root);

/// The name of a file of a checkpoint that the folder lacks, or empty.
[[nodiscard]] std::string missing_file(const std::filesystem::path& folder);

/// The step folder of the highest step that lacks no file; nullopt if there is none. Those passed
/// over are named in a warning. Errors: as step_folders.
[[nodiscard]] std::optional<std::filesystem::path> find_newest_checkpoint(
    const std::filesystem::path& root);

/// The checkpoint that a folder named by a user stands for: itself, or, if it is none but holds
/// step folders, the newest complete one, and then says so. Errors: input, for a file or where
/// there is nothing; as step_folders.
[[nodiscard]] std::filesystem::path resolve_checkpoint(const std::filesystem::path& folder);

/// As resolve_checkpoint, but the newest step whatever it lacks: for those who judge it.
[[nodiscard]] std::filesystem::path resolve_newest_step(const std::filesystem::path& folder);

/// Moves all step folders of a run's folder into its "earlier-1" (or -2, ...), so that another run
/// may begin in it; says where they went. Returns that folder, or empty if there are none. Errors:
/// io.
std::string set_steps_aside(const std::filesystem::path& root);

/// Removes what is older than the `keep` newest complete checkpoints of a folder up to `newest`,
/// the step saved last, and what crashes left half written. Left alone are later steps (damaged
/// ones, which a run went back from), links, and folders that hold other files or are not named as
/// step_folder names them. What cannot be removed is warned about.
/// Errors: internal, if keep < 1; io, if the folder cannot be read.
void prune_checkpoints(const std::filesystem::path& root, std::int64_t newest, std::int64_t keep);

}  // namespace moestro::checkpoint
