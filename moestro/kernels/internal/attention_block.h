#pragma once
// Attention by blocks, for bf16 where products of gemm.h are faster: how a sequence is cut into
// blocks of scores, and which scores of a block are visible. All query heads that read one
// key-value head are stacked: row h * queries + i of a block is query i of the group's head h, so
// that keys and values are packed once for the whole group, and their gradients are summed inside
// one product. Shared with attention_panel.h: heads inside packed rows, and steps on rows of sums.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "moestro/kernels/attention.h"
#include "moestro/kernels/bf16.h"
#include "moestro/kernels/gemm.h"

namespace moestro::kernels::internal {

/// Sizes of a block, chosen by shape alone.
struct BlockSizes {
  std::int64_t group = 1;    // query heads per key-value head
  std::int64_t queries = 0;  // at most, of each head
  std::int64_t keys = 0;     // at most

  [[nodiscard]] std::int64_t rows() const { return group * queries; }
};
[[nodiscard]] BlockSizes block_sizes(const AttentionShape& shape);

/// One block: queries [query, query + queries) of every head of a group against keys
/// [key, key + keys) of the same sequence.
struct BlockRange {
  std::int64_t group = 1;
  std::int64_t query = 0;
  std::int64_t queries = 0;
  std::int64_t key = 0;
  std::int64_t keys = 0;
  std::int64_t window = 0;  // as in AttentionShape

  [[nodiscard]] std::int64_t rows() const { return group * queries; }
  /// Visible keys of query i of the block, as columns [first, last).
  [[nodiscard]] std::int64_t last(std::int64_t i) const {
    return std::clamp<std::int64_t>(query + i + 1 - key, 0, keys);
  }
  [[nodiscard]] std::int64_t first(std::int64_t i) const {
    if (window <= 0) return 0;
    return std::clamp<std::int64_t>(query + i + 1 - window - key, 0, last(i));
  }
  /// Whether query i sees one key of the whole sequence.
  [[nodiscard]] bool sees_one_key(std::int64_t i) const { return window == 1 || query + i == 0; }
};

/// Calls body(range) for the key blocks that queries [query, end) see, in order.
template <class Body>
void for_key_blocks(const AttentionShape& shape, const BlockSizes& sizes, std::int64_t query,
                    std::int64_t end, const Body& body) {
  const std::int64_t first =
      shape.window <= 0 ? 0 : std::max<std::int64_t>(0, query + 1 - shape.window);
  for (std::int64_t key = first; key < end; key += sizes.keys) {
    body(BlockRange{sizes.group, query, end - query, key, std::min(sizes.keys, end - key),
                    shape.window});
  }
}

/// Writes a row of a block, x rounded, with zeros where nothing is visible, outside columns
/// [first, last). Rounding is a pass of its own: together with the exponential it would run on half
/// as many lanes.
[[gnu::always_inline]] inline void write_row(const BlockRange& range, std::int64_t first,
                                             std::int64_t last, const float* x, bf16* out) {
  std::fill_n(out, first, bf16{});
#pragma omp simd
  for (std::int64_t j = first; j < last; ++j) out[j] = from_float<bf16>(x[j]);
  std::fill_n(out + last, range.keys - last, bf16{});
}

/// How many rows ahead of their use rows of a head are fetched: they lie too far apart for the CPU
/// to foresee the next one.
inline constexpr std::int64_t kRowsAhead = 12;

/// Rows of one head inside packed activations.
template <class T>
struct HeadRows {
  T* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t head_dim = 0;

  [[nodiscard]] T* row(std::int64_t i) const { return data + i * stride; }
  /// Starts to fetch row i, which may not exist, to read it or, where T is not const, to write it.
  [[gnu::always_inline]] void prefetch(std::int64_t i) const {
    constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T));
    for (std::int64_t j = 0; j < head_dim; j += kLine) {
      __builtin_prefetch(data + i * stride + j, std::is_const_v<T> ? 0 : 1);
    }
  }
  /// Rows [begin, begin + count) as a matrix [count, head_dim].
  [[nodiscard]] Matrix<T> rows(std::int64_t begin, std::int64_t count) const {
    return rows_of(row(begin), count, head_dim, stride);
  }
};

/// Head number `head` of a row of q | k | v: k heads follow the q heads, v heads the k heads.
template <class T>
[[nodiscard]] HeadRows<T> packed_head(const AttentionShape& s, T* qkv, std::int64_t batch,
                                      std::int64_t head) {
  return {qkv + batch * s.seq * s.row() + head * s.head_dim, s.row(), s.head_dim};
}
/// A head of `out` or `d_out`.
template <class T>
[[nodiscard]] HeadRows<T> out_head(const AttentionShape& s, T* out, std::int64_t batch,
                                   std::int64_t head) {
  const std::int64_t stride = s.heads * s.head_dim;
  return {out + batch * s.seq * stride + head * s.head_dim, stride, s.head_dim};
}

/// Copies rows [begin, begin + count) of a head to packed rows.
template <class T>
void copy_head_rows(const HeadRows<const T>& head, std::int64_t begin, std::int64_t count, T* to) {
  const auto bytes = static_cast<std::size_t>(head.head_dim) * sizeof(T);
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(static_cast<void*>(to + i * head.head_dim), head.row(begin + i), bytes);
  }
}

/// sums[i] *= factor[i], row by row: what an online softmax makes of earlier sums.
/// Shapes: sums [rows, width], factor [rows].
void rescale_rows(std::int64_t rows, std::int64_t width, const float* factor, float* sums);

/// Rows [query, query + rows) of a head = sums[i] / total[i]. Shapes: sums [rows, width] with
/// width >= head_dim, total [rows].
void write_out(const HeadRows<float>& out, std::int64_t query, std::int64_t rows,
               std::int64_t width, const float* sums, const float* total);
void write_out(const HeadRows<bf16>& out, std::int64_t query, std::int64_t rows, std::int64_t width,
               const float* sums, const float* total);

/// dot[i] = <out[i], d_out[i]> of rows [begin, begin + rows): what every score's gradient of row i
/// has taken off.
void dots(std::int64_t rows, const HeadRows<const float>& out, const HeadRows<const float>& d_out,
          std::int64_t begin, float* dot);
void dots(std::int64_t rows, const HeadRows<const bf16>& out, const HeadRows<const bf16>& d_out,
          std::int64_t begin, float* dot);

/// attention_forward() and attention_backward() of bf16 by blocks, on the products of gemm.h.
void block_attention_forward(const AttentionShape& shape, const bf16* qkv, bf16* out,
                             float* log_sum_exp);
void block_attention_backward(const AttentionShape& shape, const bf16* qkv, const bf16* out,
                              const float* log_sum_exp, const bf16* d_out, bf16* d_qkv);

}  // namespace moestro::kernels::internal
