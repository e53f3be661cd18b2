#include <fmt/core.h>

#include "moestro/model/internal/tensor_list.h"

namespace moestro::model::internal {
namespace {

/// A linear map [out, in] and, if wanted, its bias [out].
struct Linear {
  std::string name;
  std::int64_t out = 0;
  std::int64_t in = 0;
  Role weight;
  Role bias;
};

void add_linear(TensorList& list, const Linear& linear, bool has_bias, Component component) {
  list.add(linear.name + ".weight", {linear.out, linear.in}, linear.weight, component);
  if (has_bias) list.add(linear.name + ".bias", {linear.out}, linear.bias, component);
}

/// Widths of the q and k norms; zero: no such weight.
struct NormWidths {
  std::int64_t q = 0;
  std::int64_t k = 0;
};

NormWidths qk_norm_widths(const ModelConfig& config) {
  const AttentionConfig& a = config.attention;
  switch (a.qk_norm) {
    case QkNorm::per_head:
      return {a.head_dim, a.head_dim};
    case QkNorm::whole:
      return {config.hidden, config.hidden / a.heads * a.kv_heads};
    case QkNorm::none:
    case QkNorm::per_head_unweighted:
      break;
  }
  return {};
}

void add_attention(const ModelConfig& config, const Names& names, TensorList& list) {
  const AttentionConfig& a = config.attention;
  const std::string p(names.attention);
  const std::int64_t width = a.heads * a.head_dim;
  const std::int64_t kv_width = a.kv_heads * a.head_dim;
  const std::int64_t q_width = a.has_output_gate ? 2 * width : width;
  const Component component = Component::attention;
  add_linear(list, {p + "q_proj", q_width, config.hidden, Role::q_proj, Role::q_bias}, a.qkv_bias,
             component);
  add_linear(list, {p + "k_proj", kv_width, config.hidden, Role::k_proj, Role::k_bias}, a.qkv_bias,
             component);
  add_linear(list, {p + "v_proj", kv_width, config.hidden, Role::v_proj, Role::v_bias}, a.qkv_bias,
             component);
  add_linear(list, {p + "o_proj", config.hidden, width, Role::o_proj, Role::o_bias}, a.output_bias,
             component);
  const NormWidths norm = qk_norm_widths(config);
  if (norm.q > 0) list.add(p + "q_norm.weight", {norm.q}, Role::q_norm, component);
  if (norm.k > 0) list.add(p + "k_norm.weight", {norm.k}, Role::k_norm, component);
  if (a.has_sinks) list.add(p + "sinks", {a.heads}, Role::sinks, component);
}

void add_latent_attention(const ModelConfig& config, const Names& names, TensorList& list) {
  const MlaConfig& m = config.mla;
  const std::string p(names.attention);
  const std::int64_t q_width = m.heads * (m.qk_nope_head_dim + m.qk_rope_head_dim);
  const Component component = Component::attention;
  if (m.q_lora_rank > 0) {
    add_linear(list, {p + "q_a_proj", m.q_lora_rank, config.hidden, Role::q_a_proj, Role::q_a_bias},
               m.has_bias, component);
    list.add(p + "q_a_layernorm.weight", {m.q_lora_rank}, Role::q_a_norm, component);
    list.add(p + "q_b_proj.weight", {q_width, m.q_lora_rank}, Role::q_b_proj, component);
  } else {
    list.add(p + "q_proj.weight", {q_width, config.hidden}, Role::q_proj, component);
  }
  add_linear(list,
             {p + "kv_a_proj_with_mqa", m.kv_lora_rank + m.qk_rope_head_dim, config.hidden,
              Role::kv_a_proj, Role::kv_a_bias},
             m.has_bias, component);
  list.add(p + "kv_a_layernorm.weight", {m.kv_lora_rank}, Role::kv_a_norm, component);
  list.add(p + "kv_b_proj.weight", {m.heads * (m.qk_nope_head_dim + m.v_head_dim), m.kv_lora_rank},
           Role::kv_b_proj, component);
  add_linear(list,
             {p + "o_proj", config.hidden, m.heads * m.v_head_dim, Role::o_proj, Role::o_bias},
             m.has_bias, component);
}

void add_mamba(const ModelConfig& config, const Names& names, TensorList& list) {
  const Mamba2Config& m = config.mamba2;
  const std::string p(names.mamba);
  const std::int64_t inner = m.heads * m.head_dim;
  const std::int64_t channels = inner + 2 * m.groups * m.state;
  const Component component = Component::mixer;
  add_linear(
      list,
      {p + "in_proj", inner + channels + m.heads, config.hidden, Role::in_proj, Role::in_proj_bias},
      m.proj_bias, component);
  list.add(p + "conv1d.weight", {channels, 1, m.conv_kernel}, Role::conv, component);
  if (m.conv_bias) list.add(p + "conv1d.bias", {channels}, Role::conv_bias, component);
  list.add(p + "A_log", {m.heads}, Role::a_log, component);
  list.add(p + "D", {m.heads}, Role::d_skip, component);
  list.add(p + "dt_bias", {m.heads}, Role::dt_bias, component);
  list.add(p + "norm.weight", {inner}, Role::mixer_norm, component);
  add_linear(list, {p + "out_proj", config.hidden, inner, Role::out_proj, Role::out_proj_bias},
             m.proj_bias, component);
}

void add_delta_net(const ModelConfig& config, const Names& names, TensorList& list) {
  const GatedDeltaNetConfig& n = config.gated_delta_net;
  const std::string p(names.delta_net);
  const std::int64_t keys = n.key_heads * n.key_head_dim;
  const std::int64_t values = n.value_heads * n.value_head_dim;
  const std::int64_t channels = 2 * keys + values;
  const std::int64_t h = config.hidden;
  const Component component = Component::mixer;
  if (names.splits_delta_net) {
    list.add(p + "in_proj_qkv.weight", {channels, h}, Role::in_proj_qkv, component);
    list.add(p + "in_proj_z.weight", {values, h}, Role::in_proj_z, component);
    list.add(p + "in_proj_b.weight", {n.value_heads, h}, Role::in_proj_b, component);
    list.add(p + "in_proj_a.weight", {n.value_heads, h}, Role::in_proj_a, component);
  } else {
    list.add(p + "in_proj_qkvz.weight", {channels + values, h}, Role::in_proj_qkvz, component);
    list.add(p + "in_proj_ba.weight", {2 * n.value_heads, h}, Role::in_proj_ba, component);
  }
  list.add(p + "conv1d.weight", {channels, 1, n.conv_kernel}, Role::conv, component);
  list.add(p + "A_log", {n.value_heads}, Role::a_log, component);
  list.add(p + "dt_bias", {n.value_heads}, Role::dt_bias, component);
  list.add(p + "norm.weight", {n.value_head_dim}, Role::mixer_norm, component);
  list.add(p + "out_proj.weight", {h, values}, Role::out_proj, component);
}

}  // namespace

void add_mixer(const ModelConfig& config, const LayerConfig& layer, const Names& names,
               TensorList& list) {
  switch (layer.mixer) {
    case MixerKind::none:
      break;
    case MixerKind::attention:
      add_attention(config, names, list);
      break;
    case MixerKind::mla:
      add_latent_attention(config, names, list);
      break;
    case MixerKind::mamba2:
      add_mamba(config, names, list);
      break;
    case MixerKind::gated_delta_net:
      add_delta_net(config, names, list);
      break;
  }
}

}  // namespace moestro::model::internal
