#include "moestro/kernels/swiglu.h"

#include <algorithm>

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

/// A run of elements in f32: what it reads and what it makes.
struct Run {
  const float* gate;
  const float* up;
  const float* d_a;
  float* d_gate;
  float* d_up;
  float* weighted_a;
};

/// Gradient of n elements of one row; returns <a, d_a>.
template <bool kWritesA>
[[gnu::always_inline]] inline float backward_run(std::int64_t n, float row_weight, const Run run) {
  float dot = 0.0F;
#pragma omp simd reduction(+ : dot)
  for (std::int64_t i = 0; i < n; ++i) {
    const float s = sigmoid_fast(run.gate[i]);
    const float silu = run.gate[i] * s;
    const float a = silu * run.up[i];
    const float weighted_slope = run.d_a[i] * row_weight;
    dot += a * run.d_a[i];
    run.d_gate[i] = weighted_slope * run.up[i] * (s + silu * (1.0F - s));
    run.d_up[i] = weighted_slope * silu;
    if constexpr (kWritesA) run.weighted_a[i] = a * row_weight;
  }
  return dot;
}

/// Gradient of one row; returns <a, d_a>. Writes row_weight * a when `weighted_a` is not null.
[[gnu::always_inline]] inline float backward_row(std::int64_t width, const float* gate,
                                                 const float* d_a, float row_weight, float* d_gate,
                                                 float* weighted_a) {
  const Run run{gate, gate + width, d_a, d_gate, d_gate + width, weighted_a};
  return weighted_a == nullptr ? backward_run<false>(width, row_weight, run)
                               : backward_run<true>(width, row_weight, run);
}

template <class From, class To>
[[gnu::always_inline]] inline void convert_run(std::int64_t n, const From* from, To* to) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) to[i] = from_float<To>(to_float(from[i]));
}

/// The same in bf16, by way of f32 runs in the first-level cache: loads and stores of half the
/// width beside the exponential would leave half of its lanes empty.
[[gnu::always_inline]] inline float backward_row(std::int64_t width, const bf16* gate,
                                                 const bf16* d_a, float row_weight, bf16* d_gate,
                                                 bf16* weighted_a) {
  constexpr std::int64_t kRun = 256;
  float in[3][kRun];
  float out[3][kRun];
  float dot = 0.0F;
  for (std::int64_t begin = 0; begin < width; begin += kRun) {
    const std::int64_t n = std::min(kRun, width - begin);
    convert_run(n, gate + begin, in[0]);
    convert_run(n, gate + width + begin, in[1]);
    convert_run(n, d_a + begin, in[2]);
    dot += backward_run<true>(n, row_weight, {in[0], in[1], in[2], out[0], out[1], out[2]});
    convert_run(n, out[0], d_gate + begin);
    convert_run(n, out[1], d_gate + width + begin);
    if (weighted_a != nullptr) convert_run(n, out[2], weighted_a + begin);
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
    T* weighted_a = b.weighted_a == nullptr ? nullptr : b.weighted_a + r * b.width;
    const float dot = backward_row(b.width, gate, d_a, weight, d_gate, weighted_a);
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
