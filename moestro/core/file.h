#pragma once
// Files: whole reads, atomic writes, read-only memory maps. Nothing is ever left half written.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "moestro/core/units.h"

namespace moestro {

/// The whole file, or all that comes through a pipe. Errors: input, if it does not exist, is a
/// folder, cannot be opened or has more than `max_bytes`, or if nothing comes through a pipe for as
/// long as `patience`; io, if reading it fails.
[[nodiscard]] std::string read_file(const std::filesystem::path& path,
                                    std::size_t max_bytes = std::string::npos,
                                    Seconds patience = Seconds{60.0});

/// Errors: input, if there is no file that can be opened for reading.
void require_readable(const std::filesystem::path& path);

/// Writes beside the target, flushes to disk, then renames: readers see the old or the new file.
/// Creates missing parent folders. Errors: io.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

/// Removes what crashes left beside a file of writing it atomically. Nobody may be writing it.
void remove_leftovers(const std::filesystem::path& path);

/// Whether a path leads to an open file: it may have been removed or replaced meanwhile.
[[nodiscard]] bool is_in_place(const std::filesystem::path& path, int descriptor);

/// Where a link leads, also one whose target does not exist yet; the path itself if it is no link,
/// or one to what has no path (/dev/stdout in a pipe).
[[nodiscard]] std::filesystem::path behind_links(const std::filesystem::path& path);

/// Why files cannot be created in a folder, or empty if they can. Creates the folder and its
/// parents where they are missing.
[[nodiscard]] std::string why_not_writable(const std::filesystem::path& folder);

/// Flushes a folder's entries to disk, so that what was created or renamed in it survives a crash.
/// Errors: io.
void sync_folder(const std::filesystem::path& folder);

/// A file that appears under its name only once it is complete: written beside it in any order,
/// flushed, renamed. Abandoned (destroyed without finish), it leaves nothing behind.
class AtomicFile {
 public:
  /// Creates missing parent folders. Errors: io.
  explicit AtomicFile(const std::filesystem::path& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  /// Errors: io, e.g. a full disk.
  void write_at(std::size_t offset, std::span<const std::byte> bytes);
  /// Flushes and renames into place. Errors: io.
  void finish();

 private:
  std::filesystem::path path_, partial_;
  int fd_ = -1;  // -1: finished or moved from
};

/// A file that grows by whole pieces: what cannot be written completely is taken back.
class AppendedFile {
 public:
  /// Creates the file where there is none. Errors: io, also for a pipe that nobody reads.
  explicit AppendedFile(const std::filesystem::path& path);
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;
  ~AppendedFile();

  /// Errors: io, e.g. a full disk; the file then ends where it ended before.
  void append(std::string_view bytes);

  /// Whether its path still leads to it.
  [[nodiscard]] bool is_in_place() const { return moestro::is_in_place(path_, fd_); }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

/// A read-only memory map of a whole file; moves, never copies.
class MappedFile {
 public:
  /// Errors: input, if the file does not exist or cannot be opened; io, if it cannot be mapped.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace moestro
