#pragma once
// A lock between processes that ends with its holder, however that ends.
//
//   const std::optional<FileLock> lock = FileLock::take("run/.lock");
//   if (!lock) throw input_error(...);    // somebody else holds it

#include <filesystem>
#include <optional>
#include <string>

namespace moestro {

/// Holds a file while it lives, through flock; then removes the file. What a crash leaves behind
/// is an empty file that nobody holds.
class FileLock {
 public:
  /// nullopt if another process, or another lock of this one, holds the file. Where the file system
  /// has no locks, a warning says so and the lock counts as taken.
  /// Errors: input, if the file cannot be opened or created.
  [[nodiscard]] static std::optional<FileLock> take(const std::filesystem::path& file);

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();

 private:
  FileLock(std::filesystem::path file, int fd);

  std::filesystem::path file_;
  int fd_ = -1;  // -1: moved from
};

}  // namespace moestro
