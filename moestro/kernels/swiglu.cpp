#include "moestro/kernels/swiglu.h"

#include "moestro/kernels/clones.h"
#include "moestro/kernels/internal/bf16_pairs.h"
#include "moestro/kernels/parallel.h"
#include "moestro/kernels/vector_math.h"

namespace moestro::kernels {
namespace {

using internal::FloatPair;
using internal::load_pair;
using internal::store_pair;

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

/// One element of a, times d_a and times its row's weight, and its gradients.
struct Element {
  float d_gate, d_up, a_times_d_a, weighted_a;
};

[[gnu::always_inline]] inline Element differentiate(float gate, float up, float d_a,
                                                    float row_weight) {
  const float s = sigmoid_fast(gate);
  const float silu = gate * s;
  const float a = silu * up;
  const float weighted_slope = d_a * row_weight;
  return {.d_gate = weighted_slope * up * (s + silu * (1.0F - s)),
          .d_up = weighted_slope * silu,
          .a_times_d_a = a * d_a,
          .weighted_a = a * row_weight};
}

/// Gradient of one row; returns <a, d_a>.
template <bool kWritesA>
[[gnu::always_inline]] inline float backward_row(std::int64_t width, const float* gate,
                                                 const float* d_a, float row_weight, float* d_gate,
                                                 float* weighted_a) {
  float dot = 0.0F;
#pragma omp simd reduction(+ : dot)
  for (std::int64_t i = 0; i < width; ++i) {
    const Element e = differentiate(gate[i], gate[width + i], d_a[i], row_weight);
    dot += e.a_times_d_a;
    d_gate[i] = e.d_gate;
    d_gate[width + i] = e.d_up;
    if constexpr (kWritesA) weighted_a[i] = e.weighted_a;
  }
  return dot;
}

template <bool kWritesA>
[[gnu::always_inline]] inline float backward_row(std::int64_t width, const bf16* gate,
                                                 const bf16* d_a, float row_weight, bf16* d_gate,
                                                 bf16* weighted_a) {
  float dot = 0.0F;
#pragma omp simd reduction(+ : dot)
  for (std::int64_t i = 0; i < width / 2; ++i) {
    const FloatPair g = load_pair(gate + 2 * i);
    const FloatPair u = load_pair(gate + width + 2 * i);
    const FloatPair d = load_pair(d_a + 2 * i);
    const Element e1 = differentiate(g.first, u.first, d.first, row_weight);
    const Element e2 = differentiate(g.second, u.second, d.second, row_weight);
    dot += e1.a_times_d_a + e2.a_times_d_a;
    store_pair({e1.d_gate, e2.d_gate}, d_gate + 2 * i);
    store_pair({e1.d_up, e2.d_up}, d_gate + width + 2 * i);
    if constexpr (kWritesA) store_pair({e1.weighted_a, e2.weighted_a}, weighted_a + 2 * i);
  }
  if (width % 2 != 0) {
    const std::int64_t i = width - 1;
    const Element e =
        differentiate(to_float(gate[i]), to_float(gate[width + i]), to_float(d_a[i]), row_weight);
    dot += e.a_times_d_a;
    d_gate[i] = from_float<bf16>(e.d_gate);
    d_gate[width + i] = from_float<bf16>(e.d_up);
    if constexpr (kWritesA) weighted_a[i] = from_float<bf16>(e.weighted_a);
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
            ? backward_row<false>(b.width, gate, d_a, weight, d_gate, b.weighted_a)
            : backward_row<true>(b.width, gate, d_a, weight, d_gate, b.weighted_a + r * b.width);
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
