#include "moestro/kernels/internal/convert.h"

#include <algorithm>

#include "moestro/kernels/clones.h"

namespace moestro::kernels::internal {

MOESTRO_CLONES void convert(std::int64_t n, const float* x, bf16* out) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = from_float<bf16>(x[i]);
}

MOESTRO_CLONES void convert(std::int64_t n, const bf16* x, float* out) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = to_float(x[i]);
}

void convert(std::int64_t n, const float* x, float* out) {
  std::copy_n(x, n, out);
}

}  // namespace moestro::kernels::internal
