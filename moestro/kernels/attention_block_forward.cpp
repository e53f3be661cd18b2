#include <algorithm>
#include <cmath>
#include <limits>

#include "moestro/kernels/attention.h"
#include "moestro/kernels/clones.h"
#include "moestro/kernels/internal/attention_block.h"
#include "moestro/kernels/internal/scratch.h"
#include "moestro/kernels/parallel.h"
#include "moestro/kernels/vector_math.h"

namespace moestro::kernels::internal {
namespace {

constexpr float kNothingSeen = -std::numeric_limits<float>::infinity();

/// Running softmax of a block's rows.
struct RowState {
  float* peak;     // largest scaled score so far
  float* sum;      // sum of e^(score - peak)
  float* rescale;  // what the last block makes of earlier sums: e^(old peak - new peak)
};

/// Scores of one row to probabilities e^(score * scale - peak) in place; returns their sum.
[[gnu::always_inline]] inline float exponentiate(std::int64_t count, float scale, float peak,
                                                 float* scores) {
  float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < count; ++j) {
    const float p = exp_fast(scores[j] * scale - peak);
    sum += p;
    scores[j] = p;
  }
  return sum;
}

/// One row's step of the online softmax over its visible scores. A row that sees nothing in this
/// block stays as it was.
[[gnu::always_inline]] inline void update_row(std::int64_t count, float scale, float* scores,
                                              std::int64_t row, const RowState& state) {
  state.rescale[row] = 1.0F;
  if (count <= 0) return;
  const float before = state.peak[row];
  const float peak = larger(largest_of(count, scores) * scale, before);
  const float rescale = exp_fast(before - peak);
  state.sum[row] = state.sum[row] * rescale + exponentiate(count, scale, peak, scores);
  state.peak[row] = peak;
  state.rescale[row] = rescale;
}

MOESTRO_CLONES void update_softmax(const BlockRange& range, float scale, float* scores,
                                   bf16* probabilities, const RowState& state) {
  for (std::int64_t row = 0; row < range.rows(); ++row) {
    const std::int64_t first = range.first(row % range.queries);
    const std::int64_t last = range.last(row % range.queries);
    float* row_scores = scores + row * range.keys;
    update_row(last - first, scale, row_scores + first, row, state);
    write_row(range, first, last, row_scores, probabilities + row * range.keys);
  }
}

/// Work memory of one block of queries.
struct Work {
  bf16* q;        // [rows, head_dim], stacked
  bf16* k;        // [keys, head_dim] of a block, packed: oneDNN multiplies strided rows at less
  bf16* v;        //   than half the speed
  float* scores;  // [rows, keys] of a block, packed
  bf16* probabilities;  // the same
  float* out;           // [rows, head_dim]
  RowState state;       // [rows] each
};

Work work_of(const BlockSizes& sizes, std::int64_t head_dim) {
  const std::int64_t rows = sizes.rows();
  auto* statistics = scratch<float>(Purpose::row_statistics, 3 * rows);
  return {scratch<bf16>(Purpose::head_queries, rows * head_dim),
          scratch<bf16>(Purpose::head_keys, sizes.keys * head_dim),
          scratch<bf16>(Purpose::head_values, sizes.keys * head_dim),
          scratch<float>(Purpose::scores, rows * sizes.keys),
          scratch<bf16>(Purpose::probabilities, rows * sizes.keys),
          scratch<float>(Purpose::head_out, rows * head_dim),
          {statistics, statistics + rows, statistics + 2 * rows}};
}

/// Where a block of queries is, and what it reads and writes.
struct Problem {
  const AttentionShape& shape;
  BlockSizes sizes;
  const bf16* qkv;
  bf16* out;
  float* log_sum_exp;
};

void attend(const Problem& p, const Work& work, std::int64_t batch, std::int64_t kv_head,
            std::int64_t query, std::int64_t end) {
  const AttentionShape& s = p.shape;
  const auto k = packed_head(s, p.qkv, batch, s.heads + kv_head);
  const auto v = packed_head(s, p.qkv, batch, s.heads + s.kv_heads + kv_head);
  const std::int64_t rows = p.sizes.group * (end - query);
  const auto q = rows_of<const bf16>(work.q, rows, s.head_dim);
  const auto sums = rows_of(work.out, rows, s.head_dim);
  bool is_first = true;
  for_key_blocks(s, p.sizes, query, end, [&](const BlockRange& range) {
    copy_head_rows(k, range.key, range.keys, work.k);
    copy_head_rows(v, range.key, range.keys, work.v);
    gemm(q, transposed(rows_of<const bf16>(work.k, range.keys, s.head_dim)),
         rows_of(work.scores, rows, range.keys));
    update_softmax(range, s.scale, work.scores, work.probabilities, work.state);
    if (!is_first) rescale_rows(rows, s.head_dim, work.state.rescale, work.out);
    gemm(rows_of<const bf16>(work.probabilities, rows, range.keys),
         rows_of<const bf16>(work.v, range.keys, s.head_dim), sums, !is_first);
    is_first = false;
  });
}

void forward_block(const Problem& p, std::int64_t batch, std::int64_t kv_head, std::int64_t query) {
  const AttentionShape& s = p.shape;
  const std::int64_t end = std::min(s.seq, query + p.sizes.queries);
  const std::int64_t queries = end - query;
  const std::int64_t group = p.sizes.group;
  const Work work = work_of(p.sizes, s.head_dim);
  for (std::int64_t h = 0; h < group; ++h) {
    copy_head_rows(packed_head(s, p.qkv, batch, kv_head * group + h), query, queries,
                   work.q + h * queries * s.head_dim);
  }
  std::fill_n(work.state.peak, group * queries, kNothingSeen);
  std::fill_n(work.state.sum, group * queries, 0.0F);
  attend(p, work, batch, kv_head, query, end);
  for (std::int64_t h = 0; h < group; ++h) {
    const std::int64_t head = kv_head * group + h;
    const float* peak = work.state.peak + h * queries;
    const float* sum = work.state.sum + h * queries;
    write_out(out_head(s, p.out, batch, head), query, queries, s.head_dim,
              work.out + h * queries * s.head_dim, sum);
    float* lse = p.log_sum_exp + (batch * s.heads + head) * s.seq + query;
    for (std::int64_t i = 0; i < queries; ++i) lse[i] = peak[i] + std::log(sum[i]);
  }
}

}  // namespace

void block_attention_forward(const AttentionShape& shape, const bf16* qkv, bf16* out,
                             float* log_sum_exp) {
  const Problem problem{shape, block_sizes(shape), qkv, out, log_sum_exp};
  const std::int64_t blocks = (shape.seq + problem.sizes.queries - 1) / problem.sizes.queries;
  parallel_for(shape.batch * shape.kv_heads * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t block = blocks - 1 - i % blocks;  // the longest first
      forward_block(problem, i / blocks / shape.kv_heads, i / blocks % shape.kv_heads,
                    block * problem.sizes.queries);
    }
  });
}

}  // namespace moestro::kernels::internal
