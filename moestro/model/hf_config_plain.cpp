// Families whose layers are all alike but for a window: Mixtral, OLMoE, Granite-MoE, Phi-MoE,
// gpt-oss. Every FFN is routed.

#include <nlohmann/json.hpp>

#include "moestro/core/text.h"
#include "moestro/model/internal/common_fields.h"
#include "moestro/model/internal/families.h"

namespace moestro::model::internal {
namespace {

constexpr std::string_view kAlwaysRenormalised = "this family always renormalises";

/// Layers with routed FFNs, and the experts' shape: intermediate_size is their width.
ModelConfig read_routed(const ConfigObject& config, Family family) {
  ModelConfig model = read_base(config, family);
  model.layers = read_attention_layers(config);
  for (LayerConfig& layer : model.layers) layer.ffn = FfnKind::moe;
  model.moe.router = read_router(config);
  model.moe.expert_width = config.size({"intermediate_size"}, kWidthRange);
  return model;
}

/// A non-null sliding_window holds for every layer.
void apply_optional_window(const ConfigObject& config, std::vector<LayerConfig>& layers) {
  apply_window(layers, config.size_or({"sliding_window"}, 0, kPositionRange));
}

/// layer_types, or sliding and full attention by turns.
void apply_alternating_windows(const ConfigObject& config, std::vector<LayerConfig>& layers) {
  const std::vector<std::string> types = read_layer_types(config, {"layer_types"}, layers.size(),
                                                          {"sliding_attention", "full_attention"});
  if (types.empty()) {
    config.note_class_default("layer_types", "sliding_attention and full_attention by turns");
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const bool is_sliding = types.empty() ? i % 2 == 0 : types[i] == "sliding_attention";
    if (is_sliding) layers[i].window = config.size({"sliding_window"}, kPositionRange);
  }
}

/// The rotary embedding gpt-oss has when the file says nothing: YaRN by 32 from 4096.
Rope default_gpt_oss_rope(const ConfigObject& config, const ModelConfig& model) {
  Rope rope = read_rope(config, model.max_positions,
                        {.head_dim = model.attention.head_dim, .default_theta = 150000.0});
  rope.kind = RopeKind::yarn;
  rope.factor = 32.0;
  rope.original_max_positions = 4096;
  rope.truncate = false;
  config.note_class_default("rope_parameters", "yarn by 32 from 4096");
  return rope;
}

/// A second spelling of the positions before scaling, which does not count.
void check_initial_context(const ConfigObject& config, const Rope& rope) {
  constexpr std::string_view kKey = "initial_context_length";
  const std::int64_t original = rope.original_max_positions;
  if (original == 0 || config.find({kKey}) == nullptr) return config.carries({kKey});
  if (config.size({kKey}, kPositionRange) == original) return;
  config.note_doubt(kKey, *config.find({kKey}),
                    fmt::format("original_max_position_embeddings = {} counts", original));
}

}  // namespace

ModelConfig read_mixtral(const ConfigObject& config) {
  ModelConfig model = read_routed(config, Family::mixtral);
  require_silu(config);
  apply_optional_window(config, model.layers);
  AttentionRule rule;
  rule.omits_head_dim = true;
  rule.honours_bias = false;
  model.attention = read_attention(config, model.hidden, rule);
  model.rope = read_rope(config, model.max_positions,
                         {.head_dim = model.attention.head_dim, .default_theta = 1000000.0});
  model.norm_epsilon = config.real_or_class({"rms_norm_eps"}, 1e-5, kEpsilonBounds);
  model.moe.router.renormalise = true;
  expect_flag(config, "norm_topk_prob", true, kAlwaysRenormalised);
  return model;
}

ModelConfig read_olmoe(const ConfigObject& config) {
  ModelConfig model = read_routed(config, Family::olmoe);
  require_silu(config);
  AttentionRule rule;
  rule.kv_heads_default_to_heads = true;
  rule.omits_head_dim = true;
  model.attention = read_attention(config, model.hidden, rule);
  model.attention.qk_norm = QkNorm::whole;
  expect_flag(config, "use_qk_norm", true, "this family always has q/k norms");
  if (model.attention.heads * model.attention.head_dim != model.hidden) {
    throw config.error(
        "head_dim",
        "expected hidden_size / num_attention_heads ({} / {}), since the norm of the "
        "queries spans hidden_size, got {}; make them agree or leave it out",
        model.hidden, model.attention.heads, model.attention.head_dim);
  }
  model.attention.clip_qkv = config.optional_real({"clip_qkv"}, kScaleBounds);
  model.rope = read_rope(config, model.max_positions, {.head_dim = model.attention.head_dim});
  model.norm_epsilon =
      config.real_or({"rms_norm_eps"}, 1e-5, kEpsilonBounds);  // published file: missing
  model.moe.router.renormalise = config.flag_or_class({"norm_topk_prob"}, false);
  return model;
}

ModelConfig read_granitemoe(const ConfigObject& config) {
  ModelConfig model = read_routed(config, Family::granitemoe);
  require_silu(config);
  AttentionRule rule;
  rule.kv_heads_default_to_heads = true;
  rule.omits_head_dim = true;
  model.attention = read_attention(config, model.hidden, rule);
  model.attention.scale = config.real_or_class({"attention_multiplier"}, 1.0, kScaleBounds);
  model.embedding_multiplier = config.real_or_class({"embedding_multiplier"}, 1.0, kScaleBounds);
  model.residual_multiplier = config.real_or_class({"residual_multiplier"}, 1.0, kScaleBounds);
  model.logits_divisor = config.real_or_class({"logits_scaling"}, 1.0, kScaleBounds);
  model.rope = read_rope(config, model.max_positions, {.head_dim = model.attention.head_dim});
  model.norm_epsilon = config.real_or_class({"rms_norm_eps"}, 1e-6, kEpsilonBounds);
  model.moe.router.score = ScoreKind::softmax_of_chosen;
  expect_flag(config, "norm_topk_prob", true, kAlwaysRenormalised);
  return model;
}

ModelConfig read_phimoe(const ConfigObject& config) {
  ModelConfig model = read_routed(config, Family::phimoe);
  require_silu(config);
  if (!config.mentions({"sliding_window"})) config.note_class_default("sliding_window", "null");
  apply_optional_window(config, model.layers);
  AttentionRule rule;
  rule.omits_head_dim = true;
  model.attention = read_attention(config, model.hidden, rule);
  model.rope = read_rope(config, model.max_positions,
                         {.head_dim = model.attention.head_dim,
                          .default_theta = 1000000.0,
                          .published_keys = {"rope_scaling", "short_mscale", "long_mscale"}});
  model.norm = NormKind::layer_norm;
  model.norm_epsilon = config.real_or_class({"rms_norm_eps"}, 1e-5, kEpsilonBounds);
  model.head_bias = config.flag_or_class({"lm_head_bias"}, false);
  model.moe.router.score = ScoreKind::sparsemixer;
  if (model.moe.router.top_k != 2) {
    config.note_doubt("num_experts_per_tok", *config.find({"num_experts_per_tok"}),
                      "the sparsemixer of transformers always chooses 2");
  }
  model.moe.router.sparsemixer_epsilon =
      config.real_or({"router_jitter_noise"}, 0.01, kNoiseBounds);
  return model;
}

ModelConfig read_gpt_oss(const ConfigObject& config) {
  ModelConfig model = read_routed(config, Family::gpt_oss);
  require_silu(config);  // what the files say; the experts compute something like it
  model.activation = Activation::clamped_swiglu;
  model.swiglu_alpha = config.real_or({"swiglu_alpha"}, model.swiglu_alpha, kScaleBounds);
  model.swiglu_limit = config.real_or_class({"swiglu_limit"}, model.swiglu_limit, kScaleBounds);
  apply_alternating_windows(config, model.layers);
  config.carries({"sliding_window"});  // where no layer slides
  AttentionRule rule;
  rule.default_head_dim = 64;
  rule.default_bias = true;
  model.attention = read_attention(config, model.hidden, rule);
  model.attention.has_sinks = true;
  const bool has_rope =
      config.find({"rope_parameters"}) != nullptr || config.find({"rope_scaling"}) != nullptr;
  model.rope = has_rope ? read_rope(config, model.max_positions,
                                    {.head_dim = model.attention.head_dim,
                                     .default_theta = 150000.0,
                                     .published_keys = {"beta_fast", "beta_slow", "truncate"}})
                        : default_gpt_oss_rope(config, model);
  model.norm_epsilon = config.real_or_class({"rms_norm_eps"}, 1e-5, kEpsilonBounds);
  model.moe.router.score = ScoreKind::softmax_of_chosen;
  expect_flag(config, "norm_topk_prob", true, kAlwaysRenormalised);
  check_initial_context(config, model.rope);
  model.moe.router.has_linear_bias = true;
  model.moe.expert_bias = true;
  return model;
}

}  // namespace moestro::model::internal
