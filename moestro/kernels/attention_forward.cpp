#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "moestro/core/error.h"
#include "moestro/kernels/attention.h"
#include "moestro/kernels/clones.h"
#include "moestro/kernels/internal/attention_block.h"
#include "moestro/kernels/internal/scratch.h"
#include "moestro/kernels/parallel.h"
#include "moestro/kernels/vector_math.h"

namespace moestro::kernels {
namespace internal {

void check_attention(const AttentionShape& s) {
  MOESTRO_CHECK(s.batch >= 0 && s.seq >= 0 && s.head_dim > 0 && s.heads > 0 && s.kv_heads > 0 &&
                    s.heads % s.kv_heads == 0 && s.window >= 0,
                "attention: batch {}, seq {}, {} heads, {} kv heads, head_dim {}, window {}",
                s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, s.window);
}

}  // namespace internal

namespace {

using internal::BlockRange;
using internal::kKeyBlock;
using internal::kQueryBlock;
using internal::Purpose;
using internal::scratch;

constexpr float kNothingSeen = -std::numeric_limits<float>::infinity();

/// Running softmax of a block of queries.
struct RowState {
  float* peak;     // largest scaled score so far
  float* sum;      // sum of e^(score - peak)
  float* rescale;  // what the last block makes of earlier sums: e^(old peak - new peak)
};

/// Scores of one row to probabilities e^(score * scale - peak); zeros outside [first, last).
template <class T>
[[gnu::always_inline]] inline float exponentiate(std::int64_t keys, std::int64_t first,
                                                 std::int64_t last, float scale, float peak,
                                                 const float* scores, T* probabilities) {
  float sum = 0.0F;
  std::fill_n(probabilities, first, T{});
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = first; j < last; ++j) {
    const float p = exp_fast(scores[j] * scale - peak);
    sum += p;
    probabilities[j] = from_float<T>(p);
  }
  std::fill_n(probabilities + last, keys - last, T{});
  return sum;
}

/// One row's step of the online softmax. A row without a visible key in this block stays as it was.
template <class T>
[[gnu::always_inline]] inline void update_row(const BlockRange& range, std::int64_t i, float scale,
                                              const float* scores, T* probabilities,
                                              const RowState& state) {
  const std::int64_t first = range.first(i);
  const std::int64_t last = range.last(i);
  state.rescale[i] = 1.0F;
  if (first >= last) {
    std::fill_n(probabilities, range.keys, T{});
    return;
  }
  const float best = largest_of(last - first, scores + first);
  const float peak = larger(best * scale, state.peak[i]);
  state.rescale[i] = exp_fast(state.peak[i] - peak);
  const float sum = exponentiate(range.keys, first, last, scale, peak, scores, probabilities);
  state.sum[i] = state.sum[i] * state.rescale[i] + sum;
  state.peak[i] = peak;
}

template <class T>
[[gnu::always_inline]] inline void update_block(const BlockRange& range, float scale,
                                                const float* scores, T* probabilities,
                                                const RowState& state) {
  for (std::int64_t i = 0; i < range.queries; ++i) {
    update_row(range, i, scale, scores + i * kKeyBlock, probabilities + i * kKeyBlock, state);
  }
}

MOESTRO_CLONES void update_softmax(const BlockRange& range, float scale, const float* scores,
                                   float* probabilities, const RowState& state) {
  update_block(range, scale, scores, probabilities, state);
}
MOESTRO_CLONES void update_softmax(const BlockRange& range, float scale, const float* scores,
                                   bf16* probabilities, const RowState& state) {
  update_block(range, scale, scores, probabilities, state);
}

MOESTRO_CLONES void rescale_rows(std::int64_t rows, std::int64_t width, const float* factor,
                                 float* sums) {
  for (std::int64_t i = 0; i < rows; ++i) {
    if (factor[i] == 1.0F) continue;
#pragma omp simd
    for (std::int64_t j = 0; j < width; ++j) sums[i * width + j] *= factor[i];
  }
}

template <class T>
[[gnu::always_inline]] inline void normalise(const Matrix<T>& out, const float* sums,
                                             const float* total) {
  for (std::int64_t i = 0; i < out.rows; ++i) {
    const float inverse = 1.0F / total[i];
#pragma omp simd
    for (std::int64_t j = 0; j < out.cols; ++j) {
      out.data[i * out.stride + j] = from_float<T>(sums[i * out.cols + j] * inverse);
    }
  }
}
MOESTRO_CLONES void write_out(const Matrix<float>& out, const float* sums, const float* total) {
  normalise(out, sums, total);
}
MOESTRO_CLONES void write_out(const Matrix<bf16>& out, const float* sums, const float* total) {
  normalise(out, sums, total);
}

/// Work memory of one query block.
template <class T>
struct Work {
  float* scores;     // [kQueryBlock, kKeyBlock]
  T* probabilities;  // the same; in f32 the same memory
  float* out;        // [kQueryBlock, head_dim]
  RowState state;    // [kQueryBlock] each
};

template <class T>
Work<T> work_of(std::int64_t head_dim) {
  auto* scores = scratch<float>(Purpose::scores, kQueryBlock * kKeyBlock);
  auto* statistics = scratch<float>(Purpose::row_statistics, 3 * kQueryBlock);
  T* probabilities = nullptr;
  if constexpr (std::is_same_v<T, float>) {
    probabilities = scores;
  } else {
    probabilities = scratch<T>(Purpose::probabilities, kQueryBlock * kKeyBlock);
  }
  return {scores,
          probabilities,
          scratch<float>(Purpose::head_out, kQueryBlock * head_dim),
          {statistics, statistics + kQueryBlock, statistics + 2 * kQueryBlock}};
}

template <class T>
void attend_block(const AttentionShape& shape, const T* qkv, std::int64_t batch, std::int64_t head,
                  std::int64_t query, T* out, float* log_sum_exp) {
  const std::int64_t end = std::min(shape.seq, query + kQueryBlock);
  const std::int64_t queries = end - query;
  const std::int64_t kv_head = head * shape.kv_heads / shape.heads;
  const auto q = internal::query_head(shape, qkv, batch, head).rows(query, queries);
  const auto k = internal::key_head(shape, qkv, batch, kv_head);
  const auto v = internal::value_head(shape, qkv, batch, kv_head);
  const Work<T> work = work_of<T>(shape.head_dim);
  std::fill_n(work.state.peak, queries, kNothingSeen);
  std::fill_n(work.state.sum, queries, 0.0F);
  const auto sums = rows_of(work.out, queries, shape.head_dim);
  bool is_first = true;
  internal::for_key_blocks(shape, query, end, [&](const BlockRange& range) {
    const auto scores = rows_of(work.scores, queries, range.keys, kKeyBlock);
    gemm(q, transposed(k.rows(range.key, range.keys)), scores);
    update_softmax(range, shape.scale, work.scores, work.probabilities, work.state);
    if (!is_first) rescale_rows(queries, shape.head_dim, work.state.rescale, work.out);
    const Matrix<const T> p = rows_of<const T>(work.probabilities, queries, range.keys, kKeyBlock);
    gemm(p, v.rows(range.key, range.keys), sums, !is_first);
    is_first = false;
  });
  write_out(internal::out_head(shape, out, batch, head).rows(query, queries), work.out,
            work.state.sum);
  float* lse = log_sum_exp + (batch * shape.heads + head) * shape.seq + query;
  for (std::int64_t i = 0; i < queries; ++i) {
    lse[i] = work.state.peak[i] + std::log(work.state.sum[i]);
  }
}

}  // namespace

template <class T>
void attention_forward(const AttentionShape& shape, const T* qkv, T* out, float* log_sum_exp) {
  internal::check_attention(shape);
  const std::int64_t blocks = (shape.seq + kQueryBlock - 1) / kQueryBlock;
  parallel_for(shape.batch * shape.heads * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t head = i / blocks % shape.heads;
      const std::int64_t batch = i / (blocks * shape.heads);
      attend_block(shape, qkv, batch, head, i % blocks * kQueryBlock, out, log_sum_exp);
    }
  });
}

template void attention_forward(const AttentionShape&, const float*, float*, float*);
template void attention_forward(const AttentionShape&, const bf16*, bf16*, float*);

}  // namespace moestro::kernels
