#include "moestro/core/file_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "moestro/core/error.h"
#include "tests/core/temporary_folder.h"

namespace moestro {
namespace {

TEST(FileLock, IsHeldByOneAtATimeAndLeavesNoFile) {
  const test::TemporaryFolder folder;
  const auto file = folder.path() / ".lock";
  for (int i = 0; i < 2; ++i) {
    const auto lock = FileLock::take(file);
    ASSERT_TRUE(lock.has_value());
    EXPECT_FALSE(FileLock::take(file).has_value());
    EXPECT_TRUE(std::filesystem::exists(file)) << "a refused lock must not remove the holder's";
    EXPECT_FALSE(FileLock::take(file).has_value());
  }
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(FileLock, EndsWithAKilledProcess) {
  const test::TemporaryFolder folder;
  const auto file = folder.path() / ".lock";
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = FileLock::take(file);
    const char held = lock.has_value() ? 1 : 0;
    if (::write(ready[1], &held, 1) == 1) ::pause();
    ::_exit(0);
  }
  char held = 0;
  ASSERT_EQ(::read(ready[0], &held, 1), 1);
  EXPECT_EQ(held, 1);
  EXPECT_FALSE(FileLock::take(file).has_value());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(FileLock::take(file).has_value());
}

TEST(FileLock, SaysWhereItCannotBe) {
  const test::TemporaryFolder folder;
  EXPECT_THROW(static_cast<void>(FileLock::take(folder.path() / "absent" / ".lock")), Error);
}

}  // namespace
}  // namespace moestro
