#include "moestro/model/internal/common_fields.h"
#include "moestro/model/internal/families.h"

namespace moestro::model::internal {
namespace {

/// Far below what would not fit into memory, far above every model there is (Kimi-K2: 23,040).
constexpr std::int64_t kMaxExpertsOfAllLayers = std::int64_t{1} << 19;

/// Beyond it sums of element counts, in bytes too, come near the end of 64 bits.
constexpr double kMaxParameters = 1e15;

void check_divides(const ConfigObject& config, std::string_view key, std::int64_t value,
                   std::string_view whole_key, std::int64_t whole) {
  if (whole % value != 0) {
    throw config.error(key, "expected a divisor of {} ({}), got {}; correct one of the two",
                       whole_key, whole, value);
  }
}

void check_router(const ConfigObject& config, const RouterConfig& router) {
  if (router.top_k > router.experts) {
    throw config.error(
        "num_experts_per_tok",
        "expected at most the number of experts ({}), got {}; correct one of the two",
        router.experts, router.top_k);
  }
  check_divides(config, "n_group", router.groups, "the number of experts", router.experts);
  if (router.topk_groups > router.groups) {
    throw config.error("topk_group",
                       "expected at most n_group ({}), got {}; correct one of the two",
                       router.groups, router.topk_groups);
  }
  const std::int64_t group = router.experts / router.groups;
  if (router.groups > 1 && router.group_score == GroupScore::sum_of_two_best && group < 2) {
    throw config.error(
        "n_group", "expected groups of two experts or more, got {} groups of {}; use fewer groups",
        router.groups, group);
  }
  if (router.top_k > router.topk_groups * group) {
    throw config.error(
        "num_experts_per_tok",
        "expected at most the experts of the {} chosen groups ({}), got {}; correct one of them",
        router.topk_groups, router.topk_groups * group, router.top_k);
  }
}

void check_mixers(const ConfigObject& config, const ModelConfig& model) {
  const AttentionConfig& attention = model.attention;
  if (attention.heads > 0) {
    check_divides(config, "num_key_value_heads", attention.kv_heads, "num_attention_heads",
                  attention.heads);
  }
  const Mamba2Config& mamba = model.mamba2;
  if (mamba.heads > 0) {
    check_divides(config, "n_groups", mamba.groups, "mamba_num_heads", mamba.heads);
  }
  const GatedDeltaNetConfig& net = model.gated_delta_net;
  if (net.key_heads > 0) {
    check_divides(config, "linear_num_key_heads", net.key_heads, "linear_num_value_heads",
                  net.value_heads);
  }
}

/// Families whose layers are all alike may still say which they are.
void check_layer_types(const ConfigObject& config, const ModelConfig& model) {
  switch (model.family) {
    case Family::qwen3_next:
    case Family::qwen3_5_moe:
    case Family::gpt_oss:
    case Family::llama4:
    case Family::nemotron_h:
      return;  // their readers follow layer_types
    default:
      break;
  }
  const std::vector<std::string> types = read_layer_types(
      config, {"layer_types"}, model.layers.size(), {"full_attention", "sliding_attention"});
  for (std::size_t i = 0; i < types.size(); ++i) {
    const bool has_window = model.layers[i].window > 0;
    const char* expected = has_window ? "sliding_attention" : "full_attention";
    if (types[i] == expected) continue;
    throw config.error(fmt::format("layer_types[{}]", i),
                       "expected {}, since sliding_window is {}, got {}; make them agree", expected,
                       has_window ? "in use" : "not in use", types[i]);
  }
}

/// An upper bound, in floating point so that it cannot overflow, of the parameters of one layer.
double mixer_bound(const ModelConfig& m) {
  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  const double attention = 4.0 * real(m.attention.heads) * real(m.attention.head_dim);
  const double latent =
      real(m.mla.heads) * real(m.mla.qk_nope_head_dim + m.mla.qk_rope_head_dim + m.mla.v_head_dim);
  const double ranks = real(m.mla.q_lora_rank + m.mla.kv_lora_rank);
  const double mamba =
      real(m.mamba2.heads) * real(m.mamba2.head_dim) + real(m.mamba2.groups) * real(m.mamba2.state);
  const GatedDeltaNetConfig& n = m.gated_delta_net;
  const double net =
      real(n.key_heads) * real(n.key_head_dim) + real(n.value_heads) * real(n.value_head_dim);
  const double convolution = real(m.mamba2.conv_kernel) * mamba + real(n.conv_kernel) * net;
  return real(m.hidden) * (2.0 * attention + 2.0 * latent + 2.0 * ranks + 4.0 * mamba + 4.0 * net) +
         2.0 * latent * ranks + 4.0 * convolution;
}

double ffn_bound(const ModelConfig& m) {
  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  const double routed = real(m.moe.router.experts) * (real(m.moe.expert_width) + 1.0);
  const double width =
      routed + real(m.moe.shared_width) + real(m.dense_width) + real(m.moe.latent_width);
  return 4.0 * (real(m.hidden) + real(m.moe.latent_width)) * width;
}

void check_totals(const ConfigObject& config, const ModelConfig& model) {
  const auto layers = static_cast<std::int64_t>(model.layers.size()) +
                      model.mtp.layers * static_cast<std::int64_t>(model.mtp.blocks.size());
  const std::int64_t experts = layers * model.moe.router.experts;
  if (experts > kMaxExpertsOfAllLayers) {
    throw config.error(
        "num_hidden_layers",
        "expected at most {} experts over all layers, got {}; correct the layers or the experts",
        kMaxExpertsOfAllLayers, experts);
  }
  const double total = static_cast<double>(layers) * (mixer_bound(model) + ffn_bound(model)) +
                       4.0 * static_cast<double>(model.vocab) * static_cast<double>(model.hidden);
  if (total > kMaxParameters) {
    throw config.error(
        "hidden_size",
        "expected a model of at most 1e15 parameters, got about {:.1e}; correct the sizes", total);
  }
}

/// Patterns of Nemotron-H may do without experts; elsewhere a list or an interval is mistaken.
void check_experts_are_used(const ConfigObject& config, const ModelConfig& model) {
  if (model.family == Family::nemotron_h || any_layer(model.layers, FfnKind::moe)) return;
  config.findings().doubts.push_back(fmt::format("none of the {} layers has any of the {} experts",
                                                 model.layers.size(), model.moe.router.experts));
}

}  // namespace

void check_model(const ConfigObject& config, const ModelConfig& model) {
  if (model.moe.router.experts > 0) check_router(config, model.moe.router);
  check_mixers(config, model);
  check_layer_types(config, model);
  check_totals(config, model);
  check_experts_are_used(config, model);
}

}  // namespace moestro::model::internal
