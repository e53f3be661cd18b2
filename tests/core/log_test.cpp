#include "moestro/core/log.h"

#include <gtest/gtest.h>

#include <string>

namespace moestro {
namespace {

std::string printed(LogLevel level) {
  testing::internal::CaptureStderr();
  const LogLevel before = log_level();
  set_log_level(level);
  log_warning("w{}", 1);
  log_info("i");
  log_verbose("v");
  set_log_level(before);
  return testing::internal::GetCapturedStderr();
}

TEST(Log, PrintsWhatTheLevelLets) {
  EXPECT_EQ(printed(LogLevel::quiet), "");
  EXPECT_EQ(printed(LogLevel::warning), "warning: w1\n");
  EXPECT_EQ(printed(LogLevel::info), "warning: w1\ni\n");
  EXPECT_EQ(printed(LogLevel::verbose), "warning: w1\ni\nv\n");
}

TEST(Log, PrintsOneLineWhateverTheNames) {
  testing::internal::CaptureStderr();
  log_warning("a{}b: not read", '\n');
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "warning: a?b: not read\n");
}

}  // namespace
}  // namespace moestro
