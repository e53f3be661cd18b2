#include "moestro/kernels/swiglu.h"

#include "moestro/core/error.h"
#include "moestro/kernels/clones.h"
#include "moestro/kernels/parallel.h"
#include "moestro/kernels/vector_math.h"

namespace moestro::kernels {
namespace {

constexpr std::int64_t kRowsPerBlock = 32;

template <class T>
[[gnu::always_inline]] inline void forward_row(std::int64_t width, const T* gate_up, T* a) {
  const T* gate = gate_up;
  const T* up = gate_up + width;
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) {
    const float g = to_float(gate[i]);
    a[i] = from_float<T>(g * sigmoid_fast(g) * to_float(up[i]));
  }
}

template <class T>
struct Backward {
  std::int64_t width;
  const T* gate_up;
  const T* d_a;
  const float* row_weight;
  T* d_gate_up;
  T* weighted_a;
  float* d_row_weight;
};

/// Gradient of one row; returns <a, d_a>. Writes row_weight * a when `weighted_a` is not null.
template <bool kWritesA, class T>
[[gnu::always_inline]] inline float backward_row(std::int64_t width, const T* gate, const T* d_a,
                                                 float row_weight, T* d_gate, T* weighted_a) {
  float dot = 0.0F;
#pragma omp simd reduction(+ : dot)
  for (std::int64_t i = 0; i < width; ++i) {
    const float g = to_float(gate[i]);
    const float up = to_float(gate[width + i]);
    const float slope = to_float(d_a[i]);
    const float s = sigmoid_fast(g);
    const float silu = g * s;
    const float a = silu * up;
    const float weighted_slope = slope * row_weight;
    dot += a * slope;
    d_gate[i] = from_float<T>(weighted_slope * up * (s + silu * (1.0F - s)));
    d_gate[width + i] = from_float<T>(weighted_slope * silu);
    if constexpr (kWritesA) weighted_a[i] = from_float<T>(a * row_weight);
  }
  return dot;
}

template <class T>
[[gnu::always_inline]] inline void backward_block(const Backward<T>& b, std::int64_t begin,
                                                  std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const float weight = b.row_weight == nullptr ? 1.0F : b.row_weight[r];
    const T* gate = b.gate_up + r * 2 * b.width;
    const T* d_a = b.d_a + r * b.width;
    T* d_gate = b.d_gate_up + r * 2 * b.width;
    const float dot =
        b.weighted_a == nullptr
            ? backward_row<false, T>(b.width, gate, d_a, weight, d_gate, nullptr)
            : backward_row<true, T>(b.width, gate, d_a, weight, d_gate, b.weighted_a + r * b.width);
    if (b.d_row_weight != nullptr) b.d_row_weight[r] = dot;
  }
}

MOESTRO_CLONES void forward_rows(std::int64_t begin, std::int64_t end, std::int64_t width,
                                 const float* gate_up, float* a) {
  for (std::int64_t r = begin; r < end; ++r) {
    forward_row(width, gate_up + r * 2 * width, a + r * width);
  }
}
MOESTRO_CLONES void forward_rows(std::int64_t begin, std::int64_t end, std::int64_t width,
                                 const bf16* gate_up, bf16* a) {
  for (std::int64_t r = begin; r < end; ++r) {
    forward_row(width, gate_up + r * 2 * width, a + r * width);
  }
}
MOESTRO_CLONES void backward_rows(const Backward<float>& b, std::int64_t begin, std::int64_t end) {
  backward_block(b, begin, end);
}
MOESTRO_CLONES void backward_rows(const Backward<bf16>& b, std::int64_t begin, std::int64_t end) {
  backward_block(b, begin, end);
}

}  // namespace

template <class T>
void swiglu_forward(std::int64_t rows, std::int64_t width, const T* gate_up, T* a) {
  parallel_for(rows, kRowsPerBlock, [&](std::int64_t begin, std::int64_t end) {
    forward_rows(begin, end, width, gate_up, a);
  });
}

template <class T>
void swiglu_backward(std::int64_t rows, std::int64_t width, const T* gate_up, const T* d_a,
                     const float* row_weight, T* d_gate_up, T* weighted_a, float* d_row_weight) {
  const Backward<T> backward{width, gate_up, d_a, row_weight, d_gate_up, weighted_a, d_row_weight};
  parallel_for(rows, kRowsPerBlock,
               [&](std::int64_t begin, std::int64_t end) { backward_rows(backward, begin, end); });
}

template void swiglu_forward(std::int64_t, std::int64_t, const float*, float*);
template void swiglu_forward(std::int64_t, std::int64_t, const bf16*, bf16*);
template void swiglu_backward(std::int64_t, std::int64_t, const float*, const float*, const float*,
                              float*, float*, float*);
template void swiglu_backward(std::int64_t, std::int64_t, const bf16*, const bf16*, const float*,
                              bf16*, bf16*, float*);

}  // namespace moestro::kernels
