#include "moestro/kernels/attention.h"

#include "moestro/core/error.h"
#include "moestro/kernels/gemm.h"
#include "moestro/kernels/internal/attention_block.h"
#include "moestro/kernels/internal/attention_panel.h"

namespace moestro::kernels {
namespace {

void check(const AttentionShape& s) {
  MOESTRO_CHECK(
      s.batch >= 0 && s.seq >= 0 && s.head_dim > 0 && s.heads > 0 && s.kv_heads > 0 &&
          s.heads % s.kv_heads == 0 && s.window >= 0 && s.scale > 0.0F,
      "attention: batch {}, seq {}, {} heads, {} kv heads, head_dim {}, window {}, scale {}",
      s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, s.window, s.scale);
}

/// Whether bf16 goes by blocks: oneDNN's products are faster on AMX tiles, and where panels have no
/// instructions of their own for pairs.
bool goes_by_blocks() {
  return has_amx_bf16() || (has_gemm() && internal::supported_pair_kernels().size() == 1);
}

}  // namespace

template <>
void attention_forward(const AttentionShape& shape, const float* qkv, float* out,
                       float* log_sum_exp) {
  check(shape);
  internal::panel_attention_forward(shape, qkv, out, log_sum_exp);
}
template <>
void attention_forward(const AttentionShape& shape, const bf16* qkv, bf16* out,
                       float* log_sum_exp) {
  check(shape);
  if (goes_by_blocks()) {
    internal::block_attention_forward(shape, qkv, out, log_sum_exp);
  } else {
    internal::panel_attention_forward(shape, qkv, out, log_sum_exp);
  }
}

template <>
void attention_backward(const AttentionShape& shape, const float* qkv, const float* out,
                        const float* log_sum_exp, const float* d_out, float* d_qkv) {
  check(shape);
  internal::panel_attention_backward(shape, qkv, out, log_sum_exp, d_out, d_qkv);
}
template <>
void attention_backward(const AttentionShape& shape, const bf16* qkv, const bf16* out,
                        const float* log_sum_exp, const bf16* d_out, bf16* d_qkv) {
  check(shape);
  if (goes_by_blocks()) {
    internal::block_attention_backward(shape, qkv, out, log_sum_exp, d_out, d_qkv);
  } else {
    internal::panel_attention_backward(shape, qkv, out, log_sum_exp, d_out, d_qkv);
  }
}

}  // namespace moestro::kernels
