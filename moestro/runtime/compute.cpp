#include "moestro/runtime/compute.h"

#include <ATen/Parallel.h>

#include "moestro/core/log.h"
#include "moestro/kernels/gemm.h"
#include "moestro/kernels/parallel.h"
#include "moestro/layers/torch_setup.h"

namespace moestro::runtime {

Compute set_up_compute(Dtype wanted, int threads) {
  layers::set_up_torch();
  kernels::set_num_threads(threads);  // 0 too: an earlier run may have set another number
  if (threads > kernels::available_cores()) {
    log_warning(
        "train.threads = {} is more than the {} cores this process may use; 0 takes them all",
        threads, kernels::available_cores());
  }
  Compute compute;
  compute.threads = kernels::num_threads();
  // Our kernels bring their own threads. ATen's, of OpenMP, would spin between its few small
  // operations and take the cores away from them.
  at::set_num_threads(1);
  if (wanted == Dtype::bf16) {
    if (kernels::has_fast_bf16()) {
      compute.dtype = at::kBFloat16;
      compute.dtype_name = "bf16";
    } else {
      log_warning("train.dtype = \"bf16\": this CPU ({}) has no bf16 products; computing in f32",
                  kernels::gemm_instruction_set());
    }
  }
  return compute;
}

}  // namespace moestro::runtime
