#include "moestro/kernels/internal/attention_block.h"

#include "moestro/kernels/clones.h"

namespace moestro::kernels::internal {
namespace {

// Measured at head_dim 64: stacks of 256 rows amortise packing keys and values; more queries per
// block would compute more invisible scores beside the diagonal; scores (f32), probabilities and
// operands of a block fit half a second-level cache of 1 MiB.
constexpr std::int64_t kStackedRows = 256;
constexpr std::int64_t kMostQueries = 128;
constexpr std::int64_t kLeastQueries = 16;
constexpr std::int64_t kMostScores = std::int64_t{1} << 16;
constexpr std::int64_t kMostKeys = 512;
constexpr std::int64_t kLeastKeys = 64;

template <class T>
[[gnu::always_inline]] inline void write_rows(const HeadRows<T>& out, std::int64_t query,
                                              std::int64_t rows, std::int64_t width,
                                              const float* sums, const float* total) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const float inverse = 1.0F / total[i];
    const float* from = sums + i * width;
    T* to = out.row(query + i);
    out.prefetch(query + i + kRowsAhead);
#pragma omp simd
    for (std::int64_t j = 0; j < out.head_dim; ++j) to[j] = from_float<T>(from[j] * inverse);
  }
}

template <class T>
[[gnu::always_inline]] inline void row_dots(std::int64_t rows, const HeadRows<const T>& out,
                                            const HeadRows<const T>& d_out, std::int64_t begin,
                                            float* dot) {
  const std::int64_t width = out.head_dim;
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* a = out.row(begin + i);
    const T* b = d_out.row(begin + i);
    out.prefetch(begin + i + kRowsAhead);
    float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < width; ++j) sum += to_float(a[j]) * to_float(b[j]);
    dot[i] = sum;
  }
}

}  // namespace

MOESTRO_CLONES void rescale_rows(std::int64_t rows, std::int64_t width, const float* factor,
                                 float* sums) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const float f = factor[i];
    if (f == 1.0F) continue;
#pragma omp simd
    for (std::int64_t j = 0; j < width; ++j) sums[i * width + j] *= f;
  }
}

MOESTRO_CLONES void write_out(const HeadRows<float>& out, std::int64_t query, std::int64_t rows,
                              std::int64_t width, const float* sums, const float* total) {
  write_rows(out, query, rows, width, sums, total);
}
MOESTRO_CLONES void write_out(const HeadRows<bf16>& out, std::int64_t query, std::int64_t rows,
                              std::int64_t width, const float* sums, const float* total) {
  write_rows(out, query, rows, width, sums, total);
}

MOESTRO_CLONES void dots(std::int64_t rows, const HeadRows<const float>& out,
                         const HeadRows<const float>& d_out, std::int64_t begin, float* dot) {
  row_dots(rows, out, d_out, begin, dot);
}
MOESTRO_CLONES void dots(std::int64_t rows, const HeadRows<const bf16>& out,
                         const HeadRows<const bf16>& d_out, std::int64_t begin, float* dot) {
  row_dots(rows, out, d_out, begin, dot);
}

BlockSizes block_sizes(const AttentionShape& shape) {
  BlockSizes sizes;
  sizes.group = shape.heads / shape.kv_heads;
  sizes.queries = std::clamp(kStackedRows / sizes.group, kLeastQueries, kMostQueries);
  sizes.keys = std::clamp(kMostScores / sizes.rows(), kLeastKeys, kMostKeys);
  return sizes;
}

}  // namespace moestro::kernels::internal
