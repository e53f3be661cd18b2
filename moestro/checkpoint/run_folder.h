#pragma once
// The folder in which a run keeps its checkpoints, before the run begins: what would fail at the
// first save is found here.

#include <cstdint>
#include <filesystem>

#include "moestro/core/file_lock.h"

namespace moestro::checkpoint {

/// Creates the folder where it is missing. A note says if it is used for other things, too.
/// Errors: input at "checkpoint.folder", if it cannot be written, is the root of the file system,
/// or is itself a checkpoint.
void prepare_run_folder(const std::filesystem::path& root);

/// Keeps other runs out of the folder while it lives. Errors: input, if one is in there.
[[nodiscard]] FileLock lock_run_folder(const std::filesystem::path& root);

/// Which steps a run may save, and whether those of an earlier run are set aside before.
struct StepsToSave {
  std::int64_t first = 1, last = 1;
  bool sets_aside = false;
};

/// Errors: input, if something is in the place of a step that could not be replaced.
void require_room(const std::filesystem::path& root, const StepsToSave& steps);

}  // namespace moestro::checkpoint
