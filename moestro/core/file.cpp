#include "moestro/core/file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "moestro/core/error.h"

namespace moestro {
namespace {

std::string reason() {
  return std::generic_category().message(errno);
}

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

/// A file that somebody named and that cannot be opened is theirs to fix.
Error cannot_open(const std::filesystem::path& path, const std::string& why) {
  return input_error(path.string(),
                     "expected a file that can be read, but opening it fails: {}; check its "
                     "permissions, or name another",
                     why);
}

std::string partial_prefix(const std::filesystem::path& path) {
  return path.filename().string() + ".partial.";
}

/// Files have theirs at once; whoever writes a pipe may be slow, or not exist.
void wait_for_bytes(const std::filesystem::path& path, int descriptor, Seconds patience) {
  pollfd waiting{.fd = descriptor, .events = POLLIN, .revents = 0};
  const int ready = ::poll(&waiting, 1, static_cast<int>(patience.value() * 1000.0));
  if (ready != 0) return;  // an error, too, is read()'s to report
  throw input_error(path.string(),
                    "expected a pipe that somebody writes, got nothing for {} s; start its writer",
                    patience.value());
}

void require_regular_file(const std::filesystem::path& path) {
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  const bool is_absent =
      code == std::errc::no_such_file_or_directory || code == std::errc::not_a_directory || !code;
  if (!std::filesystem::exists(status) && !is_absent) throw cannot_open(path, code.message());
  if (!std::filesystem::exists(status)) {
    throw input_error(path.empty() ? "\"\"" : path.string(),
                      "expected a file, but there is none; check the path");
  }
  if (std::filesystem::is_directory(status)) {
    throw input_error(path.string(), "expected a file, got a folder; name a file inside it");
  }
  if (std::filesystem::is_character_file(status) || std::filesystem::is_block_file(status)) {
    throw input_error(path.string(), "expected a file, got a device; name a file");
  }
}

}  // namespace

std::string read_file(const std::filesystem::path& path, std::size_t max_bytes, Seconds patience) {
  require_regular_file(path);
  const Descriptor file(path, O_RDONLY | O_NONBLOCK);
  if (!file.is_open()) throw cannot_open(path, reason());
  std::string bytes;
  constexpr std::size_t kChunk = std::size_t{1} << 18;  // bytes; pipes do not say how much comes
  for (std::size_t size = 0;;) {
    wait_for_bytes(path, file.get(), patience);
    bytes.resize(size + kChunk);
    const ssize_t n = ::read(file.get(), bytes.data() + size, kChunk);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) throw io_error(path.string(), "cannot read: {}", reason());
    size += static_cast<std::size_t>(n);
    bytes.resize(size);
    if (n == 0) return bytes;
    if (size > max_bytes) {
      throw input_error(path.string(),
                        "expected a file of at most {} bytes, got a larger one; name another file",
                        max_bytes);
    }
  }
}

void require_readable(const std::filesystem::path& path) {
  require_regular_file(path);
  const Descriptor file(path, O_RDONLY | O_NONBLOCK);  // waits for no writer of a pipe
  if (!file.is_open()) throw cannot_open(path, reason());
}

void write_file_atomically(const std::filesystem::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write_at(0, std::as_bytes(std::span(bytes)));
  file.finish();
}

void remove_leftovers(const std::filesystem::path& path) {
  const std::string prefix = partial_prefix(path);
  std::error_code ignored;  // they are in nobody's way
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool is_leftover = name.size() > prefix.size() && name.starts_with(prefix) &&
                             name.find_first_not_of("0123456789", prefix.size()) == name.npos;
    if (is_leftover) std::filesystem::remove(entry.path(), ignored);
  }
}

bool is_in_place(const std::filesystem::path& path, int descriptor) {
  struct stat named {
  }, opened{};
  return ::stat(path.c_str(), &named) == 0 && ::fstat(descriptor, &opened) == 0 &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

std::filesystem::path behind_links(const std::filesystem::path& path) {
  std::error_code code;
  if (!std::filesystem::is_symlink(path, code)) return path;
  if (std::filesystem::exists(path, code)) {
    const std::filesystem::path target = std::filesystem::canonical(path, code);
    return code ? path : target;
  }
  std::filesystem::path target = path;
  for (int links = 0; links < 40; ++links) {  // as many as Linux follows
    const std::filesystem::path next = std::filesystem::read_symlink(target, code);
    if (code) return target;
    target = target.parent_path() / next;
  }
  return path;
}

std::string why_not_writable(const std::filesystem::path& folder) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code) return code.message();
  // Trying is the only sure way: permission bits say nothing about read-only disks, quotas or root.
  const std::filesystem::path probe = folder / fmt::format(".moestro.partial.{}", ::getpid());
  const Descriptor created(probe, O_WRONLY | O_CREAT, 0644);
  if (!created.is_open()) return reason();
  std::filesystem::remove(probe, code);
  return "";
}

void sync_folder(const std::filesystem::path& folder) {
  const Descriptor opened(folder, O_RDONLY | O_DIRECTORY);
  if (!opened.is_open()) throw io_error(folder.string(), "cannot open: {}", reason());
  // Some file systems do not flush folders and say so with EINVAL; they have nothing to flush.
  if (::fsync(opened.get()) != 0 && errno != EINVAL) {
    throw io_error(folder.string(), "cannot flush: {}", reason());
  }
}

AtomicFile::AtomicFile(const std::filesystem::path& path)
    : path_(path),
      partial_(path.parent_path() / (partial_prefix(path) + std::to_string(::getpid()))) {
  std::error_code code;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), code);
  if (code) throw io_error(path.string(), "cannot create its folder: {}", code.message());
  fd_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) throw io_error(path.string(), "cannot create: {}", reason());
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_(std::move(other.partial_)),
      fd_(std::exchange(other.fd_, -1)) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  std::error_code ignored;  // a destructor has nobody to tell
  std::filesystem::remove(partial_, ignored);
}

void AtomicFile::write_at(std::size_t offset, std::span<const std::byte> bytes) {
  MOESTRO_CHECK(fd_ >= 0, "{} is already finished", path_.string());
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw io_error(path_.string(), "cannot write: {}", reason());
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::size_t>(n);
  }
}

void AtomicFile::finish() {
  MOESTRO_CHECK(fd_ >= 0, "{} is already finished", path_.string());
  if (::fsync(fd_) != 0) throw io_error(path_.string(), "cannot flush: {}", reason());
  std::error_code code;
  std::filesystem::rename(partial_, path_, code);
  if (code) throw io_error(path_.string(), "cannot rename into place: {}", code.message());
  ::close(std::exchange(fd_, -1));
  sync_folder(path_.has_parent_path() ? path_.parent_path() : ".");
}

AppendedFile::AppendedFile(const std::filesystem::path& path)
    : path_(path),
      fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644)) {
  if (fd_ < 0 && errno == ENXIO) {
    throw io_error(path.string(),
                   "cannot open for writing: nobody reads this pipe; start its "
                   "reader first");
  }
  if (fd_ < 0) throw io_error(path.string(), "cannot open for writing: {}", reason());
  // Only opening must not wait: who reads a pipe may be slow.
  ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) & ~O_NONBLOCK);
}

AppendedFile::~AppendedFile() {
  ::close(fd_);
}

void AppendedFile::append(std::string_view bytes) {
  struct stat before {};
  const bool is_known = ::fstat(fd_, &before) == 0;
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const std::string why = reason();
      // Devices and pipes cannot take back what they got; the error is reported all the same.
      const bool is_undone = is_known && ::ftruncate(fd_, before.st_size) == 0;
      throw io_error(path_.string(), "cannot write: {}{}", why,
                     is_undone ? "" : "; its last line may be incomplete");
    }
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  require_regular_file(path);
  const Descriptor file(path, O_RDONLY | O_NONBLOCK);
  if (!file.is_open()) throw cannot_open(path, reason());
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) throw io_error(path.string(), "cannot stat: {}", reason());
  if (!S_ISREG(info.st_mode)) {
    throw input_error(path.string(), "expected a file, got a pipe; name a file");
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size == 0) return;
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) throw io_error(path.string(), "cannot map: {}", reason());
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

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
