#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "moestro/kernels/internal/attention_block.h"
#include "moestro/kernels/internal/attention_panel.h"
#include "moestro/kernels/internal/scratch.h"
#include "moestro/kernels/parallel.h"

namespace moestro::kernels::internal {
namespace {

/// What a block reads and writes.
template <class T>
struct Problem {
  const AttentionShape& shape;
  const T* qkv;
  T* out;
  float* log_sum_exp;
};

/// Work memory of a block.
template <class T>
struct Work {
  std::int64_t width;  // of padded rows
  Cell<T>* q;          // [panels, cells of width, kPanel]
  T* q_rows;           // [kPanel, width]
  T *k, *v;            // [kChunk, width]
  Cell<T>* v_right;    // see right_side()
  float* scores;       // [kChunk, kPanel]
  T* probabilities;    // see rows_are_queries()
  float* sums;         // [panels, kPanel, width]

  explicit Work(std::int64_t head_dim)
      : width(round_up(head_dim)),
        q(scratch<Cell<T>>(Purpose::head_queries, kBlockPanels * columns_size())),
        q_rows(scratch<T>(Purpose::head_rows, panel_size())),
        k(scratch<T>(Purpose::head_keys, kChunk * width)),
        v(scratch<T>(Purpose::head_values, kChunk * width)),
        v_right(scratch<Cell<T>>(Purpose::right_side, right_side_size<T>(kChunk, width))),
        scores(scratch<float>(Purpose::scores, kChunk * kPanel)),
        probabilities(scratch<T>(Purpose::probabilities, left_side_size<T>())),
        sums(scratch<float>(Purpose::head_out, kBlockPanels * panel_size())) {}

  [[nodiscard]] std::int64_t panel_size() const { return kPanel * width; }
  [[nodiscard]] std::int64_t columns_size() const { return panel_size() / kDepthOfCell<Cell<T>>; }
  [[nodiscard]] Cell<T>* q_of(std::int64_t panel) const { return q + panel * columns_size(); }
  [[nodiscard]] float* sums_of(std::int64_t panel) const { return sums + panel * panel_size(); }
};

/// One chunk of keys, in w.k, and values, as the right side v, and one panel: its queries, its
/// running sums and state.
template <class T>
void attend(const AttentionShape& s, const Panel& panel, const Work<T>& w, const Cell<T>* q,
            const Cell<T>* v, float* sums, SoftmaxState& state) {
  multiply(Product<Cell<T>>{panel.keys,
                            round_up(panel.queries),
                            s.head_dim,
                            by_rows(Rows<const T>{w.k, w.width}),
                            {q, kPanel},
                            {w.scores, kPanel},
                            panel.queries_of_key(),
                            s.scale});
  softmax(panel, w.scores, state);
  rescale_rows(panel.queries, w.width, state.rescale, sums);
  add_product(Product<Cell<T>>{panel.queries,
                               w.width,
                               panel.keys,
                               rows_are_queries(panel, w.scores, w.probabilities),
                               {v, w.width},
                               {sums, w.width},
                               panel.keys_of_query()});
}

template <class T>
void forward_block(const Problem<T>& p, std::int64_t batch, std::int64_t kv_head,
                   std::int64_t block_index) {
  const AttentionShape& s = p.shape;
  const PanelBlock block(s, kv_head, block_index);
  const Work<T> w(s.head_dim);
  std::array<SoftmaxState, kBlockPanels> states;
  for (std::int64_t i = 0; i < block.count; ++i) {
    const auto& [head, query, queries] = block.panels[i];
    pack_rows(packed_head(s, p.qkv, batch, head), query, queries, w.q_rows);
    transpose_panel(queries, s.head_dim, {w.q_rows, w.width}, w.q_of(i));
    std::fill_n(states[i].peak, kPanel, std::numeric_limits<float>::lowest());
    std::fill_n(states[i].sum, kPanel, 0.0F);
    std::fill_n(w.sums_of(i), queries * w.width, 0.0F);
  }
  const auto k = packed_head(s, p.qkv, batch, s.heads + kv_head);
  const auto v = packed_head(s, p.qkv, batch, s.heads + s.kv_heads + kv_head);
  const Cell<T>* v_right = nullptr;
  block.for_chunks(
      [&](std::int64_t key, std::int64_t keys) {
        pack_rows(k, key, keys, w.k);
        pack_rows(v, key, keys, w.v);
        v_right = right_side(keys, w.width, w.v, w.v_right);
      },
      [&](std::int64_t i, const Panel& panel) {
        attend(s, panel, w, w.q_of(i), v_right, w.sums_of(i), states[i]);
      });
  for (std::int64_t i = 0; i < block.count; ++i) {
    const auto& [head, query, queries] = block.panels[i];
    const SoftmaxState& state = states[i];
    write_out(out_head(s, p.out, batch, head), query, queries, w.width, w.sums_of(i), state.sum);
    float* lse = p.log_sum_exp + (batch * s.heads + head) * s.seq + query;
    for (std::int64_t j = 0; j < queries; ++j) lse[j] = state.peak[j] + std::log(state.sum[j]);
  }
}

}  // namespace

template <class T>
void panel_attention_forward(const AttentionShape& shape, const T* qkv, T* out,
                             float* log_sum_exp) {
  const Problem<T> problem{shape, qkv, out, log_sum_exp};
  const std::int64_t blocks = num_blocks(shape);
  parallel_for(shape.batch * shape.kv_heads * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t block = blocks - 1 - i % blocks;  // the longest first
      forward_block(problem, i / blocks / shape.kv_heads, i / blocks % shape.kv_heads, block);
    }
  });
}

template void panel_attention_forward(const AttentionShape&, const float*, float*, float*);
template void panel_attention_forward(const AttentionShape&, const bf16*, bf16*, float*);

}  // namespace moestro::kernels::internal
