// For builds without OpenMP: threads are started anew for every run. Slower, but nothing hides what
// they share from the thread sanitizer.
#include <thread>
#include <vector>

#include "moestro/kernels/internal/block_run.h"

namespace moestro::kernels::internal {

void work_on_threads(BlockRun& run, int threads) {
  std::vector<std::jthread> others;
  others.reserve(static_cast<std::size_t>(threads - 1));
  for (int i = 1; i < threads; ++i) others.emplace_back([&run] { run.work(); });
  run.work();
}

}  // namespace moestro::kernels::internal
