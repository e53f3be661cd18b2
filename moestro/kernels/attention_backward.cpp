#include <algorithm>
#include <type_traits>

#include "moestro/kernels/attention.h"
#include "moestro/kernels/clones.h"
#include "moestro/kernels/internal/attention_block.h"
#include "moestro/kernels/internal/convert.h"
#include "moestro/kernels/internal/scratch.h"
#include "moestro/kernels/parallel.h"
#include "moestro/kernels/vector_math.h"

namespace moestro::kernels {
namespace {

using internal::BlockRange;
using internal::HeadRows;
using internal::kKeyBlock;
using internal::kQueryBlock;
using internal::Purpose;
using internal::scratch;

/// dot[i] = <out[i], d_out[i]>: what every score's gradient of row i has taken off.
template <class T>
[[gnu::always_inline]] inline void row_dots(const Matrix<const T>& out,
                                            const Matrix<const T>& d_out, float* dot) {
  const std::int64_t width = out.cols;
  for (std::int64_t i = 0; i < out.rows; ++i) {
    const T* a = out.data + i * out.stride;
    const T* b = d_out.data + i * d_out.stride;
    float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < width; ++j) sum += to_float(a[j]) * to_float(b[j]);
    dot[i] = sum;
  }
}
MOESTRO_CLONES void dots(const Matrix<const float>& out, const Matrix<const float>& d_out,
                         float* dot) {
  row_dots(out, d_out, dot);
}
MOESTRO_CLONES void dots(const Matrix<const bf16>& out, const Matrix<const bf16>& d_out,
                         float* dot) {
  row_dots(out, d_out, dot);
}

/// Scores of a block, gradients of its probabilities, and what both become (in f32 in place).
template <class T>
struct ScoreBlock {
  float* scores;           // [kQueryBlock, kKeyBlock]
  float* d_probabilities;  // the same
  T* probabilities;        // the same
  T* d_scores;             // the same
  const float* log_sum_exp;
  const float* dot;
};

/// p = e^(score * scale - lse), d_score = p * (d_p - dot) * scale; zeros where not visible.
template <class T>
[[gnu::always_inline]] inline void differentiate(const BlockRange& range, float scale,
                                                 const ScoreBlock<T> block) {
  for (std::int64_t i = 0; i < range.queries; ++i) {
    const std::int64_t first = range.first(i);
    const std::int64_t last = range.last(i);
    const float lse = block.log_sum_exp[i];
    const float dot = block.dot[i];
    const float* score = block.scores + i * kKeyBlock;
    const float* d_p = block.d_probabilities + i * kKeyBlock;
    T* p = block.probabilities + i * kKeyBlock;
    T* d_score = block.d_scores + i * kKeyBlock;
    std::fill_n(p, first, T{});
    std::fill_n(d_score, first, T{});
#pragma omp simd
    for (std::int64_t j = first; j < last; ++j) {
      const float probability = exp_fast(score[j] * scale - lse);
      const float slope = probability * (d_p[j] - dot) * scale;
      p[j] = from_float<T>(probability);
      d_score[j] = from_float<T>(slope);
    }
    std::fill_n(p + last, range.keys - last, T{});
    std::fill_n(d_score + last, range.keys - last, T{});
  }
}
MOESTRO_CLONES void differentiate_block(const BlockRange& range, float scale,
                                        const ScoreBlock<float>& block) {
  differentiate(range, scale, block);
}
MOESTRO_CLONES void differentiate_block(const BlockRange& range, float scale,
                                        const ScoreBlock<bf16>& block) {
  differentiate(range, scale, block);
}

/// Work memory for one (batch, kv head).
template <class T>
struct Work {
  ScoreBlock<T> block;
  float* dot;  // [kQueryBlock]
  float* d_q;  // [kQueryBlock, head_dim]
  float* d_k;  // [seq, head_dim]
  float* d_v;  // [seq, head_dim]
};

template <class T>
Work<T> work_of(const AttentionShape& shape) {
  constexpr std::int64_t kScores = kQueryBlock * kKeyBlock;
  ScoreBlock<T> block{};
  block.scores = scratch<float>(Purpose::scores, kScores);
  block.d_probabilities = scratch<float>(Purpose::score_gradients, kScores);
  if constexpr (std::is_same_v<T, float>) {
    block.probabilities = block.scores;
    block.d_scores = block.d_probabilities;
  } else {
    block.probabilities = scratch<T>(Purpose::probabilities, kScores);
    block.d_scores = scratch<T>(Purpose::score_gradients_rounded, kScores);
  }
  auto* dot = scratch<float>(Purpose::row_statistics, kQueryBlock);
  block.dot = dot;
  return {block, dot, scratch<float>(Purpose::head_out, kQueryBlock * shape.head_dim),
          scratch<float>(Purpose::head_keys, shape.seq * shape.head_dim),
          scratch<float>(Purpose::head_values, shape.seq * shape.head_dim)};
}

/// The inputs and outputs of one query head and the key-value head it reads.
template <class T>
struct Heads {
  HeadRows<const T> q, k, v, out, d_out;
  HeadRows<T> d_q;
  const float* log_sum_exp;
};

template <class T>
void store(const HeadRows<T>& head, std::int64_t begin, std::int64_t rows, const float* values) {
  for (std::int64_t i = 0; i < rows; ++i) {
    internal::convert(head.head_dim, values + i * head.head_dim,
                      head.data + (begin + i) * head.stride);
  }
}

template <class T>
void backward_key_block(const AttentionShape& shape, const Heads<T>& heads, const BlockRange& range,
                        const Work<T>& work, bool is_first) {
  const std::int64_t width = shape.head_dim;
  const auto q = heads.q.rows(range.query, range.queries);
  const auto d_out = heads.d_out.rows(range.query, range.queries);
  const auto k = heads.k.rows(range.key, range.keys);
  const auto v = heads.v.rows(range.key, range.keys);
  const ScoreBlock<T>& block = work.block;
  gemm(q, transposed(k), rows_of(block.scores, range.queries, range.keys, kKeyBlock));
  gemm(d_out, transposed(v), rows_of(block.d_probabilities, range.queries, range.keys, kKeyBlock));
  differentiate_block(range, shape.scale, block);
  const auto p = rows_of<const T>(block.probabilities, range.queries, range.keys, kKeyBlock);
  const auto d_scores = rows_of<const T>(block.d_scores, range.queries, range.keys, kKeyBlock);
  gemm(transposed(p), d_out, rows_of(work.d_v + range.key * width, range.keys, width), true);
  gemm(transposed(d_scores), q, rows_of(work.d_k + range.key * width, range.keys, width), true);
  gemm(d_scores, k, rows_of(work.d_q, range.queries, width), !is_first);
}

template <class T>
void backward_query_block(const AttentionShape& shape, const Heads<T>& heads, std::int64_t query,
                          Work<T> work) {
  const std::int64_t end = std::min(shape.seq, query + kQueryBlock);
  const std::int64_t queries = end - query;
  dots(heads.out.rows(query, queries), heads.d_out.rows(query, queries), work.dot);
  work.block.log_sum_exp = heads.log_sum_exp + query;
  bool is_first = true;
  internal::for_key_blocks(shape, query, end, [&](const BlockRange& range) {
    backward_key_block(shape, heads, range, work, is_first);
    is_first = false;
  });
  store(heads.d_q, query, queries, work.d_q);
}

template <class T>
struct Problem {
  const T* qkv;
  const T* out;
  const float* log_sum_exp;
  const T* d_out;
  T* d_qkv;
};

/// All query heads of one key-value head: only this call writes its d_k and d_v.
template <class T>
void backward_group(const AttentionShape& shape, const Problem<T>& problem, std::int64_t batch,
                    std::int64_t kv_head) {
  const Work<T> work = work_of<T>(shape);
  std::fill_n(work.d_k, shape.seq * shape.head_dim, 0.0F);
  std::fill_n(work.d_v, shape.seq * shape.head_dim, 0.0F);
  const std::int64_t group = shape.heads / shape.kv_heads;
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const Heads<T> heads{internal::query_head(shape, problem.qkv, batch, head),
                         internal::key_head(shape, problem.qkv, batch, kv_head),
                         internal::value_head(shape, problem.qkv, batch, kv_head),
                         internal::out_head(shape, problem.out, batch, head),
                         internal::out_head(shape, problem.d_out, batch, head),
                         internal::query_head(shape, problem.d_qkv, batch, head),
                         problem.log_sum_exp + (batch * shape.heads + head) * shape.seq};
    for (std::int64_t query = 0; query < shape.seq; query += kQueryBlock) {
      backward_query_block(shape, heads, query, work);
    }
  }
  store(internal::key_head(shape, problem.d_qkv, batch, kv_head), 0, shape.seq, work.d_k);
  store(internal::value_head(shape, problem.d_qkv, batch, kv_head), 0, shape.seq, work.d_v);
}

}  // namespace

template <class T>
void attention_backward(const AttentionShape& shape, const T* qkv, const T* out,
                        const float* log_sum_exp, const T* d_out, T* d_qkv) {
  internal::check_attention(shape);
  const Problem<T> problem{qkv, out, log_sum_exp, d_out, d_qkv};
  parallel_for(shape.batch * shape.kv_heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      backward_group(shape, problem, i / shape.kv_heads, i % shape.kv_heads);
    }
  });
}

template void attention_backward(const AttentionShape&, const float*, const float*, const float*,
                                 const float*, float*);
template void attention_backward(const AttentionShape&, const bf16*, const bf16*, const float*,
                                 const bf16*, bf16*);

}  // namespace moestro::kernels
