// Llama 4: chunked attention with RoPE beside full attention without, top-1 experts whose input is
// scaled by a sigmoid, an implicit shared expert, dense layers between.

#include <nlohmann/json.hpp>

#include "moestro/core/text.h"
#include "moestro/model/internal/common_fields.h"
#include "moestro/model/internal/families.h"

namespace moestro::model::internal {
namespace {

constexpr std::int64_t kLlamaHeadDim = 128;  // when the key is missing

/// no_rope_layers (1 = RoPE), or no RoPE in every no_rope_layer_interval-th layer.
void apply_rope_layers(const ConfigObject& config, std::vector<LayerConfig>& layers) {
  const std::vector<std::int64_t> has_rope = config.whole_numbers({"no_rope_layers"}, {0, 1});
  if (!has_rope.empty() && has_rope.size() != layers.size()) {
    throw config.error(
        "no_rope_layers",
        "expected one entry per layer (num_hidden_layers = {}), got {}; make them agree",
        layers.size(), has_rope.size());
  }
  const std::int64_t interval = config.size_or({"no_rope_layer_interval"}, 4, kLayerRange);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const bool by_interval = (static_cast<std::int64_t>(i) + 1) % interval != 0;
    layers[i].has_rope = has_rope.empty() ? by_interval : has_rope[i] == 1;
  }
}

/// layer_types, or chunks in exactly the layers with RoPE.
void apply_chunks(const ConfigObject& config, std::vector<LayerConfig>& layers) {
  const std::vector<std::string> types = read_layer_types(config, {"layer_types"}, layers.size(),
                                                          {"chunked_attention", "full_attention"});
  const bool is_null =
      config.mentions({"attention_chunk_size"}) && config.find({"attention_chunk_size"}) == nullptr;
  if (is_null && types.empty()) return;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const bool is_chunked = types.empty() ? layers[i].has_rope : types[i] == "chunked_attention";
    if (is_chunked) layers[i].chunk = config.size({"attention_chunk_size"}, kPositionRange);
  }
}

/// moe_layers, or every interleave_moe_layer_step-th layer.
void apply_moe_layers(const ConfigObject& config, std::vector<LayerConfig>& layers) {
  const bool is_listed = config.find({"moe_layers"}) != nullptr;
  constexpr std::string_view kStep = "interleave_moe_layer_step";
  const std::int64_t step = is_listed ? config.size_or({kStep}, 1, kLayerRange)
                                      : config.size_or_class({kStep}, 1, kLayerRange);
  const std::vector<bool> in_list = read_layer_set(config, "moe_layers", layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const bool by_step = (static_cast<std::int64_t>(i) + 1) % step == 0;
    const bool is_sparse = is_listed ? in_list[i] : by_step;
    layers[i].ffn = is_sparse ? FfnKind::moe : FfnKind::dense;
  }
}

/// true, false, or the number that early files have in its place.
bool tunes_temperature(const ConfigObject& config) {
  const Json* value = config.find({"attn_temperature_tuning"});
  if (value == nullptr) return true;  // published files leave it out or say so
  if (value->is_number_integer()) return value->get<std::int64_t>() != 0;
  return config.flag({"attn_temperature_tuning"});
}

}  // namespace

ModelConfig read_llama4(const ConfigObject& config) {
  ModelConfig model = read_base(config, Family::llama4);
  require_silu(config);
  model.layers = read_attention_layers(config);
  apply_rope_layers(config, model.layers);
  apply_chunks(config, model.layers);
  apply_moe_layers(config, model.layers);
  config.carries({"intermediate_size_mlp", "floor_scale", "attn_scale", "attention_chunk_size"});
  AttentionRule rule;
  rule.default_head_dim = kLlamaHeadDim;
  model.attention = read_attention(config, model.hidden, rule);
  model.attention.qk_norm =
      config.flag_or_class({"use_qk_norm"}, true) ? QkNorm::per_head_unweighted : QkNorm::none;
  if (tunes_temperature(config)) {
    model.attention.temperature_floor = config.size_or({"floor_scale"}, 8192, kPositionRange);
    model.attention.temperature_scale = config.real_or({"attn_scale"}, 0.1, kScaleBounds);
  }
  model.rope = read_rope(
      config, model.max_positions,
      {.head_dim = model.attention.head_dim, .default_theta = 500000.0, .interleaved = true});
  model.norm_epsilon = config.real_or_class({"rms_norm_eps"}, 1e-5, kEpsilonBounds);
  if (any_layer(model.layers, FfnKind::dense)) {
    model.dense_width = config.size({"intermediate_size_mlp"}, kWidthRange);
  }
  model.moe.router = read_router(config);
  model.moe.router.score = ScoreKind::sigmoid_input;
  model.moe.expert_width = config.size({"intermediate_size"}, kWidthRange);
  model.moe.shared_width = model.moe.expert_width;
  return model;
}

}  // namespace moestro::model::internal
