#include "moestro/kernels/rms_norm.h"

#include <algorithm>
#include <cmath>

#include "moestro/core/error.h"
#include "moestro/kernels/clones.h"
#include "moestro/kernels/internal/scratch.h"
#include "moestro/kernels/parallel.h"

namespace moestro::kernels {
namespace {

constexpr std::int64_t kRowsPerBlock = 64;  // also fixes the order in which d_weight is summed

template <class In, class Out>
[[gnu::always_inline]] inline void forward_vector(std::int64_t width, float epsilon, const In* x,
                                                  const float* weight, Out* y, float* inverse) {
  float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < width; ++i) sum += to_float(x[i]) * to_float(x[i]);
  const float r = 1.0F / std::sqrt(sum / static_cast<float>(width) + epsilon);
  *inverse = r;
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) y[i] = from_float<Out>(to_float(x[i]) * r * weight[i]);
}

template <class In, class Out>
[[gnu::always_inline]] inline void forward_block(const NormShape& s, std::int64_t begin,
                                                 std::int64_t end, const In* x, const float* weight,
                                                 Out* y, float* inverse_rms) {
  for (std::int64_t r = begin; r < end; ++r) {
    for (std::int64_t g = 0; g < s.groups; ++g) {
      float inverse = 0.0F;
      forward_vector(s.width, s.epsilon, x + r * s.in_stride + g * s.width, weight,
                     y + r * s.out_stride + g * s.width, &inverse);
      if (inverse_rms != nullptr) inverse_rms[r * s.groups + g] = inverse;
    }
  }
}

struct NoWeightGradient {
  [[gnu::always_inline]] void add(std::int64_t /*i*/, float /*value*/) const {}
};

struct WeightGradient {
  float* sum;
  [[gnu::always_inline]] void add(std::int64_t i, float value) const { sum[i] += value; }
};

/// With n = x * inverse: dx = inverse * (dy * w - n * mean(dy * w * n)); d_weight += dy * n.
/// dx may be dy: each element is read before it is written, in loops that keep that order.
template <class In, class Out, class Gradient>
[[gnu::always_inline]] inline void backward_vector(std::int64_t width, const In* x,
                                                   const float* weight, float inverse,
                                                   const Out* dy, In* dx,
                                                   const Gradient& gradient) {
  float dot = 0.0F;
#pragma omp simd reduction(+ : dot)
  for (std::int64_t i = 0; i < width; ++i) dot += to_float(dy[i]) * weight[i] * to_float(x[i]);
  const float pull = dot * inverse * inverse / static_cast<float>(width);
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) {
    const float value = to_float(x[i]);
    const float slope = to_float(dy[i]);
    dx[i] = from_float<In>(inverse * (slope * weight[i] - value * pull));
    gradient.add(i, slope * value * inverse);
  }
}

template <class In, class Out>
struct Backward {
  NormShape shape;
  const In* x;
  const float* weight;
  const float* inverse_rms;
  const Out* dy;
  In* dx;
};

template <class In, class Out, class Gradient>
[[gnu::always_inline]] inline void backward_block(const Backward<In, Out>& b, std::int64_t begin,
                                                  std::int64_t end, const Gradient& gradient) {
  const NormShape& s = b.shape;
  for (std::int64_t r = begin; r < end; ++r) {
    for (std::int64_t g = 0; g < s.groups; ++g) {
      const std::int64_t in = r * s.in_stride + g * s.width;
      backward_vector(s.width, b.x + in, b.weight, b.inverse_rms[r * s.groups + g],
                      b.dy + r * s.out_stride + g * s.width, b.dx + in, gradient);
    }
  }
}

template <class In, class Out>
[[gnu::always_inline]] inline void backward_rows(const Backward<In, Out>& b, std::int64_t begin,
                                                 std::int64_t end, float* weight_sum) {
  if (weight_sum == nullptr) {
    backward_block(b, begin, end, NoWeightGradient{});
  } else {
    std::fill_n(weight_sum, b.shape.width, 0.0F);
    backward_block(b, begin, end, WeightGradient{weight_sum});
  }
}

// One clone set per pair of types: the attribute does not work on templates.
MOESTRO_CLONES void forward_rows(const NormShape& s, std::int64_t begin, std::int64_t end,
                                 const float* x, const float* weight, float* y, float* inverse) {
  forward_block(s, begin, end, x, weight, y, inverse);
}
MOESTRO_CLONES void forward_rows(const NormShape& s, std::int64_t begin, std::int64_t end,
                                 const float* x, const float* weight, bf16* y, float* inverse) {
  forward_block(s, begin, end, x, weight, y, inverse);
}
MOESTRO_CLONES void forward_rows(const NormShape& s, std::int64_t begin, std::int64_t end,
                                 const bf16* x, const float* weight, float* y, float* inverse) {
  forward_block(s, begin, end, x, weight, y, inverse);
}
MOESTRO_CLONES void forward_rows(const NormShape& s, std::int64_t begin, std::int64_t end,
                                 const bf16* x, const float* weight, bf16* y, float* inverse) {
  forward_block(s, begin, end, x, weight, y, inverse);
}
MOESTRO_CLONES void run_backward(const Backward<float, float>& b, std::int64_t begin,
                                 std::int64_t end, float* weight_sum) {
  backward_rows(b, begin, end, weight_sum);
}
MOESTRO_CLONES void run_backward(const Backward<float, bf16>& b, std::int64_t begin,
                                 std::int64_t end, float* weight_sum) {
  backward_rows(b, begin, end, weight_sum);
}
MOESTRO_CLONES void run_backward(const Backward<bf16, float>& b, std::int64_t begin,
                                 std::int64_t end, float* weight_sum) {
  backward_rows(b, begin, end, weight_sum);
}
MOESTRO_CLONES void run_backward(const Backward<bf16, bf16>& b, std::int64_t begin,
                                 std::int64_t end, float* weight_sum) {
  backward_rows(b, begin, end, weight_sum);
}

MOESTRO_CLONES void add_partial_sums(std::int64_t blocks, std::int64_t width, const float* partial,
                                     float* sum) {
  for (std::int64_t b = 0; b < blocks; ++b) {
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) sum[i] += partial[b * width + i];
  }
}

}  // namespace

template <class In, class Out>
void rms_norm_forward(const NormShape& shape, const In* x, const float* weight, Out* y,
                      float* inverse_rms) {
  parallel_for(shape.rows, kRowsPerBlock, [&](std::int64_t begin, std::int64_t end) {
    forward_rows(shape, begin, end, x, weight, y, inverse_rms);
  });
}

template <class In, class Out>
void rms_norm_backward(const NormShape& shape, const In* x, const float* weight,
                       const float* inverse_rms, const Out* dy, In* dx, float* d_weight) {
  const Backward<In, Out> backward{shape, x, weight, inverse_rms, dy, dx};
  const std::int64_t blocks = (shape.rows + kRowsPerBlock - 1) / kRowsPerBlock;
  float* partial = d_weight == nullptr ? nullptr
                                       : internal::scratch<float>(internal::Purpose::partial_sums,
                                                                  blocks * shape.width);
  parallel_for(shape.rows, kRowsPerBlock, [&](std::int64_t begin, std::int64_t end) {
    float* sum = partial == nullptr ? nullptr : partial + begin / kRowsPerBlock * shape.width;
    run_backward(backward, begin, end, sum);
  });
  if (d_weight != nullptr) add_partial_sums(blocks, shape.width, partial, d_weight);
}

template void rms_norm_forward(const NormShape&, const float*, const float*, float*, float*);
template void rms_norm_forward(const NormShape&, const float*, const float*, bf16*, float*);
template void rms_norm_forward(const NormShape&, const bf16*, const float*, float*, float*);
template void rms_norm_forward(const NormShape&, const bf16*, const float*, bf16*, float*);
template void rms_norm_backward(const NormShape&, const float*, const float*, const float*,
                                const float*, float*, float*);
template void rms_norm_backward(const NormShape&, const float*, const float*, const float*,
                                const bf16*, float*, float*);
template void rms_norm_backward(const NormShape&, const bf16*, const float*, const float*,
                                const float*, bf16*, float*);
template void rms_norm_backward(const NormShape&, const bf16*, const float*, const float*,
                                const bf16*, bf16*, float*);

}  // namespace moestro::kernels
