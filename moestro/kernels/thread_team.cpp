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

/// Which run is open, and how many workers are inside it: one word, so that a worker that wakes
/// late can neither enter a run that is over nor mix up two.
class Door {
 public:
  void open(std::uint64_t run) { word_.store(run * kOneRun + kOpen, std::memory_order_release); }

  /// False: that run is over.
  bool enter(std::uint64_t run) {
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    do {
      if (word / kOneRun != run || (word & kOpen) == 0) return false;
    } while (!word_.compare_exchange_weak(word, word + 1, std::memory_order_acquire,
                                          std::memory_order_relaxed));
    return true;
  }

  void leave() {
    const std::uint64_t before = word_.fetch_sub(1, std::memory_order_acq_rel);
    if ((before & kOpen) == 0 && (before & kInside) == 1) word_.notify_one();
  }

  /// Lets nobody in any more and waits until all have left.
  void close() {
    std::uint64_t word = word_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
    while ((word & kInside) != 0) word = wait_for_change(word_, word);
  }

 private:
  static constexpr std::uint64_t kOneRun = 1U << 17;
  static constexpr std::uint64_t kOpen = 1U << 16;
  static constexpr std::uint64_t kInside = kOpen - 1;

  std::atomic<std::uint64_t> word_{0};
};

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
    run_ = &run;
    announce(std::min(workers_.size(), static_cast<std::size_t>(threads - 1)));
    run.work();
    // No block is left to begin, so whoever has not come yet is not waited for: on a busy machine
    // a worker may get its core only after many times the length of this run.
    door_.close();
  }

 private:
  // A call is a count in the upper bits and the number of workers it is for in the lower.
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
    const std::uint64_t run = call_.load(std::memory_order_relaxed) / kOneCall + 1;
    door_.open(run);
    call_.store(run * kOneCall + others, std::memory_order_release);
    call_.notify_all();
  }

  void serve(std::uint64_t index, std::uint64_t seen) {
    for (;;) {
      seen = wait_for_change(call_, seen);
      if (stops_) return;
      if (index >= seen % kOneCall || !door_.enter(seen / kOneCall)) continue;
      run_->work();
      door_.leave();
    }
  }

  std::atomic<std::uint64_t> call_{0};
  Door door_;
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
