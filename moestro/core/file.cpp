#include "moestro/core/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

#include "moestro/core/error.h"

namespace moestro {
namespace {

std::string reason() { return std::generic_category().message(errno); }

/// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags, mode_t mode = 0)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool is_open() const { return fd_ >= 0; }

 private:
  int fd_;
};

void require_regular_file(const std::filesystem::path& path) {
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  if (!std::filesystem::exists(status)) {
    throw input_error(path.string(), "expected a file, but there is none; check the path");
  }
  if (std::filesystem::is_directory(status)) {
    throw input_error(path.string(), "expected a file, got a folder; name a file inside it");
  }
}

void write_all(int fd, std::string_view bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw io_error(path.string(), "cannot write: {}", reason());
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  require_regular_file(path);
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw io_error(path.string(), "cannot open: {}", reason());
  std::string bytes((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (stream.bad()) throw io_error(path.string(), "cannot read: {}", reason());
  return bytes;
}

void write_file_atomically(const std::filesystem::path& path, std::string_view bytes) {
  std::error_code code;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), code);
  if (code) throw io_error(path.string(), "cannot create its folder: {}", code.message());
  const std::filesystem::path partial = path.string() + ".partial." + std::to_string(::getpid());
  try {
    const Descriptor file(partial, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (!file.is_open()) throw io_error(path.string(), "cannot create: {}", reason());
    write_all(file.get(), bytes, path);
    if (::fsync(file.get()) != 0) throw io_error(path.string(), "cannot flush: {}", reason());
  } catch (...) {
    std::filesystem::remove(partial, code);
    throw;
  }
  std::filesystem::rename(partial, path, code);
  if (code) {
    const std::string message = code.message();
    std::filesystem::remove(partial, code);
    throw io_error(path.string(), "cannot rename into place: {}", message);
  }
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  require_regular_file(path);
  const Descriptor file(path, O_RDONLY);
  if (!file.is_open()) throw io_error(path.string(), "cannot open: {}", reason());
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) throw io_error(path.string(), "cannot stat: {}", reason());
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size == 0) return;
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) throw io_error(path.string(), "cannot map: {}", reason());
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) {
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
}

}  // namespace moestro
