#pragma once
// The operations a decoder is made of. Each has one meaning: on the CPU it runs kernels/, elsewhere
// (or when Context::use_aten says so) the ATen formula beside it. T = context.tokens(); "dtype" is
// the compute dtype; the residual stream is always f32.
//
// Every op saves what its backward needs and returns a tensor that torch's autograd can chain.
// Weight gradients of embedding, projections, experts and router go through Context::queue, if
// there is one. Those of norm weights do not: they are sums over rows that backward reads anyway.
// Nor does that of the head, which its forward makes.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "moestro/layers/autograd.h"
#include "moestro/layers/context.h"
#include "moestro/layers/parameter.h"
#include "moestro/model/model_config.h"

namespace moestro::layers {

/// residual stream = multiplier * table[ids]. The row of `padding` gets no gradient from here, as
/// torch's padding_idx. Shapes: ids [T] int64, table [vocab, hidden], result [T, hidden] f32.
[[nodiscard]] at::Tensor embed(const Context& context, const at::Tensor& ids, Parameter& table,
                               double multiplier, std::optional<std::int64_t> padding);

/// RMSNorm. Shapes: x [T, hidden] f32, weight [hidden], result [T, hidden] dtype.
[[nodiscard]] at::Tensor rms_norm(const Context& context, const at::Tensor& x, Parameter& weight,
                                  double epsilon);

/// x W^T + b. Shapes: x [T, in] dtype, weight [out, in], bias [out] or null, result [T, out] dtype.
[[nodiscard]] at::Tensor linear(const Context& context, const at::Tensor& x, Parameter& weight,
                                Parameter* bias);

/// residual + multiplier * (x W^T + b). Shapes: as linear; residual and result [T, out] f32.
[[nodiscard]] at::Tensor linear_residual(const Context& context, const at::Tensor& x,
                                         Parameter& weight, Parameter* bias,
                                         const at::Tensor& residual, double multiplier);

/// silu(gate) * up. Shapes: gate_up [T, 2 * width] dtype, result [T, width] dtype.
[[nodiscard]] at::Tensor swiglu(const Context& context, const at::Tensor& gate_up);

/// Cosines and sines of the rotary embedding. Shapes: [seq or more, half] f32,
/// half = rotated dims / 2; undefined tensors mean no rotation.
struct RopeTables {
  at::Tensor cos, sin;
  bool interleaved = false;
};

/// What a softmax-attention op needs beside its input.
struct AttentionSpec {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  double scale = 0.0;
  std::int64_t window = 0;  // 0: full causal
  model::QkNorm qk_norm = model::QkNorm::none;
  double norm_epsilon = 0.0;
  std::optional<double> clip_qkv;
  Parameter* q_norm = nullptr;
  Parameter* k_norm = nullptr;
  RopeTables rope;
};

/// Causal attention over packed q | k | v: q/k norm, clipping, RoPE, softmax.
/// Shapes: qkv [T, (heads + 2 kv_heads) * head_dim] dtype, result [T, heads * head_dim] dtype.
/// Source: Vaswani et al. 2017; blocked as FlashAttention (Dao et al. 2022).
[[nodiscard]] at::Tensor attention(const Context& context, const at::Tensor& qkv,
                                   const AttentionSpec& spec);

/// Which expert gets which token, and how much of its answer counts. n = T * top_k token slots;
/// slot t * top_k + j is the j-th choice of token t. Rows of an expert are in token order.
struct Routing {
  at::Tensor weight;       // [T, top_k] f32, differentiable
  at::Tensor index;        // [T, top_k] int64
  at::Tensor offset;       // [experts + 1] int64: rows of expert e are offset[e] .. offset[e + 1]
  at::Tensor slot_of_row;  // [n] int64
  at::Tensor row_of_slot;  // [n] int64
};

/// Scores every expert for every token and chooses. Adds the balancing gradients of
/// context.balance in backward. Shapes: h [T, hidden] dtype, weight [experts, hidden],
/// bias [experts] or null, selection_bias [experts] f32 or undefined.
/// Source: models.md section 2 of the families; auxiliary loss in Megatron-Core's form, per layer
/// and shard: experts / (T^2 top_k) * sum_e tokens_e * sum_t score_te.
[[nodiscard]] Routing route(const Context& context, const at::Tensor& h,
                            const model::RouterConfig& config, int layer, Parameter& weight,
                            Parameter* bias, const at::Tensor& selection_bias);

/// residual + multiplier * sum_j weight_tj * expert_{index_tj}(h_t), experts being SwiGLU MLPs.
/// Shapes: h [T, hidden] dtype, gate_up [experts, 2 * width, hidden] (gate first),
/// down [experts, hidden, width], residual and result [T, hidden] f32. Saves only h and the
/// gate_up outputs: activations are recomputed.
[[nodiscard]] at::Tensor experts(const Context& context, const at::Tensor& h,
                                 const Routing& routing, Parameter& gate_up, Parameter& down,
                                 const at::Tensor& residual, double multiplier);

/// scale * sum over tokens of the cross-entropy of softmax(h W^T / divisor) against labels.
/// Forward and backward in one pass over row chunks, so that at most one chunk of logits exists:
/// gradients of h and the head are ready when this returns (the head unit of a schedule), and
/// backward must be started with a gradient of exactly 1. Shapes: h [T, hidden] dtype, weight
/// [vocab, hidden], labels [T] int64 (-100: ignored), result scalar (f64 by kernels).
[[nodiscard]] at::Tensor head_loss(const Context& context, const at::Tensor& h, Parameter& weight,
                                   const at::Tensor& labels, double scale, double divisor);

/// Logits without loss, for checks and sampling. Shapes: result [T, vocab] f32.
[[nodiscard]] at::Tensor head_logits(const Context& context, const at::Tensor& h, Parameter& weight,
                                     double divisor);

}  // namespace moestro::layers
