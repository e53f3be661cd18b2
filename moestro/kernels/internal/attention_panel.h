#pragma once
// f32 attention by panels: the scores of up to 64 queries of one head against a chunk of keys,
// stored by keys, [keys, kPanel], so that vector lanes are queries: the softmax works lane by lane,
// and only queries and output gradients are ever transposed. Products leave out what no query of a
// tile of theirs sees.

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "moestro/kernels/attention.h"
#include "moestro/kernels/internal/attention_block.h"

namespace moestro::kernels::internal {

inline constexpr std::int64_t kPanel = 64;       // queries of a panel, and the stride of its rows
inline constexpr std::int64_t kLanes = 16;       // widths are rounded up to this
inline constexpr std::int64_t kChunk = 96;       // keys at most
inline constexpr std::int64_t kBlockPanels = 4;  // at most

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
  /// body(i, panel) for the panels i that see some of it.
  template <class Chunk, class Body>
  void for_chunks(const Chunk& chunk, const Body& body) const {
    const std::int64_t end = panels[count - 1].query + panels[count - 1].queries;
    std::int64_t key = std::max<std::int64_t>(0, panels[0].query + 1 - window);
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

/// Rows of f32 values.
template <class T>
struct Rows {
  T* data = nullptr;
  std::int64_t stride = 0;
};

template <class T>
[[nodiscard]] Rows<T> rows_from(const HeadRows<T>& head, std::int64_t begin) {
  return {head.row(begin), head.stride};
}
/// Copies rows [begin, begin + count) of a head to `work` [count, round_up(head_dim)], filled up
/// with zeros: rows in whole vectors, at a distance that is no large power of two, which would let
/// them push each other out of the caches.
void pack_rows(const HeadRows<const float>& head, std::int64_t begin, std::int64_t count,
               float* work);

/// Left side of a product: element (r, d) is data[r * row + d * step].
struct Left {
  const float* data = nullptr;
  std::int64_t row = 0;
  std::int64_t step = 0;
};
[[nodiscard]] inline Left by_rows(const Rows<float>& m) {
  return {m.data, m.stride, 1};
}
[[nodiscard]] inline Left by_columns(const Rows<float>& m) {
  return {m.data, 1, m.stride};
}

[[nodiscard]] inline Rows<const float> as_const(const Rows<float>& m) {
  return {m.data, m.stride};
}

/// c = a b of [rows, depth] by [depth, cols]; cols is a multiple of kLanes.
struct Product {
  std::int64_t rows, cols, depth;
  Left a;
  Rows<const float> b;
  Rows<float> c;
  Band band;
};

/// Running softmax of a panel.
struct SoftmaxState {
  alignas(64) float peak[kPanel];     // largest score so far
  alignas(64) float sum[kPanel];      // sum of e^(score - peak)
  alignas(64) float rescale[kPanel];  // what the last chunk makes of earlier sums
};

/// The steps, compiled for one instruction set.
struct PanelKernels {
  /// c = a b in the columns that `band` has in a row (rounded out to whole vectors and tiles of
  /// rows); others stay as they were.
  void (*multiply)(const Product&);
  /// c += a b, where a row of a has the columns that `band` has; what tiles of rows take in
  /// besides must be 0.
  void (*add_product)(const Product&);
  /// Scores [keys, kPanel] to probabilities e^(score - peak), 0 where nothing is seen.
  void (*softmax)(const Panel&, float* scores, SoftmaxState&);
  /// Scores to probabilities e^(score - log_sum_exp), gradients of probabilities to those of
  /// scores, p * (d - dot) * scale; both 0 where nothing is seen.
  void (*differentiate)(const Panel&, float scale, const float* log_sum_exp, const float* dot,
                        float* scores, float* gradients);
};

/// Those for the instruction sets that this CPU has, the best last.
[[nodiscard]] std::span<const PanelKernels> supported_panel_kernels();

/// to[d][i] = from[i][d] * factor for `count` rows of `width`; queries up to the next multiple of
/// kLanes become 0. Shapes: to [width, kPanel].
void transpose_panel(std::int64_t count, std::int64_t width, float factor,
                     const Rows<const float>& from, float* to);

}  // namespace moestro::kernels::internal
