#include "moestro/model/ledger.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>

#include "moestro/core/error.h"

namespace moestro::model {
namespace {

// No model is within orders of magnitude of this; a longer one is a slip of the keyboard.
constexpr std::int64_t kLongestSequence = std::int64_t{1} << 40;

constexpr auto kComponents = std::to_array<Component>(
    {Component::embedding, Component::attention, Component::mixer, Component::router,
     Component::routed_experts, Component::shared_experts, Component::dense_ffn, Component::norm,
     Component::lm_head, Component::mtp});

/// A pass over a matrix: one multiplication and one addition per weight, forward; twice backward.
constexpr double kFlopsPerWeight = 6.0;
/// Forward and the two parts of backward, for work that is given as forward FLOPs.
constexpr double kPasses = 3.0;

double real(std::int64_t n) {
  return static_cast<double>(n);
}

/// Tensors of routed experts, of which a token uses top_k / experts.
bool is_routed(Role role) {
  switch (role) {
    case Role::expert_gate:
    case Role::expert_up:
    case Role::expert_down:
    case Role::expert_gate_up:
    case Role::expert_down_stacked:
    case Role::expert_gate_up_bias:
    case Role::expert_down_stacked_bias:
      return true;
    default:
      return false;
  }
}

/// Weights a token's activations are multiplied with: no look-ups, norms, biases, convolutions,
/// and, by convention, no router.
bool is_matrix(Role role) {
  switch (role) {
    case Role::q_proj:
    case Role::k_proj:
    case Role::v_proj:
    case Role::o_proj:
    case Role::q_a_proj:
    case Role::q_b_proj:
    case Role::kv_a_proj:
    case Role::kv_b_proj:
    case Role::in_proj:
    case Role::in_proj_qkvz:
    case Role::in_proj_ba:
    case Role::in_proj_qkv:
    case Role::in_proj_z:
    case Role::in_proj_b:
    case Role::in_proj_a:
    case Role::out_proj:
    case Role::expert_gate:
    case Role::expert_up:
    case Role::expert_down:
    case Role::expert_gate_up:
    case Role::expert_down_stacked:
    case Role::shared_gate:
    case Role::shared_up:
    case Role::shared_down:
    case Role::shared_expert_gate:
    case Role::dense_gate:
    case Role::dense_up:
    case Role::dense_down:
    case Role::latent_in:
    case Role::latent_out:
      return true;
    default:
      // Counted on their own: heads, since tied ones are no tensor, and projections of prediction
      // depths, which may be one tensor for all of them.
      return false;
  }
}

/// Sums of element counts with routed experts kept apart, so that top_k / experts stays exact.
struct Sum {
  std::int64_t whole = 0;
  std::int64_t routed = 0;
  std::int64_t matrices = 0;         // of whole
  std::int64_t routed_matrices = 0;  // of routed

  void add(const TensorSpec& tensor) {
    const std::int64_t n = tensor.elements();
    const bool routed_tensor = is_routed(tensor.role);
    (routed_tensor ? routed : whole) += n;
    if (is_matrix(tensor.role)) (routed_tensor ? routed_matrices : matrices) += n;
  }
  [[nodiscard]] std::int64_t active(std::int64_t all, const RouterConfig& router) const {
    return router.experts > 0 ? all / router.experts * router.top_k : all;
  }
  [[nodiscard]] ParameterCount count(const RouterConfig& router) const {
    return {whole + routed, whole + active(routed, router)};
  }
  [[nodiscard]] double active_matrices(const RouterConfig& router) const {
    return real(matrices + active(routed_matrices, router));
  }
};

struct Sums {
  std::map<Component, Sum> components;
  std::vector<Sum> layers;
  std::int64_t copies = 0;  // of embedding and head, in the prediction layers
};

Sums sum_tensors(const ModelConfig& config) {
  Sums sums;
  sums.layers.resize(config.layers.size());
  for (const TensorSpec& tensor : tensors(config)) {
    if (tensor.role == Role::mtp_embedding || tensor.role == Role::mtp_head) {
      sums.copies += tensor.elements();
      continue;
    }
    sums.components[tensor.component].add(tensor);
    const bool is_in_layer = tensor.component != Component::mtp && tensor.layer >= 0;
    if (is_in_layer) sums.layers[static_cast<std::size_t>(tensor.layer)].add(tensor);
  }
  return sums;
}

ParameterLedger count_parameters(const ModelConfig& config, Sums& sums) {
  ParameterLedger ledger;
  for (const Component component : kComponents) {
    const ParameterCount count = sums.components[component].count(config.moe.router);
    ledger.by_component.push_back({component, count});
    if (component == Component::mtp) {
      ledger.mtp = count.total;
    } else {
      ledger.total += count.total;
      ledger.active += count.active;
    }
  }
  ledger.active_without_embedding = ledger.active - config.vocab * config.hidden;
  ledger.mtp_copies = sums.copies;
  return ledger;
}

/// Softmax attention: scores and weighted values, forward + backward.
double attention_core(const ModelConfig& config, const LayerConfig& layer, std::int64_t seq) {
  const double keys = mean_keys(layer, seq);
  if (layer.mixer == MixerKind::attention) {
    return kFlopsPerWeight * real(config.attention.heads) * real(2 * config.attention.head_dim) *
           keys;
  }
  if (layer.mixer == MixerKind::mla) {
    const MlaConfig& m = config.mla;
    const std::int64_t dims = m.qk_nope_head_dim + m.qk_rope_head_dim + m.v_head_dim;
    return kFlopsPerWeight * real(m.heads) * real(dims) * keys;
  }
  return 0.0;
}

/// State-space recurrence and its short convolution, forward + backward.
double mixer_core(const ModelConfig& config, const LayerConfig& layer) {
  if (layer.mixer == MixerKind::mamba2) {
    const Mamba2Config& m = config.mamba2;
    const double channels = real(m.heads * m.head_dim + 2 * m.groups * m.state);
    const double recurrence = 5.0 * real(m.head_dim) * real(m.state) * real(m.heads);
    return kPasses * (recurrence + 2.0 * real(m.conv_kernel) * channels);
  }
  if (layer.mixer == MixerKind::gated_delta_net) {
    const GatedDeltaNetConfig& n = config.gated_delta_net;
    const double channels =
        real(2 * n.key_heads * n.key_head_dim + n.value_heads * n.value_head_dim);
    const double recurrence =
        7.0 * real(n.key_head_dim) * real(n.value_head_dim) * real(n.value_heads);
    return kPasses * (recurrence + 2.0 * real(n.conv_kernel) * channels);
  }
  return 0.0;
}

double head_flops(const ModelConfig& config) {
  return kFlopsPerWeight * real(config.vocab) * real(config.hidden);
}

/// A prediction depth: its blocks, its projection, and one more pass through the LM head.
double prediction_flops(const ModelConfig& config, std::int64_t seq, const Sum& sum) {
  const double projection = kFlopsPerWeight * 2.0 * real(config.hidden) * real(config.hidden);
  double per_depth = projection + head_flops(config);
  for (const LayerConfig& block : config.mtp.blocks) {
    per_depth += attention_core(config, block, seq) + mixer_core(config, block);
  }
  return kFlopsPerWeight * sum.active_matrices(config.moe.router) +
         real(config.mtp.layers) * per_depth;
}

std::vector<FlopTerm> count_flops(const ModelConfig& config, std::int64_t seq, Sums& sums,
                                  bool with_mtp) {
  double attention = 0.0, mixer = 0.0;
  for (const LayerConfig& layer : config.layers) {
    attention += attention_core(config, layer, seq);
    mixer += mixer_core(config, layer);
  }
  const auto matrices = [&](Component component) {
    return Flops(kFlopsPerWeight * sums.components[component].active_matrices(config.moe.router));
  };
  std::vector<FlopTerm> terms = {{"attention", matrices(Component::attention)},
                                 {"attention_core", Flops(attention)},
                                 {"mixer", matrices(Component::mixer)},
                                 {"mixer_core", Flops(mixer)},
                                 {"routed_experts", matrices(Component::routed_experts)},
                                 {"shared_experts", matrices(Component::shared_experts)},
                                 {"dense_ffn", matrices(Component::dense_ffn)},
                                 {"lm_head", Flops(head_flops(config))},
                                 {"mtp", Flops(0.0)}};
  if (with_mtp && config.mtp.layers > 0) {
    terms.back().flops = Flops(prediction_flops(config, seq, sums.components[Component::mtp]));
  }
  return terms;
}

/// Source: Megatron-LM, num_floating_point_operations, the part for hybrid models.
std::vector<FlopTerm> megatron_differences(const ModelConfig& config) {
  double projections = 0.0, core = 0.0;
  const Mamba2Config& m = config.mamba2;
  const double assumed = 2.0 * real(config.hidden);
  for (const LayerConfig& layer : config.layers) {
    if (layer.mixer != MixerKind::mamba2) continue;
    // The inner width is multiplied with three times: x and z in, y out.
    projections +=
        kFlopsPerWeight * real(config.hidden) * 3.0 * (assumed - real(m.heads * m.head_dim));
    core += kPasses * 7.0 * assumed * real(m.state) - mixer_core(config, layer);
  }
  if (m.heads == 0) return {};
  return {{"mixer", Flops(projections)}, {"mixer_core", Flops(core)}};
}

std::string kind_name(const LayerConfig& layer) {
  std::string name;
  if (layer.mixer != MixerKind::none) name = to_string(layer.mixer);
  if (layer.window > 0) name += fmt::format(" (window {})", layer.window);
  if (layer.chunk > 0) name += fmt::format(" (chunks of {})", layer.chunk);
  if (layer.ffn == FfnKind::none) return name;
  return name + (name.empty() ? "" : " + ") + to_string(layer.ffn);
}

/// Layers of one kind in order of first appearance.
std::vector<LayerKind> layer_kinds(const ModelConfig& config, std::int64_t seq, const Sums& sums) {
  std::vector<LayerKind> kinds;
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    const std::string name = kind_name(layer);
    const auto same = [&](const LayerKind& kind) { return kind.name == name; };
    auto kind = std::find_if(kinds.begin(), kinds.end(), same);
    if (kind == kinds.end()) {
      LayerKind fresh;
      fresh.name = name;
      fresh.per_layer = sums.layers[i].count(config.moe.router);
      fresh.flops_per_layer =
          Flops(kFlopsPerWeight * sums.layers[i].active_matrices(config.moe.router) +
                attention_core(config, layer, seq) + mixer_core(config, layer));
      kinds.push_back(std::move(fresh));
      kind = kinds.end() - 1;
    }
    ++kind->layers;
  }
  return kinds;
}

}  // namespace

double mean_keys(const LayerConfig& layer, std::int64_t seq) {
  const double s = real(seq);
  if (layer.window > 0 && layer.window < seq) {
    const double w = real(layer.window);
    return w - w * w / (2.0 * s);
  }
  if (layer.chunk > 0 && layer.chunk < seq) {
    const double whole = real(seq / layer.chunk) * real(layer.chunk) * real(layer.chunk);
    const double rest = real(seq % layer.chunk) * real(seq % layer.chunk);
    return (whole + rest) / (2.0 * s);
  }
  return s / 2.0;
}

std::int64_t default_sequence_length(const ModelConfig& config) {
  constexpr std::int64_t kUsual = 4096;  // of the published accounts
  return config.max_positions > 0 ? std::min(kUsual, config.max_positions) : kUsual;
}

Ledger make_ledger(const ModelConfig& config, std::int64_t seq, const LedgerOptions& options) {
  if (seq < 1) {
    throw input_error("seq", "expected a sequence length of at least 1, got {}; give e.g. 4096",
                      seq);
  }
  if (seq > kLongestSequence) {
    throw input_error("seq", "expected a sequence length of at most {}, got {} or more",
                      kLongestSequence, seq);
  }
  Sums sums = sum_tensors(config);
  Ledger ledger;
  ledger.seq = seq;
  ledger.params = count_parameters(config, sums);
  ledger.flop_terms = count_flops(config, seq, sums, options.with_mtp);
  for (const FlopTerm& term : ledger.flop_terms) ledger.flops += term.flops;
  ledger.megatron_differences = megatron_differences(config);
  ledger.layer_kinds = layer_kinds(config, seq, sums);
  return ledger;
}

}  // namespace moestro::model
