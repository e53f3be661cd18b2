#include "moestro/checkpoint/run_folder.h"

#include <optional>
#include <string>
#include <system_error>

#include "moestro/checkpoint/atomic_folder.h"
#include "moestro/checkpoint/training_state.h"
#include "moestro/core/error.h"
#include "moestro/core/file.h"
#include "moestro/core/log.h"

namespace moestro::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKey = "checkpoint.folder";
constexpr const char* kLockFile = ".moestro.lock";

void refuse_checkpoints(const fs::path& root) {
  std::error_code unreadable;  // counts as absent
  for (const char* file : {"trainer.json", "model.safetensors", "model.safetensors.index.json"}) {
    if (!fs::exists(root / file, unreadable)) continue;
    throw input_error(kKey,
                      "expected the folder of a run, got \"{0}\", which is itself a checkpoint (it "
                      "holds {1}); name the folder it is in to resume its run, or another and "
                      "model.load = \"{0}\" to begin a run from its weights",
                      root.string(), file);
  }
}

/// What is neither hidden nor of a run.
int count_foreign(const fs::path& root) {
  int count = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    const bool is_ours = name.starts_with("step-") || name.starts_with("earlier-");
    if (!is_ours && !name.starts_with(".")) ++count;
  }
  return count;
}

/// The step whose checkpoint, or what writing it needs, has this name.
std::optional<std::int64_t> step_at(const fs::path& root, const std::string& name) {
  const std::string stem = name.substr(0, name.find('.'));
  const std::optional<std::int64_t> step = step_of(stem);
  const bool is_written_so = step && step_folder(root, *step).filename() == stem;
  const bool is_in_the_way =
      name == stem || name == stem + ".partial" || name == stem + ".replaced.partial";
  return is_written_so && is_in_the_way ? step : std::nullopt;
}

void require_replaceable_step(const fs::path& path) {
  require_replaceable(path);
  const std::string problem = why_not_writable(path);
  if (problem.empty()) return;
  throw input_error(path.string(),
                    "expected a checkpoint that can be replaced, got one that cannot be written: "
                    "{}; move it away or choose another folder",
                    problem);
}

}  // namespace

void prepare_run_folder(const fs::path& root) {
  std::error_code code;
  const fs::path whole = fs::weakly_canonical(root, code);
  if (!code && whole == whole.root_path()) {
    throw input_error(kKey,
                      "expected a folder for checkpoints, got \"{}\", the root of the file system; "
                      "name one of its own",
                      root.string());
  }
  const std::string problem = why_not_writable(root);
  if (!problem.empty()) {
    throw input_error(kKey, "expected a folder that can be written, got \"{}\": {}; name another",
                      root.string(), problem);
  }
  refuse_checkpoints(root);
  if (!step_folders(root).empty()) return;
  const int foreign = count_foreign(root);
  if (foreign > 0) {
    log_info(
        "checkpoint.folder \"{}\" holds {} other file(s) or folder(s); checkpoints go beside "
        "them",
        root.string(), foreign);
  }
}

FileLock lock_run_folder(const fs::path& root) {
  std::optional<FileLock> lock = FileLock::take(root / kLockFile);
  if (lock) return *std::move(lock);
  throw input_error(kKey,
                    "expected a folder that no other run is using, got \"{}\", in which one is at "
                    "work; wait for it to end, or name another",
                    root.string());
}

void require_room(const fs::path& root, const StepsToSave& steps) {
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
      const auto step = step_at(root, entry.path().filename().string());
      if (!step || *step < steps.first || *step > steps.last) continue;
      const bool leaves =
          steps.sets_aside && fs::is_directory(entry.symlink_status()) && !is_partial(entry.path());
      if (!leaves) require_replaceable_step(entry.path());
    }
  } catch (const fs::filesystem_error& error) {
    throw input_error(error.path1().string(),
                      "expected a checkpoint that can be replaced, but looking at it fails: {}; "
                      "move it away or choose another checkpoint.folder",
                      error.code().message());
  }
}

}  // namespace moestro::checkpoint
