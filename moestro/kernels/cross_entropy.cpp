#include "moestro/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "moestro/core/error.h"
#include "moestro/kernels/clones.h"
#include "moestro/kernels/internal/scratch.h"
#include "moestro/kernels/parallel.h"
#include "moestro/kernels/vector_math.h"

namespace moestro::kernels {
namespace {

constexpr std::int64_t kRowsPerBlock = 4;

/// Sum of e^(x - shift): floats within runs of 256, the runs in double. Keeps the exponentials when
/// kKeeps; `kept` may be x.
template <bool kKeeps>
[[gnu::always_inline]] inline double sum_of_exponentials(std::int64_t n, const float* x,
                                                         float shift, float* kept) {
  constexpr std::int64_t kRun = 256;
  double total = 0.0;
  for (std::int64_t begin = 0; begin < n; begin += kRun) {
    const std::int64_t end = std::min(n, begin + kRun);
    float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = begin; i < end; ++i) {
      const float e = exp_fast(x[i] - shift);
      sum += e;
      if constexpr (kKeeps) kept[i] = e;
    }
    total += static_cast<double>(sum);
  }
  return total;
}

template <class T>
struct Rows {
  std::int64_t vocab;
  const float* logits;
  const std::int64_t* label;
  float scale;
  float* loss;
  T* d_logits;
};

/// Where a row's exponentials wait for their sum.
float* exponentials_of(std::int64_t /*vocab*/, float* d) {
  return d;
}
float* exponentials_of(std::int64_t vocab, bf16* /*d*/) {
  return internal::scratch<float>(internal::Purpose::row_statistics, vocab);
}

template <class T>
[[gnu::always_inline]] inline void row(const Rows<T>& rows, std::int64_t r, float* exponentials) {
  const float* x = rows.logits + r * rows.vocab;
  T* d = rows.d_logits == nullptr ? nullptr : rows.d_logits + r * rows.vocab;
  const std::int64_t label = rows.label[r];
  if (label == kIgnoredLabel) {
    rows.loss[r] = 0.0F;
    if (d != nullptr) std::fill_n(d, rows.vocab, T{});
    return;
  }
  const float peak = largest_of(rows.vocab, x);
  const double below_peak = static_cast<double>(peak) - static_cast<double>(x[label]);
  const double sum = d == nullptr ? sum_of_exponentials<false>(rows.vocab, x, peak, nullptr)
                                  : sum_of_exponentials<true>(rows.vocab, x, peak, exponentials);
  rows.loss[r] = static_cast<float>(std::log(sum) + below_peak);
  if (d == nullptr) return;
  const auto factor = static_cast<float>(static_cast<double>(rows.scale) / sum);
#pragma omp simd
  for (std::int64_t i = 0; i < rows.vocab; ++i) d[i] = from_float<T>(exponentials[i] * factor);
  const double probability = std::exp(-below_peak) / sum;
  d[label] = from_float<T>(static_cast<float>(rows.scale * (probability - 1.0)));
}

template <class T>
[[gnu::always_inline]] inline void block(const Rows<T>& rows, std::int64_t begin,
                                         std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const bool has_gradient = rows.d_logits != nullptr;
    row(rows, r,
        has_gradient ? exponentials_of(rows.vocab, rows.d_logits + r * rows.vocab) : nullptr);
  }
}

MOESTRO_CLONES void run_rows(const Rows<float>& rows, std::int64_t begin, std::int64_t end) {
  block(rows, begin, end);
}
MOESTRO_CLONES void run_rows(const Rows<bf16>& rows, std::int64_t begin, std::int64_t end) {
  block(rows, begin, end);
}

}  // namespace

template <class T>
void cross_entropy_rows(std::int64_t rows, std::int64_t vocab, const float* logits,
                        const std::int64_t* label, float scale, float* loss, T* d_logits) {
  for (std::int64_t r = 0; r < rows; ++r) {
    MOESTRO_CHECK(label[r] == kIgnoredLabel || (label[r] >= 0 && label[r] < vocab),
                  "cross_entropy: label {} of row {} is outside the vocabulary of {}", label[r], r,
                  vocab);
  }
  const Rows<T> all{vocab, logits, label, scale, loss, d_logits};
  parallel_for(rows, kRowsPerBlock,
               [&](std::int64_t begin, std::int64_t end) { run_rows(all, begin, end); });
}

template void cross_entropy_rows(std::int64_t, std::int64_t, const float*, const std::int64_t*,
                                 float, float*, float*);
template void cross_entropy_rows(std::int64_t, std::int64_t, const float*, const std::int64_t*,
                                 float, float*, bf16*);

}  // namespace moestro::kernels
