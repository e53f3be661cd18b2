#include "moestro/core/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "moestro/core/error.h"
#include "moestro/core/file.h"
#include "moestro/core/log.h"

namespace moestro {
namespace {

std::string reason() {
  return std::generic_category().message(errno);
}

}  // namespace

std::optional<FileLock> FileLock::take(const std::filesystem::path& file) {
  constexpr int kTries = 100;  // each fails only if a holder ends between opening and locking
  for (int i = 0; i < kTries; ++i) {
    const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
      throw input_error(file.string(),
                        "expected a file to lock, or none, but opening it fails: {}; remove it",
                        reason());
    }
    FileLock lock(file, fd);
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      const bool is_held = errno == EWOULDBLOCK;
      if (!is_held) {
        log_warning("{}: this file system has no locks ({}): a second run would not be noticed",
                    file.string(), reason());
        return lock;
      }
      ::close(std::exchange(lock.fd_, -1));  // the file is the holder's
      return std::nullopt;
    }
    if (is_in_place(file, fd)) return lock;  // the last holder may have removed it meanwhile
    ::close(std::exchange(lock.fd_, -1));
  }
  return std::nullopt;
}

FileLock::FileLock(std::filesystem::path file, int fd) : file_(std::move(file)), fd_(fd) {}

FileLock::FileLock(FileLock&& other) noexcept
    : file_(std::move(other.file_)), fd_(std::exchange(other.fd_, -1)) {}

FileLock::~FileLock() {
  if (fd_ < 0) return;
  std::error_code ignored;                  // a destructor has nobody to tell
  std::filesystem::remove(file_, ignored);  // first: who locks it now sees that it is gone
  ::close(fd_);
}

}  // namespace moestro
