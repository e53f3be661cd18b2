#include <algorithm>
#include <array>
#include <utility>

#include "moestro/kernels/attention.h"
#include "moestro/kernels/internal/attention_block.h"
#include "moestro/kernels/internal/attention_panel.h"
#include "moestro/kernels/internal/scratch.h"
#include "moestro/kernels/parallel.h"

namespace moestro::kernels {
namespace {

using internal::check_attention;
using internal::HeadRows;
using internal::kBlockPanels;
using internal::kChunk;
using internal::kPanel;
using internal::num_blocks;
using internal::out_head;
using internal::pack_rows;
using internal::packed_head;
using internal::Panel;
using internal::PanelBlock;
using internal::PanelKernels;
using internal::PanelQueries;
using internal::Purpose;
using internal::round_up;
using internal::Rows;
using internal::scratch;
using internal::transpose_panel;

/// What one (batch, kv head) reads and writes.
struct Group {
  const AttentionShape& shape;
  std::int64_t batch;
  std::int64_t kv_head;
  const float* qkv;
  const float* out;
  const float* log_sum_exp;
  const float* d_out;
  float* d_qkv;
};

/// What one panel reads, and the gradient of its queries.
struct PanelWork {
  float* q;           // [head_dim, kPanel], scaled
  float* d_out;       // [head_dim, kPanel]
  float* q_rows;      // [kPanel, width]
  float* d_out_rows;  // [kPanel, width]
  float* d_q;         // [kPanel, width]
  alignas(64) float log_sum_exp[kPanel];
  alignas(64) float dot[kPanel];
};

/// Work memory of one (batch, kv head).
struct Work {
  std::int64_t width;         // of padded rows
  float *k, *v, *d_k, *d_v;   // [seq, width]
  float *scores, *gradients;  // [kChunk, kPanel]
  std::array<PanelWork, kBlockPanels> panels{};

  explicit Work(const AttentionShape& s)
      : width(round_up(s.head_dim)),
        k(scratch<float>(Purpose::head_keys, s.seq * width)),
        v(scratch<float>(Purpose::head_values, s.seq * width)),
        d_k(scratch<float>(Purpose::head_key_gradients, s.seq * width)),
        d_v(scratch<float>(Purpose::head_value_gradients, s.seq * width)),
        scores(scratch<float>(Purpose::scores, kChunk * kPanel)),
        gradients(scratch<float>(Purpose::score_gradients, kChunk * kPanel)) {
    const std::int64_t size = kPanel * width;
    auto* q = scratch<float>(Purpose::head_queries, 2 * kBlockPanels * size);
    auto* d_out = scratch<float>(Purpose::head_out_gradients, 2 * kBlockPanels * size);
    auto* d_q = scratch<float>(Purpose::head_out, kBlockPanels * size);
    for (PanelWork& panel : panels) {
      panel.q = std::exchange(q, q + 2 * size);
      panel.q_rows = panel.q + size;
      panel.d_out = std::exchange(d_out, d_out + 2 * size);
      panel.d_out_rows = panel.d_out + size;
      panel.d_q = std::exchange(d_q, d_q + size);
    }
  }
};

void store(const HeadRows<float>& head, std::int64_t begin, std::int64_t rows, std::int64_t width,
           const float* values) {
  for (std::int64_t i = 0; i < rows; ++i) {
    std::copy_n(values + i * width, head.head_dim, head.row(begin + i));
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

void begin_panel(const Group& g, const PanelQueries& at, std::int64_t width, PanelWork& panel) {
  const AttentionShape& s = g.shape;
  const auto d_out = out_head(s, g.d_out, g.batch, at.head);
  pack_rows(packed_head(s, g.qkv, g.batch, at.head), at.query, at.queries, panel.q_rows);
  pack_rows(d_out, at.query, at.queries, panel.d_out_rows);
  transpose_panel(at.queries, s.head_dim, s.scale, {panel.q_rows, width}, panel.q);
  transpose_panel(at.queries, s.head_dim, 1.0F, {panel.d_out_rows, width}, panel.d_out);
  std::fill_n(panel.dot, kPanel, 0.0F);
  std::fill_n(panel.log_sum_exp, kPanel, 0.0F);
  internal::dots(at.queries, out_head(s, g.out, g.batch, at.head), d_out, at.query, panel.dot);
  std::copy_n(g.log_sum_exp + (g.batch * s.heads + at.head) * s.seq + at.query, at.queries,
              panel.log_sum_exp);
  std::fill_n(panel.d_q, at.queries * width, 0.0F);
}

void backward_chunk(const AttentionShape& s, const Panel& at, const Work& w,
                    const PanelWork& panel) {
  const PanelKernels& kernels = internal::supported_panel_kernels().back();
  const std::int64_t width = w.width;
  const std::int64_t first = at.key * width;
  const std::int64_t cols = round_up(at.queries);
  const Rows<float> k{w.k + first, width}, d_k{w.d_k + first, width}, d_q{panel.d_q, width};
  const Rows<float> v{w.v + first, width}, d_v{w.d_v + first, width};
  const Rows<const float> q{panel.q, kPanel}, q_rows{panel.q_rows, width};
  const Rows<const float> d_out{panel.d_out, kPanel}, d_out_rows{panel.d_out_rows, width};
  const Rows<float> scores{w.scores, kPanel}, gradients{w.gradients, kPanel};
  const auto seen = at.queries_of_key();
  kernels.multiply({at.keys, cols, s.head_dim, by_rows(k), q, scores, seen});
  kernels.multiply({at.keys, cols, s.head_dim, by_rows(v), d_out, gradients, seen});
  kernels.differentiate(at, s.scale, panel.log_sum_exp, panel.dot, w.scores, w.gradients);
  clear_single_scores(at, w.gradients);
  kernels.add_product({at.keys, width, at.queries, by_rows(scores), d_out_rows, d_v, seen});
  kernels.add_product({at.keys, width, at.queries, by_rows(gradients), q_rows, d_k, seen});
  kernels.add_product(
      {at.queries, width, at.keys, by_columns(gradients), as_const(k), d_q, at.keys_of_query()});
}

/// All query heads of one key-value head: only this call writes its d_k and d_v.
void backward_group(const Group& g) {
  const AttentionShape& s = g.shape;
  Work w(s);
  const std::int64_t key_head = s.heads + g.kv_head;
  const std::int64_t value_head = key_head + s.kv_heads;
  pack_rows(packed_head(s, g.qkv, g.batch, key_head), 0, s.seq, w.k);
  pack_rows(packed_head(s, g.qkv, g.batch, value_head), 0, s.seq, w.v);
  std::fill_n(w.d_k, s.seq * w.width, 0.0F);
  std::fill_n(w.d_v, s.seq * w.width, 0.0F);
  for (std::int64_t i = 0; i < num_blocks(s); ++i) {
    const PanelBlock block(s, g.kv_head, i);
    for (std::int64_t j = 0; j < block.count; ++j) {
      begin_panel(g, block.panels[j], w.width, w.panels[j]);
    }
    block.for_chunks(
        [](std::int64_t, std::int64_t) {},
        [&](std::int64_t j, const Panel& at) { backward_chunk(s, at, w, w.panels[j]); });
    for (std::int64_t j = 0; j < block.count; ++j) {
      const auto& [head, query, queries] = block.panels[j];
      store(packed_head(s, g.d_qkv, g.batch, head), query, queries, w.width, w.panels[j].d_q);
    }
  }
  store(packed_head(s, g.d_qkv, g.batch, key_head), 0, s.seq, w.width, w.d_k);
  store(packed_head(s, g.d_qkv, g.batch, value_head), 0, s.seq, w.width, w.d_v);
}

}  // namespace

template <>
void attention_backward(const AttentionShape& shape, const float* qkv, const float* out,
                        const float* log_sum_exp, const float* d_out, float* d_qkv) {
  check_attention(shape);
  parallel_for(shape.batch * shape.kv_heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      backward_group(Group{shape, i / shape.kv_heads, i % shape.kv_heads, qkv, out, log_sum_exp,
                           d_out, d_qkv});
    }
  });
}

}  // namespace moestro::kernels
