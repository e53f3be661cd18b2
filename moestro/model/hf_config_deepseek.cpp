// DeepSeek (V1, V2, V3, R1, Kimi-K2) and GLM-4-MoE: leading dense layers, shared experts as one
// fused MLP, latent attention from V2 on, sigmoid routing with a selection bias from V3 on.

#include <cmath>

#include "moestro/core/text.h"
#include "moestro/model/internal/common_fields.h"
#include "moestro/model/internal/families.h"

namespace moestro::model::internal {
namespace {

/// MoE iff i >= first_k_dense_replace and i % moe_layer_freq == 0.
void apply_dense_prefix(const ConfigObject& config, std::vector<LayerConfig>& layers,
                        std::optional<std::int64_t> default_dense) {
  const auto count = static_cast<std::int64_t>(layers.size());
  const Range range{0, kLayerRange.max};  // more than there are layers: all are dense
  const std::int64_t dense =
      default_dense ? config.size_or_class({"first_k_dense_replace"}, *default_dense, range)
                    : config.size({"first_k_dense_replace"}, range);
  const std::int64_t frequency = config.size_or({"moe_layer_freq"}, 1, kLayerRange);
  if (frequency > 1) {
    config.note_doubt("moe_layer_freq", *config.find({"moe_layer_freq"}),
                      "followed as in DeepSeek's own code; transformers takes it for 1");
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const bool is_sparse = i >= dense && i % frequency == 0;
    layers[static_cast<std::size_t>(i)].ffn = is_sparse ? FfnKind::moe : FfnKind::dense;
  }
}

/// Null means none (DeepSeek V1).
std::int64_t read_shared_experts(const ConfigObject& config,
                                 std::optional<std::int64_t> default_shared) {
  constexpr std::string_view kKey = "n_shared_experts";
  const Range range{0, kExpertRange.max};
  if (config.mentions({kKey})) return config.size_or({kKey}, 0, range);
  return default_shared ? config.size_or_class({kKey}, *default_shared, range)
                        : config.size({kKey}, range);
}

/// Widths of dense layers, routed experts and the fused shared expert.
void read_widths(const ConfigObject& config, ModelConfig& model,
                 std::optional<std::int64_t> default_shared) {
  config.carries({"intermediate_size"});
  if (any_layer(model.layers, FfnKind::dense)) {
    model.dense_width = config.size({"intermediate_size"}, kWidthRange);
  }
  model.moe.expert_width = config.size({"moe_intermediate_size"}, kWidthRange);
  model.moe.shared_width = read_shared_experts(config, default_shared) * model.moe.expert_width;
}

/// A choice of text, or the error that lists the possible ones.
void require_choice(const ConfigObject& config, std::string_view key, std::string_view fallback,
                    const std::vector<std::string>& choices) {
  const std::string value = config.text_or({key}, fallback);
  for (const std::string& choice : choices) {
    if (value == choice) return;
  }
  throw config.error(key, "expected one of {}, got \"{}\"; this family has no other",
                     join(choices, ", "), printable(value));
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

void read_latent_attention(const ConfigObject& config, ModelConfig& model) {
  MlaConfig& mla = model.mla;
  config.carries({"head_dim"});
  mla.heads = config.size({"num_attention_heads"}, kHeadRange);
  if (config.size_or({"num_key_value_heads"}, mla.heads, kHeadRange) != mla.heads) {
    config.note_doubt("num_key_value_heads", *config.find({"num_key_value_heads"}),
                      "latent attention has as many as num_attention_heads");
  }
  mla.kv_lora_rank = config.size({"kv_lora_rank"}, kWidthRange);
  constexpr std::int64_t kDefaultQueryRank = 1536;  // when missing; null means no compression
  mla.q_lora_rank = config.mentions({"q_lora_rank"})
                        ? config.size_or({"q_lora_rank"}, 0, kWidthRange)
                        : config.size_or_class({"q_lora_rank"}, kDefaultQueryRank, kWidthRange);
  mla.qk_nope_head_dim = config.size({"qk_nope_head_dim"}, kHeadRange);
  mla.qk_rope_head_dim = config.size({"qk_rope_head_dim"}, kHeadRange);
  mla.v_head_dim = config.size({"v_head_dim"}, kHeadRange);
  const std::int64_t query_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
  if (config.size_or({"qk_head_dim"}, query_dim, kPositionRange) != query_dim) {
    throw config.error("qk_head_dim",
                       "expected qk_nope_head_dim + qk_rope_head_dim ({}), got {}; make them agree "
                       "or leave it out",
                       query_dim, config.shown(*config.find({"qk_head_dim"})));
  }
  mla.has_bias = config.flag_or_class({"attention_bias"}, false);
  RopeRule rule;
  rule.head_dim = mla.qk_rope_head_dim;
  rule.interleaved = config.flag_or({"rope_interleave"}, true);
  rule.published_keys = {"rope_scaling", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"};
  model.rope = read_rope(config, model.max_positions, rule);
  mla.scale = 1.0 / std::sqrt(static_cast<double>(query_dim));
  if (model.rope.kind == RopeKind::yarn && model.rope.mscale_all_dim) {
    const double mscale = yarn_mscale(model.rope.factor, *model.rope.mscale_all_dim);
    mla.scale *= mscale * mscale;
  }
  for (LayerConfig& layer : model.layers) layer.mixer = MixerKind::mla;
}

/// Sigmoid scores, a selection bias, groups judged by their two best, renormalised and scaled.
void read_sigmoid_router(const ConfigObject& config, RouterConfig& router) {
  require_choice(config, "scoring_func", "sigmoid", {"sigmoid"});
  require_choice(config, "topk_method", "noaux_tc", {"noaux_tc"});
  router.score = ScoreKind::sigmoid;
  router.has_selection_bias = true;
  router.group_score = GroupScore::sum_of_two_best;
  router.renormalise = config.flag_or_class({"norm_topk_prob"}, true);
}

/// One further decoder layer per depth, which stores copies of embedding and head.
void read_prediction(const ConfigObject& config, ModelConfig& model) {
  model.mtp.layers =
      config.size_or_class({"num_nextn_predict_layers", "num_mtp_layers"}, 1, kPredictionRange);
  if (model.mtp.layers == 0) return;
  LayerConfig block = model.layers.back();
  block.ffn = FfnKind::moe;
  model.mtp.blocks = {block};
  model.mtp.has_own_embedding = true;
}

}  // namespace

ModelConfig read_deepseek_v1(const ConfigObject& config) {
  ModelConfig model = read_base(config, Family::deepseek_v1);
  require_silu(config);
  model.layers = read_attention_layers(config);
  apply_dense_prefix(config, model.layers, std::nullopt);
  AttentionRule rule;
  rule.kv_heads_default_to_heads = true;
  rule.omits_head_dim = true;
  model.attention = read_attention(config, model.hidden, rule);
  model.rope = read_rope(config, model.max_positions, {.head_dim = model.attention.head_dim});
  model.norm_epsilon = config.real_or_class({"rms_norm_eps"}, 1e-6, kEpsilonBounds);
  model.moe.router = read_router(config);
  model.moe.router.aux_loss_coefficient =
      config.real_or({"aux_loss_alpha"}, 0.0, kCoefficientBounds);
  require_choice(config, "scoring_func", "softmax", {"softmax"});
  // DeepSeek's own gate leaves the score of a single expert as it is.
  model.moe.router.renormalise =
      config.flag_or_class({"norm_topk_prob"}, false) && model.moe.router.top_k > 1;
  read_widths(config, model, std::nullopt);
  return model;
}

ModelConfig read_deepseek_v2(const ConfigObject& config) {
  ModelConfig model = read_base(config, Family::deepseek_v2);
  require_silu(config);
  model.layers = read_attention_layers(config);
  apply_dense_prefix(config, model.layers, 0);
  read_latent_attention(config, model);
  model.norm_epsilon = config.real_or_class({"rms_norm_eps"}, 1e-6, kEpsilonBounds);
  model.moe.router = read_router(config);
  model.moe.router.aux_loss_coefficient =
      config.real_or({"aux_loss_alpha"}, 0.0, kCoefficientBounds);
  require_choice(config, "scoring_func", "softmax", {"softmax"});
  require_choice(config, "topk_method", "greedy", {"greedy", "group_limited_greedy"});
  if (!config.find({"topk_method"})) config.note_class_default("topk_method", "greedy");
  if (config.text_or({"topk_method"}, "greedy") == "group_limited_greedy") {
    model.moe.router.groups = config.size({"n_group"}, kExpertRange);
    model.moe.router.topk_groups = config.size({"topk_group"}, kExpertRange);
  } else {
    config.carries({"n_group", "topk_group"});
  }
  model.moe.router.group_score = GroupScore::max;
  expect_flag(config, "norm_topk_prob", false, "transformers never renormalises in this family");
  model.moe.router.scaling_factor =
      config.real_or_class({"routed_scaling_factor"}, 1.0, kScaleBounds);
  read_widths(config, model, 2);
  const bool has_bias = config.flag_or({"mlp_bias"}, false);  // a key of transformers v5
  if (has_bias && model.moe.shared_width == 0) {
    throw config.error("n_shared_experts",
                       "expected at least 1 beside mlp_bias = true, got 0; transformers would keep "
                       "a bias of the absent expert: correct one of the two");
  }
  model.dense_bias = has_bias;
  model.moe.shared_bias = has_bias;
  return model;
}

ModelConfig read_deepseek_v3(const ConfigObject& config) {
  ModelConfig model = read_base(config, Family::deepseek_v3);
  require_silu(config);
  model.layers = read_attention_layers(config);
  apply_dense_prefix(config, model.layers, 3);
  read_latent_attention(config, model);
  model.norm_epsilon = config.real_or_class({"rms_norm_eps"}, 1e-6, kEpsilonBounds);
  model.moe.router = read_router(config);
  read_sigmoid_router(config, model.moe.router);
  read_expert_groups(config, model.moe.router, {8, 4});
  model.moe.router.aux_loss_coefficient =
      config.real_or({"aux_loss_alpha"}, 0.0, kCoefficientBounds);
  model.moe.router.scaling_factor =
      config.real_or_class({"routed_scaling_factor"}, 2.5, kScaleBounds);
  read_widths(config, model, 1);
  read_prediction(config, model);
  return model;
}

ModelConfig read_glm4_moe(const ConfigObject& config) {
  ModelConfig model = read_base(config, Family::glm4_moe);
  require_silu(config);
  model.layers = read_attention_layers(config);
  apply_dense_prefix(config, model.layers, std::nullopt);
  AttentionRule rule;
  rule.has_output_bias = false;
  model.attention = read_attention(config, model.hidden, rule);
  model.attention.qk_norm = config.flag({"use_qk_norm"}) ? QkNorm::per_head : QkNorm::none;
  model.rope = read_rope(config, model.max_positions,
                         {.head_dim = model.attention.head_dim, .default_partial = 0.5});
  model.norm_epsilon = config.real_or_class({"rms_norm_eps"}, 1e-5, kEpsilonBounds);
  model.moe.router = read_router(config);
  read_sigmoid_router(config, model.moe.router);
  read_expert_groups(config, model.moe.router, {1, 1});
  model.moe.router.scaling_factor =
      config.real_or_class({"routed_scaling_factor"}, 1.0, kScaleBounds);
  read_widths(config, model, std::nullopt);
  read_prediction(config, model);
  return model;
}

}  // namespace moestro::model::internal
