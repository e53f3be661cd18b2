#include <algorithm>

#include "moestro/kernels/attention.h"
#include "moestro/kernels/clones.h"
#include "moestro/kernels/internal/attention_block.h"
#include "moestro/kernels/internal/convert.h"
#include "moestro/kernels/internal/scratch.h"
#include "moestro/kernels/parallel.h"
#include "moestro/kernels/vector_math.h"

namespace moestro::kernels::internal {
namespace {

/// Scores of a block, gradients of its probabilities, and what both become.
struct ScoreBlock {
  float* scores;           // [rows, keys], packed
  float* d_probabilities;  // the same
  bf16* probabilities;     // the same
  bf16* d_scores;          // the same
  float* log_sum_exp;      // [rows]
  float* dot;              // [rows]
};

/// One row's visible part, in place: score to p = e^(score * scale - lse), gradient of p to
/// gradient of the score, p * (d_p - dot) * scale.
[[gnu::always_inline]] inline void differentiate_row(std::int64_t count, float scale, float lse,
                                                     float dot, float* score, float* d) {
#pragma omp simd
  for (std::int64_t j = 0; j < count; ++j) {
    const float p = exp_fast(score[j] * scale - lse);
    score[j] = p;
    d[j] = p * (d[j] - dot) * scale;
  }
}

MOESTRO_CLONES void differentiate_block(const BlockRange& range, float scale,
                                        const ScoreBlock& block) {
  for (std::int64_t row = 0; row < range.rows(); ++row) {
    const std::int64_t first = range.first(row % range.queries);
    const std::int64_t last = range.last(row % range.queries);
    const std::int64_t at = row * range.keys;
    differentiate_row(last - first, scale, block.log_sum_exp[row], block.dot[row],
                      block.scores + at + first, block.d_probabilities + at + first);
    // Its probability is 1 whatever the score: what differs from 0 is rounding.
    if (range.sees_one_key(row % range.queries)) {
      std::fill_n(block.d_probabilities + at + first, last - first, 0.0F);
    }
    write_row(range, first, last, block.scores + at, block.probabilities + at);
    write_row(range, first, last, block.d_probabilities + at, block.d_scores + at);
  }
}

/// Work memory for one (batch, kv head).
struct Work {
  ScoreBlock block;
  bf16* q;      // [rows, head_dim], stacked
  bf16* d_out;  // the same
  float* d_q;   // the same
  bf16* k;  // [seq, head_dim], packed: oneDNN multiplies strided rows at less than half the speed
  bf16* v;  // the same
  float* d_k;  // [seq, head_dim]
  float* d_v;  // [seq, head_dim]
};

Work work_of(const AttentionShape& shape, const BlockSizes& sizes) {
  const std::int64_t rows = sizes.rows();
  const std::int64_t scores = rows * sizes.keys;
  ScoreBlock block{};
  block.scores = scratch<float>(Purpose::scores, scores);
  block.d_probabilities = scratch<float>(Purpose::score_gradients, scores);
  block.probabilities = scratch<bf16>(Purpose::probabilities, scores);
  block.d_scores = scratch<bf16>(Purpose::score_gradients_rounded, scores);
  block.log_sum_exp = scratch<float>(Purpose::row_statistics, 2 * rows);
  block.dot = block.log_sum_exp + rows;
  return {block,
          scratch<bf16>(Purpose::head_queries, rows * shape.head_dim),
          scratch<bf16>(Purpose::head_out_gradients, rows * shape.head_dim),
          scratch<float>(Purpose::head_out, rows * shape.head_dim),
          scratch<bf16>(Purpose::head_keys, shape.seq * shape.head_dim),
          scratch<bf16>(Purpose::head_values, shape.seq * shape.head_dim),
          scratch<float>(Purpose::head_key_gradients, shape.seq * shape.head_dim),
          scratch<float>(Purpose::head_value_gradients, shape.seq * shape.head_dim)};
}

void store(const HeadRows<bf16>& head, std::int64_t begin, std::int64_t rows, const float* values) {
  for (std::int64_t i = 0; i < rows; ++i) {
    convert(head.head_dim, values + i * head.head_dim, head.row(begin + i));
  }
}

/// What one (batch, kv head) reads and writes.
struct Group {
  const AttentionShape& shape;
  BlockSizes sizes;
  std::int64_t batch;
  std::int64_t kv_head;
  const bf16* qkv;
  const bf16* out;
  const float* log_sum_exp;
  const bf16* d_out;
  bf16* d_qkv;

  [[nodiscard]] std::int64_t head(std::int64_t h) const { return kv_head * sizes.group + h; }
  [[nodiscard]] std::int64_t key_head() const { return shape.heads + kv_head; }
  [[nodiscard]] std::int64_t value_head() const { return shape.heads + shape.kv_heads + kv_head; }
};

void backward_key_block(const Group& g, const BlockRange& range, const Work& work, bool is_first) {
  const std::int64_t width = g.shape.head_dim;
  const std::int64_t rows = range.rows();
  const auto keys = rows_of<const bf16>(work.k + range.key * width, range.keys, width);
  const auto values = rows_of<const bf16>(work.v + range.key * width, range.keys, width);
  const auto q = rows_of<const bf16>(work.q, rows, width);
  const auto d_out = rows_of<const bf16>(work.d_out, rows, width);
  const ScoreBlock& block = work.block;
  gemm(q, transposed(keys), rows_of(block.scores, rows, range.keys));
  gemm(d_out, transposed(values), rows_of(block.d_probabilities, rows, range.keys));
  differentiate_block(range, g.shape.scale, block);
  const auto p = rows_of<const bf16>(block.probabilities, rows, range.keys);
  const auto d_scores = rows_of<const bf16>(block.d_scores, rows, range.keys);
  gemm(transposed(p), d_out, rows_of(work.d_v + range.key * width, range.keys, width), true);
  gemm(transposed(d_scores), q, rows_of(work.d_k + range.key * width, range.keys, width), true);
  gemm(d_scores, keys, rows_of(work.d_q, rows, width), !is_first);
}

void stack_queries(const Group& g, std::int64_t query, std::int64_t queries, const Work& work) {
  for (std::int64_t h = 0; h < g.sizes.group; ++h) {
    const std::int64_t at = h * queries;
    const auto d_out = out_head(g.shape, g.d_out, g.batch, g.head(h));
    copy_head_rows(packed_head(g.shape, g.qkv, g.batch, g.head(h)), query, queries,
                   work.q + at * g.shape.head_dim);
    copy_head_rows(d_out, query, queries, work.d_out + at * g.shape.head_dim);
    dots(queries, out_head(g.shape, g.out, g.batch, g.head(h)), d_out, query, work.block.dot + at);
    std::copy_n(g.log_sum_exp + (g.batch * g.shape.heads + g.head(h)) * g.shape.seq + query,
                queries, work.block.log_sum_exp + at);
  }
}

void backward_query_block(const Group& g, std::int64_t query, const Work& work) {
  const std::int64_t end = std::min(g.shape.seq, query + g.sizes.queries);
  const std::int64_t queries = end - query;
  stack_queries(g, query, queries, work);
  bool is_first = true;
  for_key_blocks(g.shape, g.sizes, query, end, [&](const BlockRange& range) {
    backward_key_block(g, range, work, is_first);
    is_first = false;
  });
  for (std::int64_t h = 0; h < g.sizes.group; ++h) {
    store(packed_head(g.shape, g.d_qkv, g.batch, g.head(h)), query, queries,
          work.d_q + h * queries * g.shape.head_dim);
  }
}

/// All query heads of one key-value head: only this call writes its d_k and d_v.
void backward_group(const Group& g) {
  const AttentionShape& s = g.shape;
  const Work work = work_of(s, g.sizes);
  copy_head_rows(packed_head(s, g.qkv, g.batch, g.key_head()), 0, s.seq, work.k);
  copy_head_rows(packed_head(s, g.qkv, g.batch, g.value_head()), 0, s.seq, work.v);
  std::fill_n(work.d_k, s.seq * s.head_dim, 0.0F);
  std::fill_n(work.d_v, s.seq * s.head_dim, 0.0F);
  for (std::int64_t query = 0; query < s.seq; query += g.sizes.queries) {
    backward_query_block(g, query, work);
  }
  store(packed_head(s, g.d_qkv, g.batch, g.key_head()), 0, s.seq, work.d_k);
  store(packed_head(s, g.d_qkv, g.batch, g.value_head()), 0, s.seq, work.d_v);
}

}  // namespace

void block_attention_backward(const AttentionShape& shape, const bf16* qkv, const bf16* out,
                              const float* log_sum_exp, const bf16* d_out, bf16* d_qkv) {
  const BlockSizes sizes = block_sizes(shape);
  parallel_for(shape.batch * shape.kv_heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      backward_group(Group{shape, sizes, i / shape.kv_heads, i % shape.kv_heads, qkv, out,
                           log_sum_exp, d_out, d_qkv});
    }
  });
}

}  // namespace moestro::kernels::internal
