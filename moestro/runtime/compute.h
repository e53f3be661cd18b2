#pragma once
// How this process computes: threads, compute dtype, allocator.

#include <ATen/core/Tensor.h>

#include "moestro/runtime/run_config.h"

namespace moestro::runtime {

struct Compute {
  int threads = 1;
  at::ScalarType dtype = at::kFloat;
  const char* dtype_name = "f32";
};

/// Sets the number of threads (0: all cores), installs the caching allocator, and resolves the
/// compute dtype: bf16 becomes f32, with one warning, where the CPU cannot multiply it fast.
[[nodiscard]] Compute set_up_compute(Dtype wanted, int threads);

}  // namespace moestro::runtime
