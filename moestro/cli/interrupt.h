#pragma once
// Ctrl-C during training: the first asks the trainer to finish its step and save, the second ends
// the process at once.

#include <atomic>

namespace moestro::cli {

/// Catches SIGINT and SIGTERM while it lives; one at a time.
class InterruptGuard {
 public:
  /// `saves`: whether a checkpoint will be written, for the message.
  explicit InterruptGuard(bool saves);
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  ~InterruptGuard();

  /// Set by the first signal.
  [[nodiscard]] const std::atomic<bool>& stop() const;
};

}  // namespace moestro::cli
