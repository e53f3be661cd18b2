// Qwen3-MoE, Qwen3-Next and Qwen3.5-MoE: q/k norms per head; the latter two mix Gated DeltaNet with
// gated full attention, have a gated shared expert and zero-centred norms.

#include "moestro/core/text.h"
#include "moestro/model/internal/common_fields.h"
#include "moestro/model/internal/families.h"

namespace moestro::model::internal {
namespace {

constexpr std::int64_t kHybridHeadDim = 256;
constexpr std::string_view kAlwaysNormed = "this family always has q/k norms";

/// layer_types, or every full_attention_interval-th layer full attention, the rest Gated DeltaNet.
void apply_hybrid_mixers(const ConfigObject& config, std::vector<LayerConfig>& layers) {
  const std::vector<std::string> types = read_layer_types(config, {"layer_types"}, layers.size(),
                                                          {"linear_attention", "full_attention"});
  constexpr std::string_view kInterval = "full_attention_interval";
  const std::int64_t interval = types.empty() ? config.size_or_class({kInterval}, 4, kLayerRange)
                                              : config.size_or({kInterval}, 4, kLayerRange);
  bool disagrees = false;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const bool by_interval = (static_cast<std::int64_t>(i) + 1) % interval == 0;
    const bool is_full = types.empty() ? by_interval : types[i] == "full_attention";
    disagrees = disagrees || is_full != by_interval;
    layers[i].mixer = is_full ? MixerKind::attention : MixerKind::gated_delta_net;
    layers[i].has_rope = is_full;
  }
  if (disagrees && config.mentions({kInterval})) {
    config.findings().overrides.push_back(
        fmt::format("{}layer_types overrides {} = {}", config.path(), kInterval, interval));
  }
}

GatedDeltaNetConfig read_delta_net(const ConfigObject& config) {
  GatedDeltaNetConfig net;
  net.key_heads = config.size({"linear_num_key_heads"}, kHeadRange);
  net.key_head_dim = config.size({"linear_key_head_dim"}, kHeadRange);
  net.value_heads = config.size({"linear_num_value_heads"}, kHeadRange);
  net.value_head_dim = config.size({"linear_value_head_dim"}, kHeadRange);
  net.conv_kernel = config.size({"linear_conv_kernel_dim"}, kHeadRange);
  return net;
}

/// What Qwen3-Next and Qwen3.5 share.
ModelConfig read_hybrid(const ConfigObject& config, Family family) {
  ModelConfig model = read_base(config, family);
  require_silu(config);
  model.layers = read_attention_layers(config);
  apply_hybrid_mixers(config, model.layers);
  AttentionRule rule;
  rule.default_head_dim = kHybridHeadDim;
  rule.omits_bias = family == Family::qwen3_next;
  model.attention = read_attention(config, model.hidden, rule);
  model.attention.qk_norm = QkNorm::per_head;
  expect_flag(config, "use_qk_norm", true, kAlwaysNormed);
  config.carries({"intermediate_size"});  // where no layer is dense
  model.attention.has_output_gate = true;
  if (!config.flag_or({"attn_output_gate"}, true)) {
    throw config.error("attn_output_gate",
                       "expected true, got false; attention of this family always has a gate");
  }
  config.carries({"linear_num_key_heads", "linear_key_head_dim", "linear_num_value_heads",
                  "linear_value_head_dim", "linear_conv_kernel_dim"});  // where no layer is linear
  if (any_layer(model.layers, MixerKind::gated_delta_net)) {
    model.gated_delta_net = read_delta_net(config);
  }
  model.rope = read_rope(config, model.max_positions,
                         {.head_dim = model.attention.head_dim, .default_partial = 0.25});
  model.norm = NormKind::rms_zero_centred;
  model.norm_epsilon = config.real_or_class({"rms_norm_eps"}, 1e-6, kEpsilonBounds);
  model.moe.router = read_router(config);
  model.moe.expert_width = config.size({"moe_intermediate_size"}, kWidthRange);
  model.moe.shared_width = config.size({"shared_expert_intermediate_size"}, kWidthRange);
  model.moe.has_shared_gate = true;
  return model;
}

/// sliding_window holds for every layer, but only with use_sliding_window.
void apply_switched_window(const ConfigObject& config, std::vector<LayerConfig>& layers) {
  const bool is_given = config.find({"sliding_window"}) != nullptr;
  const bool is_null = !is_given && config.mentions({"sliding_window"});
  const bool is_used = is_given ? config.flag_or_class({"use_sliding_window"}, false)
                                : config.flag_or({"use_sliding_window"}, false);
  constexpr std::string_view kFirst = "max_window_layers";  // of Qwen's own code
  if (!is_used || is_null) return config.carries({kFirst});
  apply_window(layers, config.size({"sliding_window"}, kPositionRange));
  if (config.size_or({kFirst}, 0, {0, kLayerRange.max}) > 0) {
    config.note_doubt(kFirst, *config.find({kFirst}),
                      "transformers windows all layers of this family, the first ones, too");
  }
}

}  // namespace

ModelConfig read_qwen3_moe(const ConfigObject& config) {
  ModelConfig model = read_base(config, Family::qwen3_moe);
  require_silu(config);
  model.layers = read_attention_layers(config);
  apply_sparse_step(config, model.layers);
  apply_switched_window(config, model.layers);
  model.attention = read_attention(config, model.hidden, {});
  model.attention.qk_norm = QkNorm::per_head;
  expect_flag(config, "use_qk_norm", true, kAlwaysNormed);
  config.carries({"intermediate_size"});  // where no layer is dense
  model.rope = read_rope(config, model.max_positions, {.head_dim = model.attention.head_dim});
  model.norm_epsilon = config.real_or_class({"rms_norm_eps"}, 1e-6, kEpsilonBounds);
  if (any_layer(model.layers, FfnKind::dense)) {
    model.dense_width = config.size({"intermediate_size"}, kWidthRange);
  }
  model.moe.router = read_router(config);
  model.moe.router.renormalise = config.flag_or_class({"norm_topk_prob"}, false);
  model.moe.expert_width = config.size({"moe_intermediate_size"}, kWidthRange);
  return model;
}

ModelConfig read_qwen3_next(const ConfigObject& config) {
  ModelConfig model = read_hybrid(config, Family::qwen3_next);
  apply_sparse_step(config, model.layers);
  if (any_layer(model.layers, FfnKind::dense)) {
    model.dense_width = config.size({"intermediate_size"}, kWidthRange);
  }
  model.moe.router.renormalise = config.flag_or_class({"norm_topk_prob"}, true);
  return model;
}

ModelConfig read_qwen3_5_moe(const ConfigObject& config) {
  ModelConfig model = read_hybrid(config, Family::qwen3_5_moe);
  // Every layer is routed and weights are renormalised, whatever older keys say.
  for (LayerConfig& layer : model.layers) layer.ffn = FfnKind::moe;
  model.moe.router.renormalise = true;
  expect_flag(config, "norm_topk_prob", true, "this family always renormalises");
  config.carries({"decoder_sparse_step"});
  // transformers has no such key: its files leave it out, and hold no such layers.
  model.mtp.layers = config.size_or({"mtp_num_hidden_layers"}, 0, kPredictionRange);
  if (model.mtp.layers > 0) {
    LayerConfig block;
    block.ffn = FfnKind::moe;
    model.mtp.blocks = {block};
    model.mtp.has_own_embedding = config.flag_or_class({"mtp_use_dedicated_embeddings"}, false);
  }
  return model;
}

}  // namespace moestro::model::internal
