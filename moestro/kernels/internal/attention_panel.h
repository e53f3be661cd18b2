#pragma once
// Attention by panels: the scores of up to 64 queries of one head against a chunk of keys, stored
// by keys, [keys, kPanel], so that vector lanes are queries: the softmax works lane by lane, and
// only queries and output gradients are ever transposed. Products leave out what no query of a tile
// of theirs sees. Operands of products are cells: an f32 value, or two bf16 values that follow each
// other along the depth, which is what one instruction multiplies and adds.

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

#include "moestro/kernels/attention.h"
#include "moestro/kernels/bf16.h"
#include "moestro/kernels/internal/attention_block.h"

namespace moestro::kernels::internal {

inline constexpr std::int64_t kPanel = 64;       // queries of a panel, and the stride of its rows
inline constexpr std::int64_t kLanes = 16;       // widths are rounded up to this
inline constexpr std::int64_t kChunk = 96;       // keys at most
inline constexpr std::int64_t kBlockPanels = 4;  // at most

static_assert(kChunk % 2 == 0, "chunks hold whole pairs");

[[nodiscard]] constexpr std::int64_t round_up(std::int64_t n) {
  return (n + kLanes - 1) / kLanes * kLanes;
}

/// Part [first, last) of a dimension.
struct Span {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

/// Which columns of a matrix count: row r has columns [r + low, r + high).
struct Band {
  std::int64_t low = 0;
  std::int64_t high = 0;

  /// Columns of [0, cols) that some row of [row, row + rows) has.
  [[nodiscard]] Span any(std::int64_t row, std::int64_t rows, std::int64_t cols) const {
    const std::int64_t first = std::clamp<std::int64_t>(row + low, 0, cols);
    return {first, std::clamp(row + rows - 1 + high, first, cols)};
  }
  /// Columns of `within` that all of them have.
  [[nodiscard]] Span all(std::int64_t row, std::int64_t rows, const Span& within) const {
    const std::int64_t first = std::clamp(row + rows - 1 + low, within.first, within.last);
    return {first, std::clamp(row + high, first, within.last)};
  }
};

/// Queries [query, query + queries) of one head against keys [key, key + keys).
struct Panel {
  std::int64_t query = 0;
  std::int64_t queries = 0;
  std::int64_t key = 0;
  std::int64_t keys = 0;
  std::int64_t window = 0;  // as in AttentionShape, but seq where that is 0 or longer

  /// Queries that see a key: rows are keys.
  [[nodiscard]] Band queries_of_key() const { return {key - query, key - query + window}; }
  /// Keys that a query sees: rows are queries.
  [[nodiscard]] Band keys_of_query() const { return {query - key + 1 - window, query - key + 1}; }
};

/// Which queries a panel has: [query, query + queries) of one head.
struct PanelQueries {
  std::int64_t head = 0;
  std::int64_t query = 0;
  std::int64_t queries = 0;
};

/// A few panels that read the same key-value head, and so each chunk of keys while it is in cache:
/// the heads of a group take turns, so that neighbours see nearly the same keys.
struct PanelBlock {
  std::array<PanelQueries, kBlockPanels> panels;
  std::int64_t count = 0;
  std::int64_t window = 0;  // as in Panel

  PanelBlock(const AttentionShape& s, std::int64_t kv_head, std::int64_t block);

  /// Calls chunk(key, keys) for the chunks of keys that some panel sees, in order, each followed by
  /// body(i, panel) for the panels i that see some of it. `key` is even: cells hold whole pairs.
  template <class Chunk, class Body>
  void for_chunks(const Chunk& chunk, const Body& body) const {
    const std::int64_t end = panels[count - 1].query + panels[count - 1].queries;
    std::int64_t key = std::max<std::int64_t>(0, panels[0].query + 1 - window) / 2 * 2;
    for (; key < end; key += kChunk) {
      chunk(key, std::min(kChunk, end - key));
      for (std::int64_t i = 0; i < count; ++i) {
        const auto& [head, query, queries] = panels[i];
        const std::int64_t last = std::min(key + kChunk, query + queries);
        if (key >= last || last <= query + 1 - window) continue;
        body(i, Panel{query, queries, key, last - key, window});
      }
    }
  }
};
/// Blocks of one key-value head.
[[nodiscard]] std::int64_t num_blocks(const AttentionShape& s);

/// Two bf16 values beside each other along the depth of a product.
struct Bf16Pair {
  bf16 first, second;
};
template <class T>
using Cell = std::conditional_t<std::is_same_v<T, bf16>, Bf16Pair, T>;
/// Values of a cell.
template <class C>
inline constexpr std::int64_t kDepthOfCell = std::is_same_v<C, Bf16Pair> ? 2 : 1;

/// Rows of values or cells.
template <class T>
struct Rows {
  T* data = nullptr;
  std::int64_t stride = 0;
};

/// Copies rows [begin, begin + count) of a head to `work` [count, round_up(head_dim)], filled up
/// with zeros: rows in whole vectors, at a distance that is no large power of two, which would let
/// them push each other out of the caches.
template <class T>
void pack_rows(const HeadRows<const T>& head, std::int64_t begin, std::int64_t count, T* work) {
  const std::int64_t width = round_up(head.head_dim);
  for (std::int64_t i = 0; i < count; ++i) {
    head.prefetch(begin + i + kRowsAhead);
    std::copy_n(head.row(begin + i), head.head_dim, work + i * width);
    std::fill_n(work + i * width + head.head_dim, width - head.head_dim, T{});
  }
}

/// Left side of a product: cell (r, d) is data[r * row + d * step].
template <class C>
struct Left {
  const C* data = nullptr;
  std::int64_t row = 0;
  std::int64_t step = 0;
};
/// Rows of an even number of values.
[[nodiscard]] inline Left<float> by_rows(const Rows<const float>& m) {
  return {m.data, m.stride, 1};
}
[[nodiscard]] inline Left<Bf16Pair> by_rows(const Rows<const bf16>& m) {
  return {reinterpret_cast<const Bf16Pair*>(m.data), m.stride / 2, 1};
}

/// The right side of a product whose depth are these `count` rows of `width` values: themselves, or
/// [ceil(count / 2), width] pairs, written to `work`, the last one filled up with zeros.
[[nodiscard]] inline const float* right_side(std::int64_t /*count*/, std::int64_t /*width*/,
                                             const float* rows, float* /*work*/) {
  return rows;
}
const Bf16Pair* right_side(std::int64_t count, std::int64_t width, const bf16* rows,
                           Bf16Pair* work);
/// Cells that right_side() writes.
template <class T>
[[nodiscard]] constexpr std::int64_t right_side_size(std::int64_t count, std::int64_t width) {
  return std::is_same_v<T, bf16> ? (count + 1) / 2 * width : 0;
}

/// The product of a [rows, depth] and b [depth, cols], in values; cols is a multiple of kLanes.
template <class C>
struct Product {
  std::int64_t rows, cols, depth;
  Left<C> a;
  Rows<const C> b;
  Rows<float> c;
  Band band;
  float scale = 1.0F;  // of multiply()
};

/// c = scale a b in the columns that `band` has in a row (rounded out to whole vectors and tiles of
/// rows); others stay as they were.
void multiply(const Product<float>& p);
void multiply(const Product<Bf16Pair>& p);
/// c += a b, where a row of a has the columns that `band` has; what tiles of rows and whole cells
/// take in besides must be 0.
void add_product(const Product<float>& p);
void add_product(const Product<Bf16Pair>& p);

/// Running softmax of a panel.
struct SoftmaxState {
  alignas(64) float peak[kPanel];     // largest score so far
  alignas(64) float sum[kPanel];      // sum of e^(score - peak)
  alignas(64) float rescale[kPanel];  // what the last chunk makes of earlier sums
};
/// Scores [keys, kPanel] to probabilities e^(score - peak), 0 where nothing is seen.
void softmax(const Panel& panel, float* scores, SoftmaxState& state);
/// Scores to probabilities e^(score - log_sum_exp), gradients of probabilities to those of scores
/// before their scale, p * (d - dot) * scale; both 0 where nothing is seen.
void differentiate(const Panel& panel, float scale, const float* log_sum_exp, const float* dot,
                   float* scores, float* gradients);

/// A panel's cells [keys, kPanel] as the left side of a product whose rows are keys, or queries:
/// themselves, or rounded to `work` [keys or keys + 1, kPanel].
[[nodiscard]] inline Left<float> rows_are_keys(const Panel& /*panel*/, const float* cells,
                                               float* /*work*/) {
  return {cells, kPanel, 1};
}
[[nodiscard]] inline Left<float> rows_are_queries(const Panel& /*panel*/, const float* cells,
                                                  float* /*work*/) {
  return {cells, 1, kPanel};
}
[[nodiscard]] Left<Bf16Pair> rows_are_keys(const Panel& panel, const float* cells, bf16* work);
[[nodiscard]] Left<Bf16Pair> rows_are_queries(const Panel& panel, const float* cells, bf16* work);
/// Values of that `work`.
template <class T>
[[nodiscard]] constexpr std::int64_t left_side_size() {
  return std::is_same_v<T, bf16> ? kChunk * kPanel : 0;
}

/// The steps above, compiled for one instruction set.
struct PanelKernels {
  void (*multiply)(const Product<float>&);
  void (*add_product)(const Product<float>&);
  void (*softmax)(const Panel&, float* scores, SoftmaxState&);
  void (*differentiate)(const Panel&, float scale, const float* log_sum_exp, const float* dot,
                        float* scores, float* gradients);
};
/// Those of bf16; rounding takes `keys` rows of `lanes` cells (a multiple of kLanes).
struct PairKernels {
  void (*multiply)(const Product<Bf16Pair>&);
  void (*add_product)(const Product<Bf16Pair>&);
  void (*round_by_keys)(std::int64_t keys, std::int64_t lanes, const float* cells, bf16* to);
  void (*round_by_queries)(std::int64_t keys, std::int64_t lanes, const float* cells, Bf16Pair* to);
};

/// Those for the instruction sets that this CPU has, the best last.
[[nodiscard]] std::span<const PanelKernels> supported_panel_kernels();
[[nodiscard]] std::span<const PairKernels> supported_pair_kernels();

/// to[d][i] = cell d of row i, for `count` rows of `width` values; queries up to the next multiple
/// of kLanes become 0. Shapes: from [count, round_up(width)], to [cells of width, kPanel].
void transpose_panel(std::int64_t count, std::int64_t width, const Rows<const float>& from,
                     float* to);
void transpose_panel(std::int64_t count, std::int64_t width, const Rows<const bf16>& from,
                     Bf16Pair* to);

/// attention_forward() and attention_backward() by panels, for float and bf16.
template <class T>
void panel_attention_forward(const AttentionShape& shape, const T* qkv, T* out, float* log_sum_exp);
template <class T>
void panel_attention_backward(const AttentionShape& shape, const T* qkv, const T* out,
                              const float* log_sum_exp, const T* d_out, T* d_qkv);

}  // namespace moestro::kernels::internal
