#include <algorithm>
#include <array>
#include <utility>

#include "moestro/kernels/internal/attention_block.h"
#include "moestro/kernels/internal/attention_panel.h"
#include "moestro/kernels/internal/convert.h"
#include "moestro/kernels/internal/scratch.h"
#include "moestro/kernels/parallel.h"

namespace moestro::kernels::internal {
namespace {

/// What one (batch, kv head) reads and writes.
template <class T>
struct Group {
  const AttentionShape& shape;
  std::int64_t batch;
  std::int64_t kv_head;
  const T* qkv;
  const T* out;
  const float* log_sum_exp;
  const T* d_out;
  T* d_qkv;
};

/// A panel's queries, or gradients of its outputs, as products need them.
template <class T>
struct PanelSide {
  T* rows;           // [kPanel, width]
  Cell<T>* columns;  // [cells of width, kPanel]: the right side of products with keys
  Cell<T>* work;
  const Cell<T>* right;  // the right side of sums over queries

  /// Takes the rows of a head.
  void take(const HeadRows<const T>& head, const PanelQueries& at) {
    const std::int64_t width = round_up(head.head_dim);
    pack_rows(head, at.query, at.queries, rows);
    transpose_panel(at.queries, head.head_dim, {rows, width}, columns);
    right = right_side(at.queries, width, rows, work);
  }
};

/// What one panel reads, and the gradient of its queries.
template <class T>
struct PanelWork {
  PanelSide<T> q, d_out;
  float* d_q;  // [kPanel, width]
  alignas(64) float log_sum_exp[kPanel];
  alignas(64) float dot[kPanel];
};

/// Work memory of one (batch, kv head).
template <class T>
struct Work {
  std::int64_t width;         // of padded rows
  T *k, *v;                   // [seq, width]
  Cell<T>* k_work;            // see right_side()
  float *d_k, *d_v;           // [seq, width]
  float *scores, *gradients;  // [kChunk, kPanel]
  T* left;                    // see rows_are_keys()
  std::array<PanelWork<T>, kBlockPanels> panels{};

  explicit Work(const AttentionShape& s)
      : width(round_up(s.head_dim)),
        k(scratch<T>(Purpose::head_keys, s.seq * width)),
        v(scratch<T>(Purpose::head_values, s.seq * width)),
        k_work(scratch<Cell<T>>(Purpose::right_side, right_side_size<T>(s.seq, width))),
        d_k(scratch<float>(Purpose::head_key_gradients, s.seq * width)),
        d_v(scratch<float>(Purpose::head_value_gradients, s.seq * width)),
        scores(scratch<float>(Purpose::scores, kChunk * kPanel)),
        gradients(scratch<float>(Purpose::score_gradients, kChunk * kPanel)),
        left(scratch<T>(Purpose::probabilities, left_side_size<T>())) {
    const std::int64_t size = kPanel * width;
    const std::int64_t right_size = right_side_size<T>(kPanel, width);
    auto* rows = scratch<T>(Purpose::head_rows, 2 * kBlockPanels * size);
    const std::int64_t columns_size = size / kDepthOfCell<Cell<T>>;
    auto* columns = scratch<Cell<T>>(Purpose::head_queries, 2 * kBlockPanels * columns_size);
    auto* right = scratch<Cell<T>>(Purpose::panel_right_side, 2 * kBlockPanels * right_size);
    auto* d_q = scratch<float>(Purpose::head_out, kBlockPanels * size);
    for (PanelWork<T>& panel : panels) {
      for (PanelSide<T>* side : {&panel.q, &panel.d_out}) {
        side->rows = std::exchange(rows, rows + size);
        side->columns = std::exchange(columns, columns + columns_size);
        side->work = std::exchange(right, right + right_size);
      }
      panel.d_q = std::exchange(d_q, d_q + size);
    }
  }
};

template <class T>
void store(const HeadRows<T>& head, std::int64_t begin, std::int64_t rows, std::int64_t width,
           const float* values) {
  for (std::int64_t i = 0; i < rows; ++i) {
    head.prefetch(begin + i + kRowsAhead);
    convert(head.head_dim, values + i * width, head.row(begin + i));
  }
}

/// A query that sees one key gives it probability 1 whatever the score: what differs from 0 in the
/// gradient is rounding.
void clear_single_scores(const Panel& panel, float* gradients) {
  const std::int64_t queries = panel.window == 1 ? panel.queries : panel.query == 0 ? 1 : 0;
  for (std::int64_t i = 0; i < queries; ++i) {
    const std::int64_t key = panel.query + i - panel.key;
    if (0 <= key && key < panel.keys) gradients[key * kPanel + i] = 0.0F;
  }
}

template <class T>
void begin_panel(const Group<T>& g, const PanelQueries& at, std::int64_t width,
                 PanelWork<T>& panel) {
  const AttentionShape& s = g.shape;
  const auto d_out = out_head(s, g.d_out, g.batch, at.head);
  panel.q.take(packed_head(s, g.qkv, g.batch, at.head), at);
  panel.d_out.take(d_out, at);
  std::fill_n(panel.dot, kPanel, 0.0F);
  std::fill_n(panel.log_sum_exp, kPanel, 0.0F);
  dots(at.queries, out_head(s, g.out, g.batch, at.head), d_out, at.query, panel.dot);
  std::copy_n(g.log_sum_exp + (g.batch * s.heads + at.head) * s.seq + at.query, at.queries,
              panel.log_sum_exp);
  std::fill_n(panel.d_q, at.queries * width, 0.0F);
}

/// d_k or d_v += cells [keys, queries] times the rows of a panel.
template <class T>
void add_to_keys(const Panel& at, const Work<T>& w, const float* cells, const Cell<T>* right,
                 float* sums) {
  add_product(Product<Cell<T>>{at.keys,
                               w.width,
                               at.queries,
                               rows_are_keys(at, cells, w.left),
                               {right, w.width},
                               {sums + at.key * w.width, w.width},
                               at.queries_of_key()});
}

/// k_right: all keys as a right side.
template <class T>
void backward_chunk(const AttentionShape& s, const Panel& at, const Work<T>& w,
                    const PanelWork<T>& panel, const Cell<T>* k_right) {
  const std::int64_t first = at.key * w.width;
  const auto multiply_keys = [&](const T* rows, const Cell<T>* columns, float scale, float* cells) {
    multiply(Product<Cell<T>>{at.keys,
                              round_up(at.queries),
                              s.head_dim,
                              by_rows(Rows<const T>{rows + first, w.width}),
                              {columns, kPanel},
                              {cells, kPanel},
                              at.queries_of_key(),
                              scale});
  };
  multiply_keys(w.k, panel.q.columns, s.scale, w.scores);
  multiply_keys(w.v, panel.d_out.columns, 1.0F, w.gradients);
  differentiate(at, s.scale, panel.log_sum_exp, panel.dot, w.scores, w.gradients);
  clear_single_scores(at, w.gradients);
  add_to_keys(at, w, w.scores, panel.d_out.right, w.d_v);
  add_to_keys(at, w, w.gradients, panel.q.right, w.d_k);
  add_product(Product<Cell<T>>{at.queries,
                               w.width,
                               at.keys,
                               rows_are_queries(at, w.gradients, w.left),
                               {k_right + first / kDepthOfCell<Cell<T>>, w.width},
                               {panel.d_q, w.width},
                               at.keys_of_query()});
}

/// All query heads of one key-value head: only this call writes its d_k and d_v.
template <class T>
void backward_group(const Group<T>& g) {
  const AttentionShape& s = g.shape;
  Work<T> w(s);
  const std::int64_t key_head = s.heads + g.kv_head;
  const std::int64_t value_head = key_head + s.kv_heads;
  pack_rows(packed_head(s, g.qkv, g.batch, key_head), 0, s.seq, w.k);
  pack_rows(packed_head(s, g.qkv, g.batch, value_head), 0, s.seq, w.v);
  const Cell<T>* k_right = right_side(s.seq, w.width, w.k, w.k_work);
  std::fill_n(w.d_k, s.seq * w.width, 0.0F);
  std::fill_n(w.d_v, s.seq * w.width, 0.0F);
  for (std::int64_t i = 0; i < num_blocks(s); ++i) {
    const PanelBlock block(s, g.kv_head, i);
    for (std::int64_t j = 0; j < block.count; ++j) {
      begin_panel(g, block.panels[j], w.width, w.panels[j]);
    }
    block.for_chunks(
        [](std::int64_t, std::int64_t) {},
        [&](std::int64_t j, const Panel& at) { backward_chunk(s, at, w, w.panels[j], k_right); });
    for (std::int64_t j = 0; j < block.count; ++j) {
      const auto& [head, query, queries] = block.panels[j];
      store(packed_head(s, g.d_qkv, g.batch, head), query, queries, w.width, w.panels[j].d_q);
    }
  }
  store(packed_head(s, g.d_qkv, g.batch, key_head), 0, s.seq, w.width, w.d_k);
  store(packed_head(s, g.d_qkv, g.batch, value_head), 0, s.seq, w.width, w.d_v);
}

}  // namespace

template <class T>
void panel_attention_backward(const AttentionShape& shape, const T* qkv, const T* out,
                              const float* log_sum_exp, const T* d_out, T* d_qkv) {
  parallel_for(shape.batch * shape.kv_heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      backward_group(Group<T>{shape, i / shape.kv_heads, i % shape.kv_heads, qkv, out, log_sum_exp,
                              d_out, d_qkv});
    }
  });
}

template void panel_attention_backward(const AttentionShape&, const float*, const float*,
                                       const float*, const float*, float*);
template void panel_attention_backward(const AttentionShape&, const bf16*, const bf16*,
                                       const float*, const bf16*, bf16*);

}  // namespace moestro::kernels::internal
