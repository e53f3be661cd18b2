#include "moestro/checkpoint/training_state.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "moestro/checkpoint/atomic_folder.h"
#include "moestro/checkpoint/safetensors_writer.h"
#include "moestro/checkpoint/state_check.h"
#include "moestro/checkpoint/usable_numbers.h"
#include "moestro/core/error.h"
#include "moestro/core/file.h"
#include "moestro/core/log.h"
#include "moestro/core/text.h"

namespace moestro::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStateFile = "trainer.json";
constexpr std::string_view kStepPrefix = "step-";
constexpr float kLeastSquare = 0.0F;  // the optimizer takes its root

std::string exp_avg_name(const model::TensorSpec& spec) {
  return "exp_avg." + spec.name;
}
std::string exp_avg_sq_name(const model::TensorSpec& spec) {
  return "exp_avg_sq." + spec.name;
}

void write_optimizer(const fs::path& file, const TrainingTensors& tensors) {
  std::vector<TensorDeclaration> declarations;
  for (const model::TensorSpec& spec : tensors.specs) {
    if (!has_optimizer_state(spec)) continue;
    declarations.push_back({exp_avg_name(spec), Dtype::f32, spec.shape});
    declarations.push_back({exp_avg_sq_name(spec), Dtype::f32, spec.shape});
  }
  SafetensorsWriter writer(file, std::move(declarations));
  for (const model::TensorSpec& spec : tensors.specs) {
    if (!has_optimizer_state(spec)) continue;
    writer.write_floats(exp_avg_name(spec), tensors.exp_avg(spec));
    writer.write_floats(exp_avg_sq_name(spec), tensors.exp_avg_sq(spec));
  }
  writer.finish();
}

void check_moment(const SafetensorsFile& file, const std::string& name,
                  const model::TensorSpec& spec) {
  const TensorInfo& stored = file.info(name);
  if (!converts_to_float(stored.dtype)) {
    throw input_error(fmt::format("{} tensor \"{}\"", file.path().string(), printable(name)),
                      "expected floats, got {}; the file is damaged", to_string(stored.dtype));
  }
  if (stored.shape != spec.shape) {
    throw input_error(fmt::format("{} tensor \"{}\"", file.path().string(), printable(name)),
                      "expected shape {}, got {}; the checkpoint is of another model",
                      shape_text(spec.shape), shape_text(stored.shape));
  }
}

void require_usable_moment(const Unusable& numbers, float least, const SafetensorsFile& file,
                           const std::string& name) {
  require_usable(numbers, least, file.path().string(), name, "the file is damaged");
}

void read_moment(const SafetensorsFile& file, const std::string& name,
                 const model::TensorSpec& spec, float least, std::span<float> out) {
  check_moment(file, name, spec);
  file.read_floats(name, out);
  require_usable_moment(find_unusable(out, least), least, file, name);
}

/// As reading would, without the memory for it.
void prove_moment(const SafetensorsFile& file, const std::string& name,
                  const model::TensorSpec& spec, float least) {
  check_moment(file, name, spec);
  require_usable_moment(find_unusable(file, name, least), least, file, name);
}

/// Nobody could go on from what a diverged run leaves.
void require_usable_tensors(const fs::path& folder, const TrainingTensors& tensors) {
  const auto require = [&](const std::string& name, std::span<const float> values, float least) {
    require_usable(find_unusable(values, least), least, folder.string(), name,
                   "the run has diverged and this step is not saved: go on from an earlier "
                   "checkpoint with a lower optimizer.lr");
  };
  for (const model::TensorSpec& spec : tensors.specs) {
    require(spec.name, tensors.weights(spec), kLowest);
    if (!has_optimizer_state(spec)) continue;
    require(exp_avg_name(spec), tensors.exp_avg(spec), kLowest);
    require(exp_avg_sq_name(spec), tensors.exp_avg_sq(spec), kLeastSquare);
  }
}

bool is_other_version(const Json& state) {
  if (!state.is_object() || state.value("format", Json()) != kCheckpointFormat) return false;
  const Json version = state.value("version", Json());
  return version.is_number_integer() && version != kCheckpointVersion;
}

/// However it is written: "a/step-000003/", or a link to it.
std::string name_of(const fs::path& folder) {
  std::error_code code;
  const fs::path whole = fs::weakly_canonical(folder, code);
  return (code ? folder : whole).filename().string();
}

void check_step(const Json& state, const fs::path& folder, const std::string& file) {
  const auto named = step_of(name_of(folder));
  if (!named || state["step"] == *named) return;
  throw input_error(fmt::format("{} step", file),
                    "expected {}, as the folder says, got {}; the file is damaged", *named,
                    state["step"].dump());
}

/// What is written must not be called damaged when it is read.
void require_readable_state(const Json& state) {
  std::string problem;
  try {
    check_state(state, kStateFile);
  } catch (const Error& error) {
    problem = error.what();
  }
  MOESTRO_CHECK(problem.empty(), "{}", problem);
}

/// The folders of a run's folder; none if it does not exist. What cannot be examined (a link that
/// leads to itself) counts as none, but for steps, which might be the newest.
std::vector<fs::path> folders_in(const fs::path& root) {
  std::vector<fs::path> folders;
  try {
    if (!fs::exists(root)) return folders;
    for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
      std::error_code code;
      if (entry.is_directory(code)) folders.push_back(entry.path());
      if (!code || !step_of(entry.path().filename().string())) continue;
      throw io_error(entry.path().string(), "cannot examine it: {}; move it away", code.message());
    }
  } catch (const fs::filesystem_error& error) {
    throw io_error(root.string(), "cannot read the folder: {}", error.code().message());
  }
  return folders;
}

/// Whether a folder is where a run writes one of its steps, finished or not.
bool is_own_step(const fs::path& folder) {
  const std::string name = folder.filename().string();
  const std::string stem = name.substr(0, name.find('.'));
  const std::optional<std::int64_t> step = step_of(stem);
  return step && step_folder("", *step) == stem && !fs::is_symlink(folder);
}

void remove_or_warn(const fs::path& folder) {
  try {
    remove_checkpoint(folder);
  } catch (const Error& error) {
    log_warning("{}; it stays", error.what());
  }
}

}  // namespace

std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  const char* begin = name.data() + kStepPrefix.size();
  const char* end = name.data() + name.size();
  std::int64_t step = 0;
  const auto result = std::from_chars(begin, end, step);
  if (result.ec != std::errc() || result.ptr != end || step < 0) return std::nullopt;
  return step;
}

bool has_optimizer_state(const model::TensorSpec& spec) {
  return spec.role != model::Role::selection_bias;
}

void save_training_checkpoint(const fs::path& folder, std::string_view config_json,
                              const Json& state, const TrainingTensors& tensors) {
  Json json = {{"format", kCheckpointFormat}, {"version", kCheckpointVersion}};
  json.update(state);
  require_readable_state(json);
  require_usable_tensors(folder, tensors);
  AtomicFolder target(folder);
  write_hf_files(target.staging(), config_json, tensors.specs, tensors.weights, {});
  write_optimizer(target.staging() / kOptimizerFile, tensors);
  write_json_file(target.staging() / kStateFile, json);
  target.commit();
}

void require_readable_files(const fs::path& folder) {
  std::error_code code;
  for (const char* name : {kStateFile, "config.json", kOptimizerFile, "model.safetensors",
                           "model.safetensors.index.json"}) {
    if (fs::exists(folder / name, code) || code) require_readable(folder / name);
  }
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    const bool is_shard = at->path().extension() == ".safetensors";
    if (is_shard && fs::exists(at->path(), code)) require_readable(at->path());
  }
}

void check_version(const fs::path& folder) {
  const std::string file = (folder / kStateFile).string();
  Json state;
  try {
    state = read_json_file(file);
  } catch (const Error&) {
    return;
  }
  if (!is_other_version(state)) return;
  throw input_error(fmt::format("{} version", file),
                    "expected {}, got {}; read it with the program that wrote it, or use another "
                    "checkpoint.folder",
                    kCheckpointVersion, state["version"].dump());
}

Json read_training_state(const fs::path& folder) {
  const std::string file = (folder / kStateFile).string();
  Json state = read_json_file(file);
  if (!state.is_object() || state.value("format", Json()) != kCheckpointFormat) {
    throw input_error(
        file, "expected \"format\": \"{}\", but there is none; name a folder that training wrote",
        kCheckpointFormat);
  }
  const Json version = state.value("version", Json());
  if (version != kCheckpointVersion) {
    throw input_error(fmt::format("{} version", file),
                      "expected {}, got {}; read it with the program that wrote it",
                      kCheckpointVersion, printable(version.dump()));
  }
  check_state(state, file);
  check_step(state, folder, file);
  return state;
}

void read_moments(const SafetensorsFile& file, const model::TensorSpec& spec,
                  std::span<float> exp_avg, std::span<float> exp_avg_sq) {
  read_moment(file, exp_avg_name(spec), spec, kLowest, exp_avg);
  read_moment(file, exp_avg_sq_name(spec), spec, kLeastSquare, exp_avg_sq);
}

bool is_of_run(const fs::path& folder) {
  std::error_code unreadable;  // whoever reads the files says so
  const std::string name = name_of(folder);
  const std::optional<std::int64_t> step = step_of(name);
  return (step && step_folder("", *step) == name) || fs::exists(folder / kStateFile, unreadable) ||
         fs::exists(folder / kOptimizerFile, unreadable);
}

std::string why_not_resumable(const HfFolder& folder, const model::ModelConfig& config) {
  if (!is_of_run(folder.path())) return "";
  try {
    static_cast<void>(read_training_state(folder.path()));
    const SafetensorsFile file(folder.path() / kOptimizerFile);
    for (const model::TensorSpec& spec : model::tensors(config)) {
      if (!has_optimizer_state(spec) || !folder.locate(config, spec)) continue;
      prove_moment(file, exp_avg_name(spec), spec, kLowest);
      prove_moment(file, exp_avg_sq_name(spec), spec, kLeastSquare);
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    return error.what();
  }
  return "";
}

fs::path step_folder(const fs::path& root, std::int64_t step) {
  return root / fmt::format("{}{:06}", kStepPrefix, step);
}

std::vector<fs::path> step_folders(const fs::path& root) {
  std::map<std::int64_t, fs::path, std::greater<>> steps;
  for (const fs::path& folder : folders_in(root)) {
    if (const auto step = step_of(folder.filename().string())) steps[*step] = folder;
  }
  std::vector<fs::path> folders;
  for (const auto& [step, folder] : steps) folders.push_back(folder);
  return folders;
}

std::string missing_file(const fs::path& folder) {
  std::error_code unreadable;  // counts as absent
  const auto has = [&](const char* name) { return fs::exists(folder / name, unreadable); };
  for (const char* name : {kStateFile, "config.json", kOptimizerFile}) {
    if (!has(name)) return name;
  }
  const bool has_weights = has("model.safetensors") || has("model.safetensors.index.json");
  return has_weights ? "" : "model.safetensors";
}

std::optional<fs::path> find_newest_checkpoint(const fs::path& root) {
  for (const fs::path& folder : step_folders(root)) {
    const std::string missing = missing_file(folder);
    if (missing.empty()) return folder;
    log_warning("{} lacks {}; passing it over", folder.string(), missing);
  }
  return std::nullopt;
}

namespace {

/// Whether a folder that a user names is a checkpoint, and not one that may hold those of a run.
bool is_itself_checkpoint(const fs::path& folder) {
  std::error_code unreadable;  // whoever reads the folder says so
  const fs::file_status status = fs::status(folder, unreadable);
  if (status.type() == fs::file_type::not_found || fs::is_regular_file(status)) {
    const bool is_file = fs::is_regular_file(status);
    throw input_error(
        folder.string(), "expected the folder of a checkpoint, {}",
        is_file ? "got a file; name its folder" : "but there is none; check the path");
  }
  const auto has = [&](const char* name) { return fs::exists(folder / name, unreadable); };
  return has("config.json") || has("model.safetensors") || has("model.safetensors.index.json") ||
         !fs::is_directory(status);
}

fs::path newest_of_run(const fs::path& folder, const std::optional<fs::path>& newest) {
  if (!newest) return folder;
  log_info("{} holds checkpoints of a run; taking the newest, {}", folder.string(),
           newest->string());
  return *newest;
}

}  // namespace

fs::path resolve_checkpoint(const fs::path& folder) {
  if (is_itself_checkpoint(folder)) return folder;
  return newest_of_run(folder, find_newest_checkpoint(folder));
}

fs::path resolve_newest_step(const fs::path& folder) {
  if (is_itself_checkpoint(folder)) return folder;
  const std::vector<fs::path> steps = step_folders(folder);
  return newest_of_run(folder, steps.empty() ? std::nullopt : std::optional(steps.front()));
}

std::string set_steps_aside(const fs::path& root) {
  const std::vector<fs::path> steps = step_folders(root);
  if (steps.empty()) return "";
  try {
    fs::path aside;
    for (int i = 1; aside.empty() || fs::exists(fs::symlink_status(aside)); ++i) {
      aside = root / fmt::format("earlier-{}", i);
    }
    fs::create_directory(aside);
    for (const fs::path& step : steps) fs::rename(step, aside / step.filename());
    log_warning("checkpoint.resume = false: the checkpoints of an earlier run are now in {}",
                aside.string());
    return aside.string();
  } catch (const fs::filesystem_error& error) {
    throw io_error(root.string(), "cannot set earlier checkpoints aside: {}",
                   error.code().message());
  }
}

void prune_checkpoints(const fs::path& root, std::int64_t newest, std::int64_t keep) {
  MOESTRO_CHECK(keep >= 1, "keep is {}", keep);
  std::int64_t kept = 0;
  std::vector<fs::path> doomed;
  for (const fs::path& folder : step_folders(root)) {
    if (*step_of(folder.filename().string()) > newest || !is_own_step(folder)) continue;
    if (kept == keep) doomed.push_back(folder);
    if (kept < keep && missing_file(folder).empty()) ++kept;
  }
  for (const fs::path& folder : folders_in(root)) {
    if (is_partial(folder) && is_own_step(folder)) doomed.push_back(folder);
  }
  for (const fs::path& folder : doomed) remove_or_warn(folder);
}

}  // namespace moestro::checkpoint
