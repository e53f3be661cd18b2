#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "moestro/kernels/attention.h"
#include "moestro/kernels/internal/attention_block.h"
#include "moestro/kernels/internal/attention_panel.h"
#include "moestro/kernels/internal/scratch.h"
#include "moestro/kernels/parallel.h"

namespace moestro::kernels {
namespace {

using internal::check_attention;
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
using internal::Purpose;
using internal::round_up;
using internal::Rows;
using internal::rows_from;
using internal::scratch;
using internal::SoftmaxState;
using internal::transpose_panel;

/// What a block reads and writes.
struct Problem {
  const AttentionShape& shape;
  const float* qkv;
  float* out;
  float* log_sum_exp;
};

/// Work memory of a block.
struct Work {
  std::int64_t width;  // of padded rows
  float* q;            // [panels, head_dim, kPanel], scaled
  float* k;            // [kChunk, width]
  float* v;            // the same
  float* scores;       // [kChunk, kPanel]
  float* sums;         // [panels, kPanel, width]

  explicit Work(std::int64_t head_dim)
      : width(round_up(head_dim)),
        q(scratch<float>(Purpose::head_queries, kBlockPanels * kPanel * head_dim)),
        k(scratch<float>(Purpose::head_keys, kChunk * width)),
        v(scratch<float>(Purpose::head_values, kChunk * width)),
        scores(scratch<float>(Purpose::scores, kChunk * kPanel)),
        sums(scratch<float>(Purpose::head_out, kBlockPanels * kPanel * width)) {}
};

/// One chunk of keys, in w.k and w.v, and one panel: its queries q, its running sums and state.
void attend(const Panel& panel, std::int64_t head_dim, const Work& w, const Rows<const float>& q,
            const Rows<float>& sums, SoftmaxState& state) {
  const PanelKernels& kernels = internal::supported_panel_kernels().back();
  const Rows<float> scores{w.scores, kPanel};
  kernels.multiply({panel.keys, round_up(panel.queries), head_dim,
                    internal::by_rows({w.k, w.width}), q, scores, panel.queries_of_key()});
  kernels.softmax(panel, w.scores, state);
  internal::rescale_rows(panel.queries, w.width, state.rescale, sums.data);
  const Rows<const float> v{w.v, w.width};
  kernels.add_product(
      {panel.queries, w.width, panel.keys, by_columns(scores), v, sums, panel.keys_of_query()});
}

void forward_block(const Problem& p, std::int64_t batch, std::int64_t kv_head,
                   std::int64_t block_index) {
  const AttentionShape& s = p.shape;
  const PanelBlock block(s, kv_head, block_index);
  const Work w(s.head_dim);
  const std::int64_t q_size = s.head_dim * kPanel;
  const std::int64_t sums_size = kPanel * w.width;
  std::array<SoftmaxState, kBlockPanels> states;
  for (std::int64_t i = 0; i < block.count; ++i) {
    const auto& [head, query, queries] = block.panels[i];
    transpose_panel(queries, s.head_dim, s.scale,
                    rows_from(packed_head(s, p.qkv, batch, head), query), w.q + i * q_size);
    std::fill_n(states[i].peak, kPanel, std::numeric_limits<float>::lowest());
    std::fill_n(states[i].sum, kPanel, 0.0F);
    std::fill_n(w.sums + i * sums_size, queries * w.width, 0.0F);
  }
  const auto k = packed_head(s, p.qkv, batch, s.heads + kv_head);
  const auto v = packed_head(s, p.qkv, batch, s.heads + s.kv_heads + kv_head);
  block.for_chunks(
      [&](std::int64_t key, std::int64_t keys) {
        pack_rows(k, key, keys, w.k);
        pack_rows(v, key, keys, w.v);
      },
      [&](std::int64_t i, const Panel& panel) {
        attend(panel, s.head_dim, w, {w.q + i * q_size, kPanel}, {w.sums + i * sums_size, w.width},
               states[i]);
      });
  for (std::int64_t i = 0; i < block.count; ++i) {
    const auto& [head, query, queries] = block.panels[i];
    const SoftmaxState& state = states[i];
    internal::write_out(out_head(s, p.out, batch, head), query, queries, w.width,
                        w.sums + i * sums_size, state.sum);
    float* lse = p.log_sum_exp + (batch * s.heads + head) * s.seq + query;
    for (std::int64_t j = 0; j < queries; ++j) lse[j] = state.peak[j] + std::log(state.sum[j]);
  }
}

}  // namespace

template <>
void attention_forward(const AttentionShape& shape, const float* qkv, float* out,
                       float* log_sum_exp) {
  check_attention(shape);
  const Problem problem{shape, qkv, out, log_sum_exp};
  const std::int64_t blocks = num_blocks(shape);
  parallel_for(shape.batch * shape.kv_heads * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t block = blocks - 1 - i % blocks;  // the longest first
      forward_block(problem, i / blocks / shape.kv_heads, i / blocks % shape.kv_heads, block);
    }
  });
}

}  // namespace moestro::kernels
