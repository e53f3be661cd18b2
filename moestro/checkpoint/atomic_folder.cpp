#include "moestro/checkpoint/atomic_folder.h"

#include <fcntl.h>
#include <stdio.h>  // NOLINT(modernize-deprecated-headers): renameat2 is not in <cstdio>

#include <cerrno>
#include <string>
#include <system_error>

#include "moestro/core/error.h"
#include "moestro/core/file.h"
#include "moestro/core/text.h"

namespace moestro::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPartial = ".partial";
constexpr const char* kReplaced = ".replaced.partial";

/// Whether checkpoints consist of such files, half-written ones included.
bool is_checkpoint_file(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  const bool is_plain = entry.symlink_status().type() == fs::file_type::regular;
  return is_plain &&
         (name.ends_with(".safetensors") || name == "config.json" || name == "trainer.json" ||
          name == "model.safetensors.index.json" || name.find(".partial.") != std::string::npos);
}

/// The first file of a folder that no checkpoint has, or empty.
std::string foreign_file(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (!is_checkpoint_file(entry)) return entry.path().filename().string();
  }
  return "";
}

/// The path with the suffix appended, whether or not it ended in a slash.
fs::path with_suffix(const fs::path& path, const char* suffix) {
  return path.parent_path() / (path.filename().string() + suffix);
}

/// Swaps two folders in one step where the file system can, else in two renames.
void exchange(const fs::path& complete, const fs::path& path) {
  if (::renameat2(AT_FDCWD, complete.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) return;
  const fs::path replaced = with_suffix(path, kReplaced);
  fs::remove_all(replaced);
  fs::rename(path, replaced);
  fs::rename(complete, path);
  fs::rename(replaced, complete);
}

}  // namespace

void require_replaceable(const fs::path& path) {
  const fs::file_status status = fs::symlink_status(path);
  if (!fs::exists(status)) return;
  if (!fs::is_directory(status)) {
    throw input_error(path.string(),
                      "expected a folder or nothing, got a file; move it away or choose another "
                      "folder");
  }
  const std::string foreign = foreign_file(path);
  if (foreign.empty()) return;
  throw input_error(path.string(),
                    "expected a new folder or a checkpoint to replace, got a folder that holds {}; "
                    "move it away or choose another folder",
                    printable(foreign));
}

bool is_partial(const fs::path& folder) {
  return folder.extension() == kPartial;
}

bool remove_checkpoint(const fs::path& folder) {
  try {
    if (!foreign_file(folder).empty()) return false;
    fs::path doomed = folder;
    if (!is_partial(folder)) {
      doomed = with_suffix(folder, kReplaced);
      fs::remove_all(doomed);
      fs::rename(folder, doomed);
    }
    fs::remove_all(doomed);
    return true;
  } catch (const fs::filesystem_error& error) {
    throw io_error(folder.string(), "cannot remove the checkpoint: {}", error.code().message());
  }
}

AtomicFolder::AtomicFolder(const fs::path& path) {
  try {
    path_ = fs::absolute(path / "").parent_path().lexically_normal();
    require_replaceable(path_);
    staging_ = with_suffix(path_, kPartial);
    require_replaceable(staging_);
    fs::remove_all(staging_);
    fs::create_directories(staging_);
  } catch (const fs::filesystem_error& error) {
    throw io_error(path.string(), "cannot create the folder: {}", error.code().message());
  }
}

AtomicFolder::~AtomicFolder() {
  if (is_committed_) return;
  std::error_code ignored;  // a destructor has nobody to tell
  fs::remove_all(staging_, ignored);
}

void AtomicFolder::commit() {
  MOESTRO_CHECK(!is_committed_, "{} is already committed", path_.string());
  sync_folder(staging_);
  try {
    if (fs::exists(path_)) {
      exchange(staging_, path_);
      is_committed_ = true;
      fs::remove_all(staging_);  // now the old folder
    } else {
      fs::rename(staging_, path_);
      is_committed_ = true;
    }
  } catch (const fs::filesystem_error& error) {
    throw io_error(path_.string(), "cannot rename into place: {}", error.code().message());
  }
  sync_folder(path_.parent_path());
}

}  // namespace moestro::checkpoint
