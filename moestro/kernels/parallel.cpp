#include "moestro/kernels/parallel.h"

#include <sched.h>

#include <algorithm>
#include <cmath>

#include "moestro/core/control_groups.h"
#include "moestro/kernels/internal/block_run.h"

namespace moestro::kernels {
namespace {

struct ThreadState {
  int threads = 0;  // 0: all cores
  bool is_inside_run = false;
};

ThreadState& state() {
  thread_local ThreadState value;
  return value;
}

int count_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;  // more than 1024 cores
  const int cores = CPU_COUNT(&set);
  const double quota = cpu_quota().value_or(cores);
  return std::max(1, quota < cores ? static_cast<int>(std::ceil(quota)) : cores);
}

}  // namespace

void set_num_threads(int threads) {
  state().threads = std::max(0, threads);
}

int num_threads() {
  const int threads = state().threads;
  return threads > 0 ? threads : available_cores();
}

int available_cores() {
  static const int cores = count_cores();
  return cores;
}

namespace internal {

BlockRun::BlockRun(std::int64_t count, std::int64_t block, RangeFunction function, void* context)
    : count_(count), block_(block), function_(function), context_(context) {}

void BlockRun::work() noexcept {
  const bool was_inside = state().is_inside_run;
  state().is_inside_run = true;
  const std::int64_t total = blocks();
  try {
    for (std::int64_t i = next_++; i < total; i = next_++) {
      function_(context_, i * block_, std::min(count_, (i + 1) * block_));
    }
  } catch (...) {
    next_ = total;
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
  state().is_inside_run = was_inside;
}

void BlockRun::finish() {
  if (failure_) std::rethrow_exception(failure_);
}

bool is_inside_run() {
  return state().is_inside_run;
}

void run_blocks(std::int64_t count, std::int64_t block, RangeFunction function, void* context) {
  if (count <= 0) return;
  block = std::max<std::int64_t>(1, block);
  BlockRun run(count, block, function, context);
  const auto threads = static_cast<int>(std::min<std::int64_t>(num_threads(), run.blocks()));
  if (threads <= 1 || is_inside_run()) {
    // Not marked as a run: with one block only, kernels called inside may still use all threads.
    for (std::int64_t begin = 0; begin < count; begin += block) {
      function(context, begin, std::min(count, begin + block));
    }
    return;
  }
  work_on_threads(run, threads);
  run.finish();
}

}  // namespace internal
}  // namespace moestro::kernels
