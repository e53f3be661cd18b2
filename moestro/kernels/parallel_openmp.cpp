#include "moestro/kernels/internal/block_run.h"

namespace moestro::kernels::internal {

void work_on_threads(BlockRun& run, int threads) {
#pragma omp parallel num_threads(threads) default(none) shared(run)
  run.work();
}

}  // namespace moestro::kernels::internal
