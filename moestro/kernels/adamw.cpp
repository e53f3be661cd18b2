#include "moestro/kernels/adamw.h"

#include <algorithm>
#include <cmath>

#include "moestro/core/error.h"
#include "moestro/kernels/clones.h"
#include "moestro/kernels/internal/convert.h"
#include "moestro/kernels/internal/scratch.h"
#include "moestro/kernels/parallel.h"

namespace moestro::kernels {
namespace {

constexpr std::int64_t kElementsPerBlock = 16384;

/// What one step multiplies by, worked out once in double as torch does.
struct Factors {
  float decay;  // 1 - lr * weight_decay
  float gradient_scale;
  float to_gradient;  // 1 - beta1
  float beta2;
  float to_square;       // 1 - beta2
  float inverse_root_v;  // 1 / sqrt(1 - beta2^step)
  float step_size;       // lr / (1 - beta1^step)
  float epsilon;
};

Factors factors_of(const AdamwStep& s) {
  const double lr = s.lr;
  const double beta1 = s.beta1;
  const double beta2 = s.beta2;
  const auto step = static_cast<double>(s.step);
  return {static_cast<float>(1.0 - lr * s.weight_decay),
          s.gradient_scale,
          static_cast<float>(1.0 - beta1),
          s.beta2,
          static_cast<float>(1.0 - beta2),
          static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(beta2, step))),
          static_cast<float>(lr / (1.0 - std::pow(beta1, step))),
          s.epsilon};
}

struct State {
  float* w;
  const float* g;
  float* m;
  float* v;
  bf16* compute;
};

/// Both structs by value: stores through a reference's neighbours would force them to be re-read.
template <bool kRounds>
[[gnu::always_inline]] inline void update_range(const Factors f, const State s, std::int64_t begin,
                                                std::int64_t end) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    const float g = s.g[i] * f.gradient_scale;
    const float m = s.m[i] + f.to_gradient * (g - s.m[i]);
    const float v = f.beta2 * s.v[i] + f.to_square * g * g;
    const float w =
        s.w[i] * f.decay - f.step_size * m / (std::sqrt(v) * f.inverse_root_v + f.epsilon);
    s.m[i] = m;
    s.v[i] = v;
    s.w[i] = w;
    if constexpr (kRounds) s.compute[i] = from_float<bf16>(w);
  }
}

MOESTRO_CLONES void update(const Factors& f, const State& s, std::int64_t begin, std::int64_t end) {
  if (s.compute == nullptr) {
    update_range<false>(f, s, begin, end);
  } else {
    update_range<true>(f, s, begin, end);
  }
}

/// Two sums run side by side, since one addition waits for the last.
MOESTRO_CLONES double sum_of_squares_block(std::int64_t n, const float* x) {
  const std::int64_t half = n / 2;
  const float* upper = x + half;
  double first = 0.0;
  double second = 0.0;
#pragma omp simd reduction(+ : first, second)
  for (std::int64_t i = 0; i < half; ++i) {
    first += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    second += static_cast<double>(upper[i]) * static_cast<double>(upper[i]);
  }
  const double last = n % 2 == 0 ? 0.0 : static_cast<double>(x[n - 1]);
  return first + second + last * last;
}

}  // namespace

void adamw(const AdamwStep& step, std::int64_t n, float* w, const float* g, float* m, float* v,
           bf16* compute) {
  MOESTRO_CHECK(step.step >= 1, "adamw: steps count from 1, got {}", step.step);
  const Factors factors = factors_of(step);
  const State state{w, g, m, v, compute};
  parallel_for(n, kElementsPerBlock,
               [&](std::int64_t begin, std::int64_t end) { update(factors, state, begin, end); });
}

double sum_of_squares(std::int64_t n, const float* x) {
  const std::int64_t blocks = (n + kElementsPerBlock - 1) / kElementsPerBlock;
  auto* partial = internal::scratch<double>(internal::Purpose::partial_sums, blocks);
  parallel_for(n, kElementsPerBlock, [&](std::int64_t begin, std::int64_t end) {
    partial[begin / kElementsPerBlock] = sum_of_squares_block(end - begin, x + begin);
  });
  double total = 0.0;
  for (std::int64_t b = 0; b < blocks; ++b) total += partial[b];
  return total;
}

void to_bf16(std::int64_t n, const float* x, bf16* out) {
  parallel_for(n, kElementsPerBlock, [&](std::int64_t begin, std::int64_t end) {
    internal::convert(end - begin, x + begin, out + begin);
  });
}

}  // namespace moestro::kernels
