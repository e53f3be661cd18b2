#include <fmt/core.h>

#include "moestro/model/internal/tensor_list.h"

namespace moestro::model::internal {
namespace {

/// The matrices of one gated or plain FFN and what they are called.
struct FfnSpec {
  std::string prefix;
  std::int64_t hidden = 0;
  std::int64_t width = 0;
  bool has_bias = false;
  Component component = Component::dense_ffn;
  Role gate, up, down;
  Role gate_bias, up_bias, down_bias;
};

/// Dense FFNs and shared experts: gate_proj, up_proj, down_proj with optional biases.
void add_named_ffn(const FfnSpec& spec, bool has_gate, TensorList& list) {
  const auto add = [&](std::string_view name, std::int64_t out, std::int64_t in, Role weight,
                       Role bias) {
    list.add(fmt::format("{}{}.weight", spec.prefix, name), {out, in}, weight, spec.component);
    if (spec.has_bias) {
      list.add(fmt::format("{}{}.bias", spec.prefix, name), {out}, bias, spec.component);
    }
  };
  if (has_gate) add("gate_proj", spec.width, spec.hidden, spec.gate, spec.gate_bias);
  add("up_proj", spec.width, spec.hidden, spec.up, spec.up_bias);
  add("down_proj", spec.hidden, spec.width, spec.down, spec.down_bias);
}

void add_dense(const ModelConfig& config, const Names& names, TensorList& list) {
  const FfnSpec spec{std::string(names.ffn), config.hidden,        config.dense_width,
                     config.dense_bias,      Component::dense_ffn, Role::dense_gate,
                     Role::dense_up,         Role::dense_down,     Role::dense_gate_bias,
                     Role::dense_up_bias,    Role::dense_down_bias};
  add_named_ffn(spec, has_gate_matrix(config.activation), list);
}

void add_shared(const ModelConfig& config, const Names& names, TensorList& list) {
  const MoeConfig& moe = config.moe;
  if (moe.shared_width == 0) return;
  const std::string prefix = fmt::format("{}{}", names.ffn, names.shared);
  const FfnSpec spec{prefix,
                     config.hidden,
                     moe.shared_width,
                     moe.shared_bias,
                     Component::shared_experts,
                     Role::shared_gate,
                     Role::shared_up,
                     Role::shared_down,
                     Role::shared_gate_bias,
                     Role::shared_up_bias,
                     Role::shared_down_bias};
  add_named_ffn(spec, has_gate_matrix(config.activation), list);
  if (moe.has_shared_gate) {
    list.add(fmt::format("{}shared_expert_gate.weight", names.ffn), {1, config.hidden},
             Role::shared_expert_gate, Component::shared_experts);
  }
}

void add_router(const ModelConfig& config, const Names& names, TensorList& list) {
  const RouterConfig& router = config.moe.router;
  const std::string name = fmt::format("{}{}", names.ffn, names.router);
  list.add(name + ".weight", {router.experts, config.hidden}, Role::router, Component::router);
  if (router.has_linear_bias) {
    list.add(name + ".bias", {router.experts}, Role::router_bias, Component::router);
  }
  if (router.has_selection_bias) {
    list.add(name + ".e_score_correction_bias", {router.experts}, Role::selection_bias,
             Component::router);
  }
}

/// Width of the space the routed experts run in.
std::int64_t expert_input_width(const ModelConfig& config) {
  return config.moe.latent_width > 0 ? config.moe.latent_width : config.hidden;
}

void add_single_experts(const ModelConfig& config, const Names& names, TensorList& list) {
  const std::int64_t in = expert_input_width(config);
  const std::int64_t width = config.moe.expert_width;
  const Component component = Component::routed_experts;
  for (int e = 0; e < config.moe.router.experts; ++e) {
    const std::string prefix = fmt::format("{}experts.{}.", names.ffn, e);
    const auto add = [&](std::string_view name, std::vector<std::int64_t> shape, Role role) {
      list.add(fmt::format("{}{}.weight", prefix, name), std::move(shape), role, component).expert =
          e;
    };
    if (has_gate_matrix(config.activation)) add(names.gate, {width, in}, Role::expert_gate);
    add(names.up, {width, in}, Role::expert_up);
    add(names.down, {in, width}, Role::expert_down);
  }
}

/// Gate and up as one tensor of all experts, down as another.
void add_stacked_experts(const ModelConfig& config, const Names& names, TensorList& list) {
  const std::int64_t e = config.moe.router.experts;
  const std::int64_t in = config.hidden;
  const std::int64_t width = config.moe.expert_width;
  const std::string up = fmt::format("{}{}", names.ffn, names.stacked_up);
  const std::string down = fmt::format("{}{}", names.ffn, names.stacked_down);
  const Component component = Component::routed_experts;
  using Shape = std::vector<std::int64_t>;
  const bool is_up_transposed = names.stacked_up_layout != Layout::out_in;
  const bool is_down_transposed = names.stacked_down_layout != Layout::out_in;
  list.add(up, is_up_transposed ? Shape{e, in, 2 * width} : Shape{e, 2 * width, in},
           Role::expert_gate_up, component)
      .layout = names.stacked_up_layout;
  if (config.moe.expert_bias) {
    list.add(up + "_bias", {e, 2 * width}, Role::expert_gate_up_bias, component).layout =
        names.stacked_up_layout;
  }
  list.add(down, is_down_transposed ? Shape{e, width, in} : Shape{e, in, width},
           Role::expert_down_stacked, component)
      .layout = names.stacked_down_layout;
  if (config.moe.expert_bias) {
    list.add(down + "_bias", {e, in}, Role::expert_down_stacked_bias, component);
  }
}

void add_latent(const ModelConfig& config, const Names& names, TensorList& list) {
  const std::int64_t latent = config.moe.latent_width;
  if (latent == 0) return;
  const auto add = [&](std::string_view name, std::int64_t out, std::int64_t in, Role weight,
                       Role bias) {
    list.add(fmt::format("{}{}.weight", names.ffn, name), {out, in}, weight,
             Component::routed_experts);
    if (config.moe.latent_bias) {
      list.add(fmt::format("{}{}.bias", names.ffn, name), {out}, bias, Component::routed_experts);
    }
  };
  add("fc1_latent_proj", latent, config.hidden, Role::latent_in, Role::latent_in_bias);
  add("fc2_latent_proj", config.hidden, latent, Role::latent_out, Role::latent_out_bias);
}

}  // namespace

bool has_gate_matrix(Activation activation) {
  return activation == Activation::swiglu || activation == Activation::clamped_swiglu;
}

void add_ffn(const ModelConfig& config, const LayerConfig& layer, const Names& names,
             TensorList& list) {
  if (layer.ffn == FfnKind::dense) add_dense(config, names, list);
  if (layer.ffn != FfnKind::moe) return;
  add_router(config, names, list);
  if (names.stacks_experts) {
    add_stacked_experts(config, names, list);
  } else {
    add_single_experts(config, names, list);
  }
  add_latent(config, names, list);
  add_shared(config, names, list);
}

}  // namespace moestro::model::internal
