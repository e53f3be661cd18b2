#pragma once
// Causal softmax attention over packed q | k | v rows, in blocks with an online softmax: the scores
// of one block exist at a time, never the S x S matrix (Dao et al., FlashAttention, 2022).

#include <cstdint>

#include "moestro/kernels/bf16.h"

namespace moestro::kernels {

/// Rows are tokens: row b * seq + s holds heads q heads, then kv_heads k heads, then kv_heads v
/// heads, each head_dim wide. Query head h reads KV head h * kv_heads / heads.
struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  float scale = 0.0F;       // multiplies q . k; positive
  std::int64_t window = 0;  // key j is visible to query i iff 0 <= i - j < window; 0: all j <= i

  [[nodiscard]] std::int64_t row() const { return (heads + 2 * kv_heads) * head_dim; }
};

/// Shapes: qkv [batch * seq, row()], out [batch * seq, heads * head_dim],
/// log_sum_exp [batch, heads, seq]. Blocks outside the window are skipped. Errors: internal, if the
/// shape makes no sense.
template <class T>
void attention_forward(const AttentionShape& shape, const T* qkv, T* out, float* log_sum_exp);

/// Gradient of qkv from that of out; recomputes the probabilities block by block.
/// Shapes: d_qkv [batch * seq, row()], written whole. Parallel over (batch, kv head): no atomics,
/// same bits for any number of threads. Cost: extra memory O(seq * head_dim) per thread.
template <class T>
void attention_backward(const AttentionShape& shape, const T* qkv, const T* out,
                        const float* log_sum_exp, const T* d_out, T* d_qkv);

// Both have products of their own that leave out what is not seen; bf16 takes those of gemm.h
// where these run on AMX tiles, and on CPUs that multiply no bf16.
template <>
void attention_forward(const AttentionShape&, const float*, float*, float*);
template <>
void attention_forward(const AttentionShape&, const bf16*, bf16*, float*);
template <>
void attention_backward(const AttentionShape&, const float*, const float*, const float*,
                        const float*, float*);
template <>
void attention_backward(const AttentionShape&, const bf16*, const bf16*, const float*, const bf16*,
                        bf16*);

}  // namespace moestro::kernels
