#include "moestro/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "moestro/core/error.h"
#include "moestro/kernels/clones.h"
#include "moestro/kernels/parallel.h"
#include "moestro/kernels/vector_math.h"

namespace moestro::kernels {
namespace {

constexpr std::int64_t kRowsPerBlock = 4;

/// Sum of e^(x - shift): floats within runs of 256, the runs in double.
[[gnu::always_inline]] inline double sum_of_exponentials(std::int64_t n, const float* x,
                                                         float shift) {
  constexpr std::int64_t kRun = 256;
  double total = 0.0;
  for (std::int64_t begin = 0; begin < n; begin += kRun) {
    const std::int64_t end = std::min(n, begin + kRun);
    float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = begin; i < end; ++i) sum += exp_fast(x[i] - shift);
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

template <class T>
[[gnu::always_inline]] inline void gradient_row(std::int64_t vocab, const float* x, float peak,
                                                float factor, T* d) {
#pragma omp simd
  for (std::int64_t i = 0; i < vocab; ++i) d[i] = from_float<T>(exp_fast(x[i] - peak) * factor);
}

template <class T>
[[gnu::always_inline]] inline void row(const Rows<T>& rows, std::int64_t r) {
  const float* x = rows.logits + r * rows.vocab;
  T* d = rows.d_logits == nullptr ? nullptr : rows.d_logits + r * rows.vocab;
  const std::int64_t label = rows.label[r];
  if (label == kIgnoredLabel) {
    rows.loss[r] = 0.0F;
    if (d != nullptr) std::fill_n(d, rows.vocab, T{});
    return;
  }
  const float peak = largest_of(rows.vocab, x);
  const double sum = sum_of_exponentials(rows.vocab, x, peak);
  const double below_peak = static_cast<double>(peak) - static_cast<double>(x[label]);
  rows.loss[r] = static_cast<float>(std::log(sum) + below_peak);
  if (d == nullptr) return;
  // Before the row is overwritten, in case d is x.
  const double probability = std::exp(-below_peak) / sum;
  gradient_row(rows.vocab, x, peak, static_cast<float>(static_cast<double>(rows.scale) / sum), d);
  d[label] = from_float<T>(static_cast<float>(rows.scale * (probability - 1.0)));
}

MOESTRO_CLONES void run_rows(const Rows<float>& rows, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) row(rows, r);
}
MOESTRO_CLONES void run_rows(const Rows<bf16>& rows, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) row(rows, r);
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
