#pragma once
// Fields that several families spell alike.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "moestro/model/internal/config_object.h"
#include "moestro/model/model_config.h"

namespace moestro::model::internal {

/// Starts a model: hidden size, vocabulary, positions, padding, initialisation; no layers yet.
/// Whether embeddings are tied is left to the caller: nested files say it in two places.
[[nodiscard]] ModelConfig read_base(const ConfigObject& config, Family family);

/// num_hidden_layers layers, all softmax attention with RoPE.
[[nodiscard]] std::vector<LayerConfig> read_attention_layers(const ConfigObject& config);

/// What families do differently about grouped-query attention. A missing key is reported unless
/// the family's published files leave it out.
struct AttentionRule {
  std::optional<std::int64_t> default_head_dim =
      std::nullopt;                        // when the key is missing; else hidden / heads
  bool kv_heads_default_to_heads = false;  // when the key is missing
  bool omits_head_dim = false;             // published files leave head_dim out
  bool honours_bias = true;                // attention_bias
  bool omits_bias = false;                 // published files leave attention_bias out
  bool default_bias = false;
  bool has_output_bias = true;  // attention_bias adds one to o_proj too
};
[[nodiscard]] AttentionConfig read_attention(const ConfigObject& config, std::int64_t hidden,
                                             const AttentionRule& rule);

/// What families do differently about rotary embeddings.
struct RopeRule {
  std::int64_t head_dim = 0;     // dims that could rotate
  double default_theta = 10000;  // of the class of transformers
  std::optional<double> default_partial =
      std::nullopt;  // partial_rotary_factor is honoured, with this default
  bool interleaved = false;
  // What all published files of the family say, so that absence is worth a warning: rope_scaling
  // itself, and keys in it.
  std::vector<std::string_view> published_keys = {};
};
/// `max_positions` as read_base has it: what is scaled from where the file does not say.
[[nodiscard]] Rope read_rope(const ConfigObject& config, std::int64_t max_positions,
                             const RopeRule& rule);

/// Experts and experts per token, with any family's spelling.
[[nodiscard]] RouterConfig read_router(const ConfigObject& config);

/// n_group and topk_group; null means one group, absence the class's {n_group, topk_group}.
void read_expert_groups(const ConfigObject& config, RouterConfig& router,
                        std::pair<std::int64_t, std::int64_t> class_groups);

/// Requires hidden_act to be SwiGLU's.
void require_silu(const ConfigObject& config);

/// Notes a switch that the file sets otherwise than the family has it, whatever the key says.
void expect_flag(const ConfigObject& config, std::string_view key, bool fixed,
                 std::string_view why);

/// Sliding window of every layer. Null is none.
void apply_window(std::vector<LayerConfig>& layers, std::int64_t window);

/// layer_types translated by `choices`; checks that there is one per layer. Empty if absent.
[[nodiscard]] std::vector<std::string> read_layer_types(const ConfigObject& config,
                                                        ConfigObject::Keys keys,
                                                        std::optional<std::size_t> layers,
                                                        const std::vector<std::string>& choices);

/// Layers with a routed FFN: MoE iff not in mlp_only_layers and (i + 1) % decoder_sparse_step == 0.
void apply_sparse_step(const ConfigObject& config, std::vector<LayerConfig>& layers);

/// A list of layer indices as one flag per layer. Errors: input, if one is out of range.
[[nodiscard]] std::vector<bool> read_layer_set(const ConfigObject& config, std::string_view key,
                                               std::size_t layers);

/// Whether any layer has this FFN or mixer.
[[nodiscard]] bool any_layer(const std::vector<LayerConfig>& layers, FfnKind ffn);
[[nodiscard]] bool any_layer(const std::vector<LayerConfig>& layers, MixerKind mixer);

}  // namespace moestro::model::internal
