#pragma once
// What attention's two directions share: how q | k | v rows are cut into blocks of scores, and
// which scores of a block are visible.

#include <algorithm>
#include <cstdint>

#include "moestro/kernels/attention.h"
#include "moestro/kernels/gemm.h"

namespace moestro::kernels::internal {

// One block's scores, probabilities and operands fit a second-level cache of 1 MiB.
constexpr std::int64_t kQueryBlock = 128;
constexpr std::int64_t kKeyBlock = 512;

/// Scores of queries [query, query + queries) against keys [key, key + keys) of one sequence.
struct BlockRange {
  std::int64_t query = 0;
  std::int64_t queries = 0;
  std::int64_t key = 0;
  std::int64_t keys = 0;
  std::int64_t window = 0;  // as in AttentionShape

  /// Visible keys of local query i, as local columns [first, last).
  [[nodiscard]] std::int64_t last(std::int64_t i) const {
    return std::clamp<std::int64_t>(query + i + 1 - key, 0, keys);
  }
  [[nodiscard]] std::int64_t first(std::int64_t i) const {
    if (window <= 0) return 0;
    return std::clamp<std::int64_t>(query + i + 1 - window - key, 0, last(i));
  }
};

/// The first key any query from `query` on can see.
[[nodiscard]] inline std::int64_t first_key(const AttentionShape& shape, std::int64_t query) {
  return shape.window <= 0 ? 0 : std::max<std::int64_t>(0, query + 1 - shape.window);
}

/// Calls body(range) for the key blocks that queries [query, end) see, in order.
template <class Body>
void for_key_blocks(const AttentionShape& shape, std::int64_t query, std::int64_t end,
                    const Body& body) {
  for (std::int64_t key = first_key(shape, query); key < end; key += kKeyBlock) {
    body(BlockRange{query, end - query, key, std::min(kKeyBlock, end - key), shape.window});
  }
}

/// Rows of one head inside the packed activations.
template <class T>
struct HeadRows {
  T* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t head_dim = 0;

  /// Rows [begin, begin + count) as a matrix [count, head_dim].
  [[nodiscard]] Matrix<T> rows(std::int64_t begin, std::int64_t count) const {
    return rows_of(data + begin * stride, count, head_dim, stride);
  }
};

template <class T>
[[nodiscard]] HeadRows<T> query_head(const AttentionShape& s, T* qkv, std::int64_t batch,
                                     std::int64_t head) {
  return {qkv + batch * s.seq * s.row() + head * s.head_dim, s.row(), s.head_dim};
}
template <class T>
[[nodiscard]] HeadRows<T> key_head(const AttentionShape& s, T* qkv, std::int64_t batch,
                                   std::int64_t kv_head) {
  return query_head(s, qkv, batch, s.heads + kv_head);
}
template <class T>
[[nodiscard]] HeadRows<T> value_head(const AttentionShape& s, T* qkv, std::int64_t batch,
                                     std::int64_t kv_head) {
  return query_head(s, qkv, batch, s.heads + s.kv_heads + kv_head);
}
/// A head of `out` or `d_out`.
template <class T>
[[nodiscard]] HeadRows<T> out_head(const AttentionShape& s, T* out, std::int64_t batch,
                                   std::int64_t head) {
  const std::int64_t stride = s.heads * s.head_dim;
  return {out + batch * s.seq * stride + head * s.head_dim, stride, s.head_dim};
}

/// Errors: internal, if the shape makes no sense.
void check_attention(const AttentionShape& shape);

}  // namespace moestro::kernels::internal
