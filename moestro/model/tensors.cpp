#include "moestro/model/tensors.h"

#include <fmt/core.h>

#include <utility>

#include "moestro/model/internal/tensor_list.h"

namespace moestro::model {
namespace internal {

Names names_of(const ModelConfig& config) {
  Names names;
  switch (config.family) {
    case Family::deepseek_v1:
    case Family::deepseek_v2:
    case Family::deepseek_v3:
    case Family::glm4_moe:
    case Family::qwen3_moe:
    case Family::olmoe:
      break;
    case Family::qwen3_next:
      names.shared = "shared_expert.";
      break;
    case Family::qwen3_5_moe:
      names.shared = "shared_expert.";
      names.splits_delta_net = true;
      if (config.is_nested) names.decoder = "model.language_model.";
      names.stacks_experts = config.is_nested;  // text-only files keep them apart
      break;
    case Family::nemotron_h:
      names.decoder = "backbone.";
      names.input_norm = "norm";
      names.attention = "mixer.";
      names.ffn = "mixer.";
      break;
    case Family::gpt_oss:
      names.router = "router";
      names.stacks_experts = true;
      names.stacked_up_layout = Layout::in_out_interleaved;
      names.stacked_down_layout = Layout::in_out;
      break;
    case Family::llama4:
      if (config.is_nested) names.decoder = "language_model.model.";
      if (config.is_nested) names.head = "language_model.";
      names.ffn = "feed_forward.";
      names.router = "router";
      names.shared = "shared_expert.";
      names.stacks_experts = true;
      names.stacked_up_layout = Layout::in_out;
      names.stacked_down_layout = Layout::in_out;
      break;
    case Family::granitemoe:
      names.ffn = "block_sparse_moe.";
      names.router = "router.layer";
      names.stacks_experts = true;
      names.stacked_up = "input_linear.weight";
      names.stacked_down = "output_linear.weight";
      break;
    case Family::mixtral:
    case Family::phimoe:
      names.ffn = "block_sparse_moe.";
      names.gate = "w1";
      names.up = "w3";
      names.down = "w2";
      break;
  }
  return names;
}

void TensorList::begin(int layer, std::string prefix) {
  layer_ = layer;
  prefix_ = std::move(prefix);
}

TensorSpec& TensorList::add(std::string_view name, std::vector<std::int64_t> shape, Role role,
                            Component component) {
  TensorSpec spec;
  spec.name = prefix_;
  spec.name += name;
  spec.shape = std::move(shape);
  spec.role = role;
  spec.component = is_prediction_ ? Component::mtp : component;
  spec.layer = layer_;
  tensors_.push_back(std::move(spec));
  return tensors_.back();
}

namespace {

bool has_single_norm(const ModelConfig& config) {
  return config.family == Family::nemotron_h;
}

void add_norm(const ModelConfig& config, std::string_view name, std::pair<Role, Role> roles,
              TensorList& list) {
  list.add(fmt::format("{}.weight", name), {config.hidden}, roles.first, Component::norm);
  if (config.norm == NormKind::layer_norm) {
    list.add(fmt::format("{}.bias", name), {config.hidden}, roles.second, Component::norm);
  }
}

void add_layer(const ModelConfig& config, const LayerConfig& layer, const Names& names,
               TensorList& list) {
  add_norm(config, names.input_norm, {Role::input_norm, Role::input_norm_bias}, list);
  add_mixer(config, layer, names, list);
  if (!has_single_norm(config)) {
    add_norm(config, "post_attention_layernorm",
             {Role::post_attention_norm, Role::post_attention_norm_bias}, list);
  }
  add_ffn(config, layer, names, list);
}

/// DeepSeek and GLM: a depth is a layer after the last, with its projection and own head inside.
void add_layer_prediction(const ModelConfig& config, const Names& names, TensorList& list) {
  const std::int64_t h = config.hidden;
  for (std::int64_t depth = 0; depth < config.mtp.layers; ++depth) {
    const int layer = static_cast<int>(config.layers.size()) + static_cast<int>(depth);
    list.begin(layer, fmt::format("{}layers.{}.", names.decoder, layer));
    list.add("enorm.weight", {h}, Role::mtp_embedding_norm, Component::mtp);
    list.add("hnorm.weight", {h}, Role::mtp_hidden_norm, Component::mtp);
    list.add("eh_proj.weight", {h, 2 * h}, Role::mtp_projection, Component::mtp);
    list.add("embed_tokens.weight", {config.vocab, h}, Role::mtp_embedding, Component::mtp);
    add_layer(config, config.mtp.blocks.front(), names, list);
    list.add("shared_head.norm.weight", {h}, Role::mtp_final_norm, Component::mtp);
    list.add("shared_head.head.weight", {config.vocab, h}, Role::mtp_head, Component::mtp);
  }
}

/// Qwen3.5: one projection and final norm under "mtp." for all depths.
void add_qwen_prediction(const ModelConfig& config, const Names& names, TensorList& list) {
  const std::int64_t h = config.hidden;
  list.begin(-1, "mtp.");
  list.add("fc.weight", {h, 2 * h}, Role::mtp_projection, Component::mtp);
  list.add("pre_fc_norm_embedding.weight", {h}, Role::mtp_embedding_norm, Component::mtp);
  list.add("pre_fc_norm_hidden.weight", {h}, Role::mtp_hidden_norm, Component::mtp);
  for (std::int64_t depth = 0; depth < config.mtp.layers; ++depth) {
    const int layer = static_cast<int>(config.layers.size()) + static_cast<int>(depth);
    list.begin(layer, fmt::format("mtp.layers.{}.", depth));
    add_layer(config, config.mtp.blocks.front(), names, list);
  }
  list.begin(-1, "mtp.");
  list.add("norm.weight", {h}, Role::mtp_final_norm, Component::mtp);
  if (config.mtp.has_own_embedding) {
    list.add("embed_tokens.weight", {config.vocab, h}, Role::mtp_embedding, Component::mtp);
  }
}

/// Nemotron-H: the blocks of all depths in one list; the first block of a depth carries the
/// projection, the last one the final norm. Names follow vLLM's loader; no listing was at hand.
void add_block_prediction(const ModelConfig& config, const Names& names, TensorList& list) {
  const std::int64_t h = config.hidden;
  const std::size_t blocks = config.mtp.blocks.size();
  for (std::size_t i = 0; i < blocks * static_cast<std::size_t>(config.mtp.layers); ++i) {
    const std::size_t place = i % blocks;
    list.begin(static_cast<int>(config.layers.size() + i), fmt::format("mtp.layers.{}.", i));
    if (place == 0) {
      list.add("enorm.weight", {h}, Role::mtp_embedding_norm, Component::mtp);
      list.add("hnorm.weight", {h}, Role::mtp_hidden_norm, Component::mtp);
      list.add("eh_proj.weight", {h, 2 * h}, Role::mtp_projection, Component::mtp);
    }
    add_layer(config, config.mtp.blocks[place], names, list);
    if (place + 1 == blocks) {
      list.add("final_layernorm.weight", {h}, Role::mtp_final_norm, Component::mtp);
    }
  }
}

void add_prediction(const ModelConfig& config, const Names& names, TensorList& list) {
  if (config.mtp.layers == 0) return;
  list.begin_prediction();
  if (config.family == Family::qwen3_5_moe) {
    add_qwen_prediction(config, names, list);
  } else if (config.family == Family::nemotron_h) {
    add_block_prediction(config, names, list);
  } else {
    add_layer_prediction(config, names, list);
  }
}

TensorSpec& add_head_weight(const ModelConfig& config, TensorList& list) {
  return list.add("lm_head.weight", {config.vocab, config.hidden}, Role::lm_head,
                  Component::lm_head);
}

void add_head(const ModelConfig& config, const Names& names, TensorList& list) {
  list.begin(-1, std::string(names.head));
  if (!config.tied_embeddings) add_head_weight(config, list);
  if (config.head_bias) {
    list.add("lm_head.bias", {config.vocab}, Role::lm_head_bias, Component::lm_head);
  }
}

}  // namespace
}  // namespace internal

const char* to_string(Component component) {
  switch (component) {
    case Component::embedding:
      return "embedding";
    case Component::attention:
      return "attention";
    case Component::mixer:
      return "mixer";
    case Component::router:
      return "router";
    case Component::routed_experts:
      return "routed_experts";
    case Component::shared_experts:
      return "shared_experts";
    case Component::dense_ffn:
      return "dense_ffn";
    case Component::norm:
      return "norm";
    case Component::lm_head:
      return "lm_head";
    case Component::mtp:
      return "mtp";
  }
  return "?";
}

std::int64_t TensorSpec::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t dim : shape) count *= dim;
  return count;
}

std::vector<TensorSpec> tensors(const ModelConfig& config) {
  const internal::Names names = internal::names_of(config);
  const bool is_nemotron = config.family == Family::nemotron_h;
  internal::TensorList list;
  list.begin(-1, std::string(names.decoder));
  list.add(is_nemotron ? "embeddings.weight" : "embed_tokens.weight", {config.vocab, config.hidden},
           Role::embedding, Component::embedding);
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    list.begin(static_cast<int>(i), fmt::format("{}layers.{}.", names.decoder, i));
    internal::add_layer(config, config.layers[i], names, list);
  }
  list.begin(-1, std::string(names.decoder));
  internal::add_norm(config, is_nemotron ? "norm_f" : "norm",
                     {Role::final_norm, Role::final_norm_bias}, list);
  internal::add_head(config, names, list);
  internal::add_prediction(config, names, list);
  return list.take();
}

TensorSpec head_tensor(const ModelConfig& config) {
  internal::TensorList list;
  list.begin(-1, std::string(internal::names_of(config).head));
  return internal::add_head_weight(config, list);
}

}  // namespace moestro::model
