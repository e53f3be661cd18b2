#include "moestro/core/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "moestro/core/error.h"
#include "tests/core/temporary_folder.h"

namespace moestro {
namespace {

using test::TemporaryFolder;
using ::testing::HasSubstr;

std::size_t entries(const std::filesystem::path& folder) {
  const std::filesystem::directory_iterator begin(folder);
  return static_cast<std::size_t>(std::distance(begin, std::filesystem::directory_iterator()));
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

template <class F>
void expect_error(ErrorKind kind, const char* part, F&& f) {
  try {
    f();
    FAIL() << "did not throw";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(File, ReadsBackWhatWasWritten) {
  const TemporaryFolder folder;
  const std::string bytes("a\0b\r\n\xff", 6);
  write_file_atomically(folder.path() / "deep/er/x", bytes);
  EXPECT_EQ(read_file(folder.path() / "deep/er/x"), bytes);
  EXPECT_EQ(entries(folder.path() / "deep/er"), 1U) << "a partial file was left behind";
}

TEST(File, ReplacesAnExistingFile) {
  const TemporaryFolder folder;
  const auto path = folder.file("x", "old and longer");
  write_file_atomically(path, "new");
  EXPECT_EQ(read_file(path), "new");
}

TEST(File, NamesWhatMayNotBeRead) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const TemporaryFolder folder;
  const auto locked = folder.file("locked", "x");
  std::filesystem::permissions(locked, std::filesystem::perms::none);
  expect_error(ErrorKind::input, "opening it fails: Permission denied; check its",
               [&] { static_cast<void>(read_file(locked)); });
  expect_error(ErrorKind::input, "opening it fails: Permission denied",
               [&] { MappedFile{locked}; });
}

TEST(File, ReadsUpToALimit) {
  const TemporaryFolder folder;
  const std::string bytes(100000, 'x');
  const auto path = folder.file("x", bytes);
  EXPECT_EQ(read_file(path, 100000), bytes);
  expect_error(ErrorKind::input, "at most 99999 bytes, got a larger one; name another",
               [&] { static_cast<void>(read_file(path, 99999)); });
}

TEST(File, NamesWhatIsMissing) {
  const TemporaryFolder folder;
  const auto read = [](const std::filesystem::path& path) { static_cast<void>(read_file(path)); };
  expect_error(ErrorKind::input, "there is none", [&] { read(folder.path() / "absent"); });
  expect_error(ErrorKind::input, "got a folder", [&] { read(folder.path()); });
  expect_error(ErrorKind::input, "there is none", [&] { MappedFile(folder.path() / "absent"); });
}

/// A socket is a file that nobody can open, root included, for whom permissions mean nothing.
std::filesystem::path unreadable_file(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "s";
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  path.string().copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  EXPECT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ::close(socket);
  return path;
}

TEST(File, WhatCannotBeOpenedIsBadInput) {
  const TemporaryFolder folder;
  const auto path = unreadable_file(folder.path());
  const char* const what = "s] expected a file that can be read, but opening it fails";
  expect_error(ErrorKind::input, what, [&] { static_cast<void>(read_file(path)); });
  expect_error(ErrorKind::input, what, [&] { MappedFile{path}; });
  expect_error(ErrorKind::input, what, [&] { require_readable(path); });
}

TEST(File, WhatCannotBeReachedIsNotCalledAbsent) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("loop", folder.path() / "loop");
  expect_error(ErrorKind::input, "opening it fails: Too many levels of symbolic links",
               [&] { static_cast<void>(read_file(folder.path() / "loop")); });
}

TEST(File, AFailingReadIsNoEmptyFile) {
  // Opens like a file, but nothing is mapped at address 0.
  expect_error(ErrorKind::io, "cannot read: Input/output error",
               [] { static_cast<void>(read_file("/proc/self/mem")); });
}

TEST(File, RefusesEndlessDevices) {
  expect_error(ErrorKind::input, "device", [] { static_cast<void>(read_file("/dev/zero")); });
}

/// Opening a pipe whose other end nobody has waits for as long as that is so.
TEST(File, WaitsForNobodyAtAPipe) {
  const TemporaryFolder folder;
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  require_readable(pipe);
  EXPECT_THROW(MappedFile{pipe}, Error);
  try {
    const AppendedFile file(pipe);
    ADD_FAILURE() << "no reader, no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::io);
    EXPECT_THAT(error.what(), HasSubstr("nobody reads this pipe"));
  }
}

TEST(File, ReadsAPipeToItsEndButNotForEver) {
  const TemporaryFolder folder;
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_error(ErrorKind::input, "somebody writes",
               [&] { static_cast<void>(read_file(pipe, std::string::npos, Seconds{0.05})); });
  const std::string text(300000, 'x');  // more than a pipe holds
  std::jthread writer([&] { std::ofstream(pipe) << text; });
  EXPECT_EQ(read_file(pipe), text);
}

TEST(File, FailsCleanlyWhereNothingCanBeWritten) {
  const TemporaryFolder folder;
  const auto file = folder.file("x", "");
  expect_error(ErrorKind::io, "cannot", [&] { write_file_atomically(file / "below", "y"); });
}

TEST(MappedFile, ShowsTheBytes) {
  const TemporaryFolder folder;
  const MappedFile map(folder.file("x", "hello"));
  ASSERT_EQ(map.bytes().size(), 5U);
  EXPECT_EQ(std::memcmp(map.bytes().data(), "hello", 5), 0);
}

TEST(MappedFile, AcceptsAnEmptyFile) {
  const TemporaryFolder folder;
  EXPECT_TRUE(MappedFile(folder.file("x", "")).bytes().empty());
}

TEST(MappedFile, MovesItsBytes) {
  const TemporaryFolder folder;
  MappedFile first(folder.file("x", "hello"));
  MappedFile second(std::move(first));
  MappedFile third(folder.file("y", "other"));
  third = std::move(second);
  EXPECT_EQ(std::memcmp(third.bytes().data(), "hello", 5), 0);
}

TEST(AtomicFile, AppearsOnlyWhenFinished) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "x";
  AtomicFile file(path);
  file.write_at(3, bytes_of("def"));
  file.write_at(0, bytes_of("abc"));
  EXPECT_FALSE(std::filesystem::exists(path));
  file.finish();
  EXPECT_EQ(read_file(path), "abcdef");
}

TEST(AtomicFile, LeavesNothingWhenAbandoned) {
  const TemporaryFolder folder;
  {
    AtomicFile file(folder.path() / "x");
    file.write_at(0, bytes_of("abc"));
  }
  EXPECT_EQ(entries(folder.path()), 0U);
}

TEST(WhyNotWritable, CreatesWhatIsMissingAndNothingElse) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(why_not_writable(folder.path() / "a" / "b"), "");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path() / "a" / "b"));
}

TEST(WhyNotWritable, SaysWhatIsInTheWay) {
  const test::TemporaryFolder folder;
  const auto file = folder.file("text.txt", "abc");
  EXPECT_NE(why_not_writable(file), "");
  EXPECT_NE(why_not_writable(file / "inside"), "");
  EXPECT_NE(why_not_writable("/proc"), "");
}

}  // namespace
}  // namespace moestro
