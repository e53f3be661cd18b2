// Worker threads of a calling thread, kept between runs. A waiting thread spins for some
// microseconds and then sleeps: a run that shares its cores with other programs loses its share of
// the time and no more (OpenMP's busy waiting was measured to cost 30 times that).

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

#include "moestro/kernels/internal/block_run.h"

namespace moestro::kernels::internal {
namespace {

constexpr int kSpins = 2000;  // some tens of us: longer than the gap between two runs of a step

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/// Returns the value once it differs from `old`.
std::uint64_t wait_for_change(const std::atomic<std::uint64_t>& value, std::uint64_t old) {
  for (int i = 0; i < kSpins; ++i) {
    const std::uint64_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    pause();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

class Team {
 public:
  Team() = default;
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team() {
    stops_ = true;
    announce(0);
    for (std::thread& worker : workers_) worker.join();
  }

  void work(BlockRun& run, int threads) {
    hire(static_cast<std::size_t>(threads - 1));
    const std::uint64_t others = std::min(workers_.size(), static_cast<std::size_t>(threads - 1));
    run_ = &run;
    busy_.store(others, std::memory_order_relaxed);
    announce(others);
    run.work();
    for (std::uint64_t left = busy_.load(std::memory_order_acquire); left != 0;) {
      left = wait_for_change(busy_, left);
    }
  }

 private:
  // A call is a count in the upper bits and the number of workers it is for in the lower, in one
  // word: a worker that wakes late cannot mix up two calls.
  static constexpr std::uint64_t kOneCall = 1U << 16;

  /// So many workers, or as many as the system gives: no result depends on their number.
  void hire(std::size_t count) {
    try {
      while (workers_.size() < count) {
        const std::uint64_t index = workers_.size();
        workers_.emplace_back([this, index, seen = call_.load()] { serve(index, seen); });
      }
    } catch (const std::system_error&) {
      // Out of threads or of memory for their stacks: the calling thread alone would do.
    }
  }

  void announce(std::uint64_t others) {
    const std::uint64_t count = call_.load(std::memory_order_relaxed) / kOneCall + 1;
    call_.store(count * kOneCall + others, std::memory_order_release);
    call_.notify_all();
  }

  void serve(std::uint64_t index, std::uint64_t seen) {
    for (;;) {
      seen = wait_for_change(call_, seen);
      if (stops_) return;
      if (index >= seen % kOneCall) continue;
      run_->work();
      // Only the last one to finish wakes the caller.
      if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
    }
  }

  std::atomic<std::uint64_t> call_{0};
  std::atomic<std::uint64_t> busy_{0};
  std::atomic<bool> stops_{false};
  BlockRun* run_ = nullptr;  // of the present call
  std::vector<std::thread> workers_;
};

}  // namespace

void work_on_threads(BlockRun& run, int threads) {
  thread_local Team team;
  team.work(run, threads);
}

}  // namespace moestro::kernels::internal
