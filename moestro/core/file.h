#pragma once
// Files: whole reads, atomic writes, read-only memory maps. Nothing is ever left half written.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace moestro {

/// The whole file. Errors: input, if it does not exist or is a folder; io, if it cannot be read.
[[nodiscard]] std::string read_file(const std::filesystem::path& path);

/// Writes beside the target, flushes to disk, then renames: readers see the old or the new file.
/// Creates missing parent folders. Errors: io.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

/// A read-only memory map of a whole file; moves, never copies.
class MappedFile {
 public:
  /// Errors: input, if the file does not exist; io, if it cannot be mapped.
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
