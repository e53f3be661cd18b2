#include "moestro/layers/half_layer.h"

#include <ATen/core/Tensor.h>

namespace moestro::layers {
namespace {

Parameter* optional(Parameter& parameter) {
  return parameter.defined() ? &parameter : nullptr;
}

AttentionSpec spec_of(const model::ModelConfig& config, int layer, AttentionWeights& weights,
                      const RopeTables& rope) {
  const model::AttentionConfig& a = config.attention;
  const model::LayerConfig& l = config.layers[static_cast<std::size_t>(layer)];
  return {.heads = a.heads,
          .kv_heads = a.kv_heads,
          .head_dim = a.head_dim,
          .scale = a.scale,
          .window = l.window,
          .qk_norm = a.qk_norm,
          .norm_epsilon = config.norm_epsilon,
          .clip_qkv = a.clip_qkv,
          .q_norm = optional(weights.q_norm),
          .k_norm = optional(weights.k_norm),
          .rope = l.has_rope ? rope : RopeTables{}};
}

at::Tensor mlp(const Context& context, const at::Tensor& h, MlpWeights& weights,
               const at::Tensor& residual, double multiplier) {
  const at::Tensor a = swiglu(context, linear(context, h, weights.gate_up, nullptr));
  return linear_residual(context, a, weights.down, nullptr, residual, multiplier);
}

}  // namespace

at::Tensor attention_half(const Context& context, const model::ModelConfig& config, int layer,
                          AttentionWeights& weights, const RopeTables& rope, const at::Tensor& x) {
  const at::Tensor h = rms_norm(context, x, weights.norm, config.norm_epsilon);
  const at::Tensor qkv = linear(context, h, weights.qkv, optional(weights.qkv_bias));
  const at::Tensor mixed = attention(context, qkv, spec_of(config, layer, weights, rope));
  return linear_residual(context, mixed, weights.output, optional(weights.output_bias), x,
                         config.residual_multiplier);
}

at::Tensor ffn_half(const Context& context, const model::ModelConfig& config, int layer,
                    LayerWeights& weights, const at::Tensor& x) {
  const at::Tensor h = rms_norm(context, x, weights.ffn_norm, config.norm_epsilon);
  const double multiplier = config.residual_multiplier;
  if (config.layers[static_cast<std::size_t>(layer)].ffn == model::FfnKind::dense) {
    return mlp(context, h, weights.dense, x, multiplier);
  }
  MoeWeights& moe = weights.moe;
  const Routing routing = route(context, h, config.moe.router, layer, moe.router,
                                optional(moe.router_bias), moe.selection_bias);
  at::Tensor y = experts(context, h, routing, moe.gate_up, moe.down, x, multiplier);
  if (moe.shared.gate_up.defined()) y = mlp(context, h, moe.shared, y, multiplier);
  return y;
}

}  // namespace moestro::layers
