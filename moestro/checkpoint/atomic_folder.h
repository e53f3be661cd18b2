#pragma once
// A folder that appears under its name only once it is complete: its files are written to
// "NAME.partial", flushed, and the folder renamed. A folder that was there before stays until then.
//
//   AtomicFolder folder("run/checkpoints/step-000100");
//   write_file_atomically(folder.staging() / "trainer.json", text);
//   folder.commit();

#include <filesystem>

namespace moestro::checkpoint {

/// Whether a folder is still being written, or was abandoned by a crash.
[[nodiscard]] bool is_partial(const std::filesystem::path& folder);

/// Errors: input, if a path is anything but nothing, an empty folder or a checkpoint: only files
/// that checkpoints consist of are ever replaced; as std::filesystem, if it cannot be looked at.
void require_replaceable(const std::filesystem::path& path);

/// Removes a folder in one step (as seen by readers), if it holds nothing but files that
/// checkpoints consist of; otherwise leaves it alone. Result: whether it is gone. Errors: io.
bool remove_checkpoint(const std::filesystem::path& folder);

class AtomicFolder {
 public:
  /// Creates an empty staging folder, in place of one that a crash left behind.
  /// Errors: as require_replaceable; io.
  explicit AtomicFolder(const std::filesystem::path& path);
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  /// Abandoned (no commit), it removes the staging folder.
  ~AtomicFolder();

  /// Where to write the files.
  [[nodiscard]] const std::filesystem::path& staging() const { return staging_; }
  /// Puts the folder in place, then removes what it replaces. Errors: io.
  void commit();

 private:
  std::filesystem::path path_, staging_;
  bool is_committed_ = false;
};

}  // namespace moestro::checkpoint
