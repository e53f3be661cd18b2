#pragma once
// The stages a schedule can place: attention half-layer and FFN half-layer. A decoder is an
// embedding, its half-layers in order, a final norm and a head (embed, rms_norm, head_loss of
// ops.h); the residual stream [T, hidden] f32 is what passes between them.

#include <ATen/core/Tensor.h>

#include "moestro/layers/context.h"
#include "moestro/layers/ops.h"
#include "moestro/layers/weights.h"
#include "moestro/model/model_config.h"

namespace moestro::layers {

/// x + residual_multiplier * output(attention(qkv(norm(x)))). Shapes: x and result [T, hidden] f32.
[[nodiscard]] at::Tensor attention_half(const Context& context, const model::ModelConfig& config,
                                        int layer, AttentionWeights& weights,
                                        const RopeTables& rope, const at::Tensor& x);

/// x + residual_multiplier * ffn(norm(x)), the FFN being dense or routed (plus shared) experts.
/// Shapes: x and result [T, hidden] f32.
[[nodiscard]] at::Tensor ffn_half(const Context& context, const model::ModelConfig& config,
                                  int layer, LayerWeights& weights, const at::Tensor& x);

}  // namespace moestro::layers
