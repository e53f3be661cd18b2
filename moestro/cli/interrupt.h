#pragma once
// Ctrl-C during training: the first asks the trainer to finish its step and save, one that comes a
// second or more later ends the process at once. A terminal that is closed counts as a first one.
// Nobody reading the progress any longer (a pager or a tee that ended) is no reason to end.

#include <atomic>
#include <csignal>
#include <thread>

namespace moestro::cli {

/// Takes SIGINT, SIGTERM and SIGHUP while it lives, but for those that are ignored, and makes
/// SIGPIPE an error of the write it came from; one at a time.
/// Create it before any thread: a thread of its own waits for the signals, which all later ones
/// leave to it. No handler runs, because oneDNN's generated code uses the stack pointer for
/// something else, and a handler that came in there would write anywhere.
/// Let it live until the results have left. Once asked to stop, it leaves the signals blocked, so
/// that those of the same request do not end the process before it ends by itself.
class InterruptGuard {
 public:
  /// `saves`: whether a checkpoint will be written, for the message. Errors: io, where the system
  /// gives no thread.
  explicit InterruptGuard(bool saves);
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  ~InterruptGuard();

  /// Set by the first signal.
  [[nodiscard]] const std::atomic<bool>& stop() const { return stop_; }

 private:
  void wait(const std::stop_token& done);

  bool saves_;
  std::atomic<bool> stop_{false};
  sigset_t signals_{}, mask_before_{};
  void (*on_broken_pipe_before_)(int) = SIG_DFL;
  std::jthread waiter_;
};

}  // namespace moestro::cli
