#include "moestro/kernels/rope.h"

#include "moestro/core/error.h"
#include "moestro/kernels/clones.h"
#include "moestro/kernels/parallel.h"

namespace moestro::kernels {
namespace {

constexpr std::int64_t kRowsPerBlock = 64;

template <class T>
[[gnu::always_inline]] inline void rotate_halves(std::int64_t half, const float* cos,
                                                 const float* sin, float sign, T* head) {
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = to_float(head[i]);
    const float b = to_float(head[i + half]);
    const float s = sign * sin[i];
    head[i] = from_float<T>(a * cos[i] - b * s);
    head[i + half] = from_float<T>(b * cos[i] + a * s);
  }
}

template <class T>
[[gnu::always_inline]] inline void rotate_pairs(std::int64_t half, const float* cos,
                                                const float* sin, float sign, T* head) {
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = to_float(head[2 * i]);
    const float b = to_float(head[2 * i + 1]);
    const float s = sign * sin[i];
    head[2 * i] = from_float<T>(a * cos[i] - b * s);
    head[2 * i + 1] = from_float<T>(b * cos[i] + a * s);
  }
}

template <class T>
[[gnu::always_inline]] inline void rotate_block(const RopeShape& s, std::int64_t begin,
                                                std::int64_t end, T* data, const float* cos,
                                                const float* sin, float sign) {
  for (std::int64_t r = begin; r < end; ++r) {
    const std::int64_t table = (s.first + r) % s.seq * s.half;
    for (std::int64_t h = 0; h < s.heads; ++h) {
      T* head = data + r * s.stride + h * s.head_dim;
      if (s.interleaved) {
        rotate_pairs(s.half, cos + table, sin + table, sign, head);
      } else {
        rotate_halves(s.half, cos + table, sin + table, sign, head);
      }
    }
  }
}

MOESTRO_CLONES void rotate_rows(const RopeShape& s, std::int64_t begin, std::int64_t end,
                                float* data, const float* cos, const float* sin, float sign) {
  rotate_block(s, begin, end, data, cos, sin, sign);
}
MOESTRO_CLONES void rotate_rows(const RopeShape& s, std::int64_t begin, std::int64_t end,
                                bf16* data, const float* cos, const float* sin, float sign) {
  rotate_block(s, begin, end, data, cos, sin, sign);
}

}  // namespace

template <class T>
void rope(const RopeShape& shape, T* data, const float* cos, const float* sin, bool inverse) {
  MOESTRO_CHECK(2 * shape.half <= shape.head_dim && (shape.rows == 0 || shape.seq > 0),
                "rope: {} of {} dims rotate, seq {}", 2 * shape.half, shape.head_dim, shape.seq);
  const float sign = inverse ? -1.0F : 1.0F;
  parallel_for(shape.rows, kRowsPerBlock, [&](std::int64_t begin, std::int64_t end) {
    rotate_rows(shape, begin, end, data, cos, sin, sign);
  });
}

template void rope(const RopeShape&, float*, const float*, const float*, bool);
template void rope(const RopeShape&, bf16*, const float*, const float*, bool);

}  // namespace moestro::kernels
