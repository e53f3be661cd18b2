#pragma once
// One worker's share of a parallel_for.

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

#include "moestro/kernels/parallel.h"

namespace moestro::kernels::internal {

/// One call of parallel_for: workers draw the next block until none is left.
class BlockRun {
 public:
  BlockRun(std::int64_t count, std::int64_t block, RangeFunction function, void* context);
  /// Draws and runs blocks; keeps the first exception. Nested calls see is_inside_run().
  void work() noexcept;
  /// Rethrows what a body threw.
  void finish();
  [[nodiscard]] std::int64_t blocks() const { return (count_ + block_ - 1) / block_; }

 private:
  std::int64_t count_;
  std::int64_t block_;
  RangeFunction function_;
  void* context_;
  std::atomic<std::int64_t> next_{0};
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
};

/// Whether the calling thread is a worker of a run in progress.
[[nodiscard]] bool is_inside_run();

/// Calls run.work() on `threads` threads, the caller's among them, and waits for all.
void work_on_threads(BlockRun& run, int threads);

}  // namespace moestro::kernels::internal
