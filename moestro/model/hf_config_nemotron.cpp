// Nemotron-H: blocks of one mixer each (Mamba-2, attention without position embedding, dense or
// routed FFN), in a pattern of letters or a list of types; two-matrix FFNs.

#include <limits>
#include <nlohmann/json.hpp>

#include "moestro/core/text.h"
#include "moestro/model/internal/common_fields.h"
#include "moestro/model/internal/families.h"

namespace moestro::model::internal {
namespace {

constexpr std::int64_t kNemotronHeadDim = 128;  // when the key is missing

enum class Block { mamba, attention, dense, moe };

LayerConfig layer_of(Block block) {
  LayerConfig layer;
  layer.has_rope = false;
  layer.mixer = block == Block::mamba       ? MixerKind::mamba2
                : block == Block::attention ? MixerKind::attention
                                            : MixerKind::none;
  layer.ffn = block == Block::dense ? FfnKind::dense
              : block == Block::moe ? FfnKind::moe
                                    : FfnKind::none;
  return layer;
}

std::vector<Block> blocks_of_pattern(const ConfigObject& config, std::string_view key) {
  const std::string pattern = config.text_or({key}, "");
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    switch (pattern[i]) {
      case 'M':
        blocks.push_back(Block::mamba);
        break;
      case '*':
        blocks.push_back(Block::attention);
        break;
      case '-':
        blocks.push_back(Block::dense);
        break;
      case 'E':
        blocks.push_back(Block::moe);
        break;
      default:
        throw config.error(key,
                           "expected the letters M (Mamba-2), * (attention), - (dense) and E "
                           "(experts), got '{}' at position {}; correct the pattern",
                           printable(pattern.substr(i, 1)), i + 1);
    }
  }
  return blocks;
}

std::vector<Block> blocks_of_types(const ConfigObject& config, ConfigObject::Keys keys) {
  const std::vector<std::string> choices = {"linear_attention", "mamba", "full_attention",
                                            "attention",        "mlp",   "moe"};
  std::vector<Block> blocks;
  for (const std::string& type : read_layer_types(config, keys, std::nullopt, choices)) {
    if (type == "linear_attention" || type == "mamba") blocks.push_back(Block::mamba);
    if (type == "full_attention" || type == "attention") blocks.push_back(Block::attention);
    if (type == "mlp") blocks.push_back(Block::dense);
    if (type == "moe") blocks.push_back(Block::moe);
  }
  return blocks;
}

/// The blocks by letters or by types; both may be given when they agree.
std::vector<LayerConfig> read_blocks(const ConfigObject& config, std::string_view pattern_key,
                                     ConfigObject::Keys type_keys) {
  const std::vector<Block> by_letter = blocks_of_pattern(config, pattern_key);
  const std::vector<Block> by_type = blocks_of_types(config, type_keys);
  if (!by_letter.empty() && !by_type.empty() && by_letter != by_type) {
    throw config.error(pattern_key,
                       "expected the same blocks as {}, got others; keep one of the two",
                       *type_keys.begin());
  }
  std::vector<LayerConfig> layers;
  for (const Block block : by_letter.empty() ? by_type : by_letter) {
    layers.push_back(layer_of(block));
  }
  return layers;
}

std::vector<LayerConfig> read_layers(const ConfigObject& config) {
  std::vector<LayerConfig> layers =
      read_blocks(config, "hybrid_override_pattern", {"layers_block_type", "layer_types"});
  if (layers.empty()) {
    throw config.error("hybrid_override_pattern",
                       "expected a pattern of letters like \"ME*E\", but it is missing; add it, or "
                       "the list layers_block_type");
  }
  const auto count = static_cast<std::int64_t>(layers.size());
  if (count > kLayerRange.max) {
    throw config.error("hybrid_override_pattern", "expected at most {} blocks, got {}; shorten it",
                       kLayerRange.max, count);
  }
  const std::int64_t stated = config.size_or({"num_hidden_layers"}, count, kLayerRange);
  if (stated != count) {
    throw config.error("num_hidden_layers",
                       "expected the number of blocks in the pattern ({}), got {}; make them agree "
                       "or leave it out",
                       count, stated);
  }
  return layers;
}

/// transformers has no upper limit of the time step, and time_step_min as the lower one.
void check_time_step_limit(const ConfigObject& config) {
  const Json* limit = config.find({"time_step_limit", "mamba_dt_limit"});
  constexpr double kNone = std::numeric_limits<double>::infinity();
  if (limit == nullptr || *limit == Json::array({0.0, kNone})) return;
  config.note_doubt("time_step_limit", *limit, "transformers does not follow it");
}

Mamba2Config read_mamba(const ConfigObject& config) {
  Mamba2Config mamba;
  mamba.heads = config.size({"mamba_num_heads"}, kHeadRange);
  mamba.head_dim = config.size({"mamba_head_dim"}, kHeadRange);
  mamba.groups = config.size({"n_groups", "mamba_n_groups"}, kHeadRange);
  mamba.state = config.size({"ssm_state_size"}, kHeadRange);
  mamba.conv_kernel = config.size({"conv_kernel", "mamba_d_conv"}, kHeadRange);
  mamba.chunk = config.size_or({"chunk_size", "mamba_chunk_size"}, 128, kPositionRange);
  mamba.conv_bias = config.flag({"use_conv_bias", "mamba_conv_bias"});
  mamba.proj_bias = config.flag_or_class({"use_bias"}, false);
  if (mamba.proj_bias) config.carries({"mamba_proj_bias"});  // it can only agree
  const bool has_minimum = config.find({"time_step_min", "mamba_dt_min"}) != nullptr;
  mamba.time_step_min =
      has_minimum ? config.real_or({"time_step_min", "mamba_dt_min"}, 0.0, kTimeStepBounds)
                  : config.real_or_class({"time_step_min"}, 0.001, kTimeStepBounds);
  check_time_step_limit(config);
  const std::string activation = config.text_or({"mamba_hidden_act"}, "silu");
  if (activation != "silu" && activation != "swish") {
    throw config.error("mamba_hidden_act", "expected silu, got \"{}\"; no other is supported",
                       printable(activation));
  }
  return mamba;
}

Activation read_activation(const ConfigObject& config) {
  const std::string activation = config.text_or({"mlp_hidden_act"}, "relu2");
  if (activation == "relu2") return Activation::relu2;
  if (activation == "gelu") return Activation::gelu;
  throw config.error("mlp_hidden_act", "expected relu2 or gelu, got \"{}\"; no other is supported",
                     printable(activation));
}

/// The whole width of the shared expert is another key.
void check_shared_experts(const ConfigObject& config) {
  constexpr std::string_view kKey = "n_shared_experts";
  if (config.size_or({kKey}, 1, {0, kExpertRange.max}) == 1) return;
  config.note_doubt(kKey, *config.find({kKey}),
                    "one shared expert of width moe_shared_expert_intermediate_size counts");
}

MoeConfig read_moe(const ConfigObject& config, bool has_bias) {
  MoeConfig moe;
  moe.router = read_router(config);
  moe.router.score = ScoreKind::sigmoid;
  moe.router.has_selection_bias = true;
  moe.router.group_score = GroupScore::sum_of_two_best;
  moe.router.renormalise = config.flag_or_class({"norm_topk_prob"}, true);
  moe.router.scaling_factor = config.real_or_class({"routed_scaling_factor"}, 1.0, kScaleBounds);
  read_expert_groups(config, moe.router, {1, 1});
  moe.expert_width = config.size({"moe_intermediate_size"}, kWidthRange);
  check_shared_experts(config);
  moe.shared_width = config.size({"moe_shared_expert_intermediate_size"}, kWidthRange);
  moe.latent_width = config.size_or({"moe_latent_size"}, 0, kWidthRange);
  moe.shared_bias = has_bias;
  moe.latent_bias = has_bias;
  return moe;
}

void read_prediction(const ConfigObject& config, ModelConfig& model) {
  model.mtp.layers =
      config.size_or({"num_nextn_predict_layers", "num_mtp_layers"}, 0, kPredictionRange);
  if (model.mtp.layers == 0) return;
  model.mtp.blocks = read_blocks(config, "mtp_hybrid_override_pattern", {"mtp_layers_block_type"});
  if (model.mtp.blocks.empty()) {
    model.mtp.blocks = {layer_of(Block::attention), layer_of(Block::moe)};
  }
  if (static_cast<std::int64_t>(model.mtp.blocks.size()) > kPredictionRange.max) {
    throw config.error("mtp_layers_block_type", "expected at most {} blocks, got {}; shorten it",
                       kPredictionRange.max, model.mtp.blocks.size());
  }
}

/// Files have the keys of all blocks, whether the pattern has such blocks or not, and those of a
/// rotary embedding that the family does without.
void carry_unused_keys(const ConfigObject& config) {
  config.carries({"rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"});
  config.carries({"num_attention_heads", "num_key_value_heads", "head_dim"});
  config.carries({"mamba_num_heads", "mamba_head_dim", "n_groups", "mamba_n_groups",
                  "ssm_state_size", "conv_kernel", "mamba_d_conv", "chunk_size", "mamba_chunk_size",
                  "use_conv_bias", "mamba_conv_bias", "use_bias", "time_step_min", "mamba_dt_min",
                  "mamba_hidden_act"});
  config.carries({"intermediate_size", "mlp_bias", "mlp_hidden_act"});
  config.carries({"moe_intermediate_size", "moe_latent_size", "n_shared_experts",
                  "moe_shared_expert_intermediate_size", "n_routed_experts", "num_local_experts",
                  "num_experts_per_tok", "norm_topk_prob", "routed_scaling_factor", "n_group",
                  "topk_group", "router_aux_loss_coef"});
  config.carries({"mtp_hybrid_override_pattern", "mtp_layers_block_type"});
}

/// Whether the model or its prediction layers have such a block.
template <class Kind>
bool uses(const ModelConfig& model, Kind kind) {
  return any_layer(model.layers, kind) || any_layer(model.mtp.blocks, kind);
}

}  // namespace

ModelConfig read_nemotron_h(const ConfigObject& config) {
  ModelConfig model = read_base(config, Family::nemotron_h);
  model.layers = read_layers(config);
  read_prediction(config, model);
  model.rope.kind = RopeKind::none;
  model.norm_epsilon = config.real_or_class({"layer_norm_epsilon", "norm_eps", "rms_norm_eps"},
                                            1e-5, kEpsilonBounds);
  model.activation = read_activation(config);
  if (uses(model, MixerKind::attention)) {
    AttentionRule rule;
    rule.default_head_dim = kNemotronHeadDim;
    rule.honours_bias = false;
    model.attention = read_attention(config, model.hidden, rule);
  }
  if (uses(model, MixerKind::mamba2)) model.mamba2 = read_mamba(config);
  carry_unused_keys(config);
  const bool has_ffn = uses(model, FfnKind::dense) || uses(model, FfnKind::moe);
  const bool has_bias = has_ffn && config.flag_or_class({"mlp_bias"}, false);
  if (uses(model, FfnKind::dense)) {
    model.dense_width = config.size({"intermediate_size"}, kWidthRange);
    model.dense_bias = has_bias;
  }
  if (uses(model, FfnKind::moe)) model.moe = read_moe(config, has_bias);
  return model;
}

}  // namespace moestro::model::internal
