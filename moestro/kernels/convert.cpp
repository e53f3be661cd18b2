#include "moestro/kernels/internal/convert.h"

#include <algorithm>

#include "moestro/kernels/clones.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

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

MOESTRO_CLONES void add(std::int64_t n, const float* x, float* out) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] += x[i];
}

#if defined(__SSE2__)

void stream(std::int64_t n, const float* x, float* out) {
  constexpr std::int64_t kLanes = 4;
  const auto misaligned =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(out) / 4 % kLanes);
  std::int64_t i = std::min(n, (kLanes - misaligned) % kLanes);
  std::copy_n(x, i, out);
  for (; i + kLanes <= n; i += kLanes) _mm_stream_ps(out + i, _mm_loadu_ps(x + i));
  std::copy_n(x + i, n - i, out + i);
}

void finish_streaming() {
  _mm_sfence();
}

#else

void stream(std::int64_t n, const float* x, float* out) {
  std::copy_n(x, n, out);
}

void finish_streaming() {}

#endif

}  // namespace moestro::kernels::internal
