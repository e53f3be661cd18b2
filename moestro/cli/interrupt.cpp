#include "moestro/cli/interrupt.h"

#include <unistd.h>

#include <csignal>
#include <string_view>

namespace moestro::cli {
namespace {

// A signal handler can reach nothing but globals.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<bool> g_stop{false};
std::atomic<bool> g_saves{false};
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)
static_assert(std::atomic<bool>::is_always_lock_free, "signal handlers need lock-free atomics");

void restore_defaults() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

/// Calls only what POSIX allows in a handler: write, signal, lock-free atomics.
extern "C" void on_signal(int /*signal*/) {
  constexpr std::string_view kSaving =
      "\ninterrupted: finishing this step and saving; once more aborts at once\n";
  constexpr std::string_view kStopping =
      "\ninterrupted: finishing this step; once more aborts at once\n";
  g_stop = true;
  const std::string_view message = g_saves ? kSaving : kStopping;
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, message.data(), message.size());
  restore_defaults();
}

}  // namespace

InterruptGuard::InterruptGuard(bool saves) {
  g_stop = false;
  g_saves = saves;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

InterruptGuard::~InterruptGuard() {
  restore_defaults();
}

const std::atomic<bool>& InterruptGuard::stop() const {
  return g_stop;
}

}  // namespace moestro::cli
