#include "moestro/cli/interrupt.h"

#include <gtest/gtest.h>

#include <csignal>
#include <string>

namespace moestro::cli {
namespace {

std::string message_of_first_signal(int signal, bool saves) {
  const InterruptGuard guard(saves);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(guard.stop());
  EXPECT_EQ(std::raise(signal), 0);
  EXPECT_TRUE(guard.stop());
  return testing::internal::GetCapturedStderr();
}

TEST(Interrupt, FirstSignalAsksToStop) {
  EXPECT_NE(message_of_first_signal(SIGINT, true).find("and saving"), std::string::npos);
  EXPECT_EQ(message_of_first_signal(SIGTERM, false).find("and saving"), std::string::npos);
}

TEST(Interrupt, StartsClearEachTime) {
  static_cast<void>(message_of_first_signal(SIGINT, true));
  const InterruptGuard guard(true);
  EXPECT_FALSE(guard.stop());
}

TEST(InterruptDeathTest, SecondSignalEndsTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const InterruptGuard guard(true);
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "finishing this step");
}

}  // namespace
}  // namespace moestro::cli
