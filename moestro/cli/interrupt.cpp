#include "moestro/cli/interrupt.h"

#include <fmt/core.h>

#include <chrono>
#include <ctime>
#include <system_error>

#include "moestro/cli/options.h"
#include "moestro/core/error.h"

namespace moestro::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// Signals within this time are one request: timeout(1) and batch systems send theirs to the
/// process and to its group.
constexpr std::chrono::seconds kOneRequest{1};

/// What the signal does without us: it ends the process.
void end_process(int signal) {
  std::signal(signal, SIG_DFL);
  sigset_t only{};
  sigemptyset(&only);
  sigaddset(&only, signal);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  std::raise(signal);
}

/// What whoever started the process wants left alone: nohup, or a shell that runs it in the
/// background. A blocked signal would come all the same.
bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

InterruptGuard::InterruptGuard(bool saves) : saves_(saves) {
  sigemptyset(&signals_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (!is_ignored(signal)) sigaddset(&signals_, signal);
  }
  pthread_sigmask(SIG_BLOCK, &signals_, &mask_before_);
  on_broken_pipe_before_ = std::signal(SIGPIPE, SIG_IGN);
  try {
    waiter_ = std::jthread([this](const std::stop_token& done) { wait(done); });
  } catch (const std::system_error& error) {
    throw io_error("train",
                   "cannot start a thread: {}; the limit of processes (ulimit -u) is reached: end "
                   "others, or raise it",
                   error.code().message());
  }
}

InterruptGuard::~InterruptGuard() {
  waiter_.request_stop();
  waiter_.join();
  std::signal(SIGPIPE, on_broken_pipe_before_);
  // Once asked to stop, the process ends by itself, and what comes of the same request meanwhile
  // must not take its exit code.
  if (!stop_.load()) pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

void InterruptGuard::wait(const std::stop_token& done) {
  constexpr timespec kPatience{.tv_sec = 0, .tv_nsec = 20'000'000};
  Clock::time_point first;
  while (!done.stop_requested()) {
    const int signal = sigtimedwait(&signals_, nullptr, &kPatience);
    if (signal < 0) continue;
    // A terminal that goes away says so more than once: itself, and through its shell.
    if (signal == SIGHUP && stop_.load()) continue;
    if (stop_.load()) {
      if (Clock::now() - first >= kOneRequest) end_process(signal);
      continue;
    }
    first = Clock::now();
    stop_ = true;
    print_error(
        fmt::format("\ninterrupted: finishing this step{}; again after a second aborts at once\n",
                    saves_ ? " and saving" : ""));
  }
}

}  // namespace moestro::cli
