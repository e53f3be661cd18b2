#include "moestro/cli/interrupt.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>

namespace moestro::cli {
namespace {

/// Sends the signal to the process and waits until the guard has it.
void interrupt(const InterruptGuard& guard, int signal) {
  EXPECT_EQ(::kill(::getpid(), signal), 0);
  for (int i = 0; i < 1000 && !guard.stop(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(guard.stop());
}

std::string message_of_first_signal(int signal, bool saves) {
  testing::internal::CaptureStderr();
  {
    const InterruptGuard guard(saves);
    EXPECT_FALSE(guard.stop());
    interrupt(guard, signal);
  }
  return testing::internal::GetCapturedStderr();
}

/// Every test begins and ends with the signals as they were.
class Interrupt : public testing::Test {
 protected:
  Interrupt() { pthread_sigmask(SIG_BLOCK, nullptr, &mask_before_); }
  ~Interrupt() override {
    constexpr timespec kNow{};
    sigset_t all{};
    sigfillset(&all);
    while (sigtimedwait(&all, nullptr, &kNow) > 0) continue;
    pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  }

 private:
  sigset_t mask_before_{};
};

bool is_blocked(int signal) {
  sigset_t blocked{};
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  return sigismember(&blocked, signal) == 1;
}

TEST_F(Interrupt, FirstSignalAsksToStop) {
  EXPECT_NE(message_of_first_signal(SIGINT, true).find("and saving"), std::string::npos);
  EXPECT_EQ(message_of_first_signal(SIGTERM, false).find("and saving"), std::string::npos);
}

TEST_F(Interrupt, ClosingTheTerminalIsAFirstSignalHoweverOftenItComes) {
  testing::internal::CaptureStderr();
  {
    const InterruptGuard guard(true);
    interrupt(guard, SIGHUP);
    EXPECT_EQ(::kill(::getpid(), SIGHUP), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_NE(testing::internal::GetCapturedStderr().find("and saving"), std::string::npos);
}

/// timeout(1) signals the process, and then its whole group.
TEST_F(Interrupt, SignalsThatComeTogetherAreOne) {
  testing::internal::CaptureStderr();
  {
    const InterruptGuard guard(true);
    interrupt(guard, SIGTERM);
    for (const int signal : {SIGTERM, SIGINT}) EXPECT_EQ(::kill(::getpid(), signal), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  const std::string shown = testing::internal::GetCapturedStderr();
  EXPECT_EQ(shown.find("interrupted"), shown.rfind("interrupted"));
}

TEST_F(Interrupt, LeavesIgnoredSignalsIgnored) {
  const auto before = std::signal(SIGINT, SIG_IGN);
  {
    const InterruptGuard guard(true);
    EXPECT_EQ(::kill(::getpid(), SIGINT), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_FALSE(guard.stop());
  }
  std::signal(SIGINT, before);
}

TEST_F(Interrupt, StartsClearEachTime) {
  static_cast<void>(message_of_first_signal(SIGINT, true));
  const InterruptGuard guard(true);
  EXPECT_FALSE(guard.stop());
}

/// A thread that is not in a state to run a handler: generated code may hold anything in the stack
/// pointer.
TEST_F(Interrupt, OtherThreadsAreLeftAlone) {
  const InterruptGuard guard(true);
  sigset_t blocked{};
  std::thread([&] { pthread_sigmask(SIG_BLOCK, nullptr, &blocked); }).join();
  EXPECT_EQ(sigismember(&blocked, SIGINT), 1);
  EXPECT_EQ(sigismember(&blocked, SIGTERM), 1);
}

TEST_F(Interrupt, RestoresTheMask) {
  { const InterruptGuard guard(true); }
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) EXPECT_FALSE(is_blocked(signal));
}

/// A process that was asked to stop ends by itself.
TEST_F(Interrupt, SignalsThatComeAfterAStopChangeNothing) {
  static_cast<void>(message_of_first_signal(SIGTERM, true));
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_TRUE(is_blocked(signal));
    EXPECT_EQ(::kill(::getpid(), signal), 0);
  }
}

TEST(InterruptDeathTest, SecondSignalEndsTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const InterruptGuard guard(true);
        interrupt(guard, SIGINT);
        std::this_thread::sleep_for(std::chrono::milliseconds(1100));
        interrupt(guard, SIGINT);
        std::this_thread::sleep_for(std::chrono::seconds(10));
      },
      testing::KilledBySignal(SIGINT), "finishing this step");
}

}  // namespace
}  // namespace moestro::cli
