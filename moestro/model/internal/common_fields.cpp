#include "moestro/model/internal/common_fields.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "moestro/core/text.h"

namespace moestro::model::internal {
namespace {

/// A token id, or the first of a list of them; -1, where it stands.
std::optional<std::int64_t> read_token_id(const ConfigObject& config, std::string_view key) {
  const Json* value = config.find({key});
  if (value == nullptr) return std::nullopt;
  if (value->is_array()) value = value->empty() ? nullptr : &value->front();
  if (value == nullptr) return std::nullopt;
  const double size = value->is_number_integer() ? value->get<double>() : -2.0;
  if (size < -1.0 || size > static_cast<double>(kVocabRange.max)) {
    throw config.error(key, "expected a token id or a list of them, got {}; correct the value",
                       config.shown(*value));
  }
  return value->get<std::int64_t>();
}

/// What absence means; published files of most families leave the key out.
std::optional<std::int64_t> absent_padding_token(const ConfigObject& config, Family family) {
  constexpr std::string_view kKey = "pad_token_id";
  switch (family) {
    case Family::olmoe:
      config.note_class_default(kKey, "1");
      return 1;
    case Family::granitemoe:
    case Family::gpt_oss:
      config.note_class_default(kKey, "null");
      return std::nullopt;
    default:
      config.note_usual_default(kKey, "null");
      return std::nullopt;
  }
}

/// The token whose row transformers gives no gradient, whatever else a file means by it.
std::optional<std::int64_t> read_padding_token(const ConfigObject& config,
                                               const ModelConfig& model) {
  constexpr std::string_view kKey = "pad_token_id";
  const std::optional<std::int64_t> id = read_token_id(config, kKey);
  if (model.family == Family::nemotron_h) return std::nullopt;  // its embedding knows none
  if (!config.mentions({kKey})) return absent_padding_token(config, model.family);
  if (id && *id >= model.vocab) {
    config.note_doubt(kKey, *config.find({kKey}), fmt::format("vocab_size is {}", model.vocab));
  }
  if (id != -1) return id;
  config.note_doubt(kKey, *config.find({kKey}), "transformers takes it for the last token");
  return model.vocab - 1;
}

double read_initializer_range(const ConfigObject& config, Family family) {
  constexpr std::string_view kKey = "initializer_range";
  constexpr double kClassDefault = 0.02;  // of all families
  return family == Family::llama4 ? config.real_or({kKey}, kClassDefault, kDeviationBounds)
                                  : config.real_or_class({kKey}, kClassDefault, kDeviationBounds);
}

/// max_position_embeddings of the classes of transformers; of DeepSeek's own for its V1.
std::int64_t class_positions(Family family) {
  switch (family) {
    case Family::deepseek_v1:
    case Family::deepseek_v2:
    case Family::granitemoe:
      return 2048;
    case Family::deepseek_v3:
    case Family::nemotron_h:
    case Family::olmoe:
      return 4096;
    case Family::qwen3_moe:
    case Family::qwen3_next:
    case Family::qwen3_5_moe:
      return 32768;
    case Family::glm4_moe:
    case Family::gpt_oss:
    case Family::llama4:
    case Family::mixtral:
    case Family::phimoe:
      return 131072;
  }
  return 0;
}

}  // namespace

ModelConfig read_base(const ConfigObject& config, Family family) {
  ModelConfig model;
  model.family = family;
  model.hidden = config.size({"hidden_size"}, kWidthRange);
  model.vocab = config.size({"vocab_size"}, kVocabRange);
  model.max_positions =
      config.size_or_class({"max_position_embeddings"}, class_positions(family), kPositionRange);
  model.initializer_range = read_initializer_range(config, family);
  static_cast<void>(read_token_id(config, "bos_token_id"));  // must be possible
  static_cast<void>(read_token_id(config, "eos_token_id"));
  model.padding_token = read_padding_token(config, model);
  if (config.find({"is_causal"}) != nullptr && !config.flag({"is_causal"})) {
    throw config.error("is_causal", "expected true, got false; only causal models are supported");
  }
  return model;
}

std::vector<LayerConfig> read_attention_layers(const ConfigObject& config) {
  const std::int64_t layers = config.size({"num_hidden_layers"}, kLayerRange);
  return std::vector<LayerConfig>(static_cast<std::size_t>(layers));
}

namespace {

/// Null means as many as query heads; so does a missing key where the class says so.
std::int64_t read_kv_heads(const ConfigObject& config, std::int64_t heads,
                           const AttentionRule& rule) {
  constexpr std::string_view kKey = "num_key_value_heads";
  if (config.mentions({kKey})) return config.size_or({kKey}, heads, kHeadRange);
  if (!rule.kv_heads_default_to_heads) return config.size({kKey}, kHeadRange);
  config.note_class_default(kKey, fmt::format("num_attention_heads = {}", heads));
  return heads;
}

/// A spelling of other programs, which must say the same.
void check_qkv_bias(const ConfigObject& config, bool has_bias) {
  if (config.find({"qkv_bias"}) == nullptr || config.flag({"qkv_bias"}) == has_bias) return;
  throw config.error(
      "qkv_bias", "expected {}, as the family and attention_bias have it, got {}; make them agree",
      has_bias, !has_bias);
}

/// The key, else the default of the class, else hidden / heads (which null says, too).
std::int64_t read_head_dim(const ConfigObject& config, std::int64_t hidden, std::int64_t heads,
                           const AttentionRule& rule) {
  constexpr std::string_view kKey = "head_dim";
  if (const auto head_dim = config.optional_size({kKey}, kHeadRange)) return *head_dim;
  const bool is_missing = !config.mentions({kKey});
  if (is_missing && rule.default_head_dim) {
    config.note_class_default(kKey, std::to_string(*rule.default_head_dim));
    return *rule.default_head_dim;
  }
  if (hidden % heads != 0) {
    throw config.error("num_attention_heads",
                       "expected a divisor of hidden_size ({}), got {}; correct it or add head_dim",
                       hidden, heads);
  }
  const std::string value = fmt::format("hidden_size / num_attention_heads = {}", hidden / heads);
  if (is_missing && !rule.omits_head_dim) config.note_class_default(kKey, value);
  if (is_missing && rule.omits_head_dim) config.note_usual_default(kKey, value);
  return hidden / heads;
}

bool read_attention_bias(const ConfigObject& config, const AttentionRule& rule) {
  if (!rule.honours_bias) {
    expect_flag(config, "attention_bias", false, "transformers gives this family none");
    return false;
  }
  return rule.omits_bias ? config.flag_or({"attention_bias"}, rule.default_bias)
                         : config.flag_or_class({"attention_bias"}, rule.default_bias);
}

}  // namespace

AttentionConfig read_attention(const ConfigObject& config, std::int64_t hidden,
                               const AttentionRule& rule) {
  AttentionConfig attention;
  attention.heads = config.size({"num_attention_heads"}, kHeadRange);
  attention.kv_heads = read_kv_heads(config, attention.heads, rule);
  attention.head_dim = read_head_dim(config, hidden, attention.heads, rule);
  const bool has_bias = read_attention_bias(config, rule);
  check_qkv_bias(config, has_bias);
  attention.qkv_bias = has_bias;
  attention.output_bias = has_bias && rule.has_output_bias;
  attention.scale = 1.0 / std::sqrt(static_cast<double>(attention.head_dim));
  return attention;
}

RouterConfig read_router(const ConfigObject& config) {
  RouterConfig router;
  router.experts =
      config.size({"num_experts", "num_local_experts", "n_routed_experts"}, kExpertRange);
  router.top_k = config.size({"num_experts_per_tok", "experts_per_token"}, kExpertRange);
  router.aux_loss_coefficient =
      config.real_or({"router_aux_loss_coef"}, router.aux_loss_coefficient, kCoefficientBounds);
  return router;
}

void read_expert_groups(const ConfigObject& config, RouterConfig& router,
                        std::pair<std::int64_t, std::int64_t> class_groups) {
  const auto read = [&](std::string_view key, std::int64_t class_value) {
    return config.mentions({key}) ? config.size_or({key}, 1, kExpertRange)
                                  : config.size_or_class({key}, class_value, kExpertRange);
  };
  router.groups = read("n_group", class_groups.first);
  router.topk_groups = read("topk_group", class_groups.second);
}

void require_silu(const ConfigObject& config) {
  const std::string activation = config.text_or({"hidden_act"}, "silu");
  if (activation != "silu" && activation != "swish") {
    throw config.error(
        "hidden_act",
        "expected silu (or swish), got \"{}\"; no other gated activation is supported",
        printable(activation));
  }
}

void expect_flag(const ConfigObject& config, std::string_view key, bool fixed,
                 std::string_view why) {
  if (config.find({key}) != nullptr && config.flag({key}) != fixed) {
    config.note_doubt(key, *config.find({key}), why);
  }
}

void apply_window(std::vector<LayerConfig>& layers, std::int64_t window) {
  for (LayerConfig& layer : layers) layer.window = window;
}

std::vector<std::string> read_layer_types(const ConfigObject& config, ConfigObject::Keys keys,
                                          std::optional<std::size_t> layers,
                                          const std::vector<std::string>& choices) {
  const std::vector<std::string> types = config.texts(keys);
  if (types.empty()) return types;
  if (layers && types.size() != *layers) {
    throw config.error(
        *keys.begin(),
        "expected one entry per layer (num_hidden_layers = {}), got {}; make them agree", *layers,
        types.size());
  }
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (std::find(choices.begin(), choices.end(), types[i]) == choices.end()) {
      throw config.error(fmt::format("{}[{}]", *keys.begin(), i),
                         "expected one of {}, got \"{}\"; correct it", join(choices, ", "),
                         printable(types[i]));
    }
  }
  return types;
}

std::vector<bool> read_layer_set(const ConfigObject& config, std::string_view key,
                                 std::size_t layers) {
  std::vector<bool> in_set(layers, false);
  const Range range{0, static_cast<std::int64_t>(layers) - 1};
  for (const std::int64_t layer : config.whole_numbers({key}, range)) {
    in_set[static_cast<std::size_t>(layer)] = true;
  }
  return in_set;
}

void apply_sparse_step(const ConfigObject& config, std::vector<LayerConfig>& layers) {
  const std::int64_t step = config.size_or_class({"decoder_sparse_step"}, 1, kLayerRange);
  if (!config.mentions({"mlp_only_layers"})) config.note_class_default("mlp_only_layers", "[]");
  const std::vector<bool> is_dense = read_layer_set(config, "mlp_only_layers", layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const bool is_sparse = !is_dense[i] && (static_cast<std::int64_t>(i) + 1) % step == 0;
    layers[i].ffn = is_sparse ? FfnKind::moe : FfnKind::dense;
  }
}

bool any_layer(const std::vector<LayerConfig>& layers, FfnKind ffn) {
  return std::any_of(layers.begin(), layers.end(), [&](const auto& l) { return l.ffn == ffn; });
}

bool any_layer(const std::vector<LayerConfig>& layers, MixerKind mixer) {
  return std::any_of(layers.begin(), layers.end(), [&](const auto& l) { return l.mixer == mixer; });
}

}  // namespace moestro::model::internal
