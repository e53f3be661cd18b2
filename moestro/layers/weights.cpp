#include "moestro/layers/weights.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <algorithm>

#include "moestro/core/error.h"
#include "moestro/core/rng.h"
#include "moestro/kernels/parallel.h"

namespace moestro::layers {
namespace {

using model::Role;

AttentionWeights make_attention(const model::ModelConfig& config, const std::string& prefix) {
  const model::AttentionConfig& a = config.attention;
  const std::int64_t q = a.heads * a.head_dim, kv = a.kv_heads * a.head_dim;
  AttentionWeights weights;
  weights.norm = make_parameter(prefix + "norm", {config.hidden});
  weights.qkv = make_parameter(prefix + "qkv", {q + 2 * kv, config.hidden});
  weights.output = make_parameter(prefix + "output", {config.hidden, q});
  if (a.qkv_bias) weights.qkv_bias = make_parameter(prefix + "qkv_bias", {q + 2 * kv});
  if (a.output_bias) weights.output_bias = make_parameter(prefix + "output_bias", {config.hidden});
  if (a.qk_norm == model::QkNorm::per_head || a.qk_norm == model::QkNorm::whole) {
    const bool per_head = a.qk_norm == model::QkNorm::per_head;
    weights.q_norm = make_parameter(prefix + "q_norm", {per_head ? a.head_dim : q});
    weights.k_norm = make_parameter(prefix + "k_norm", {per_head ? a.head_dim : kv});
  }
  return weights;
}

MlpWeights make_mlp(const std::string& prefix, std::int64_t hidden, std::int64_t width) {
  return {make_parameter(prefix + "gate_up", {2 * width, hidden}),
          make_parameter(prefix + "down", {hidden, width})};
}

MoeWeights make_moe(const model::ModelConfig& config, const std::string& prefix) {
  const model::MoeConfig& moe = config.moe;
  const std::int64_t experts = moe.router.experts, width = moe.expert_width;
  MoeWeights weights;
  weights.router = make_parameter(prefix + "router", {experts, config.hidden});
  if (moe.router.has_linear_bias)
    weights.router_bias = make_parameter(prefix + "router_bias", {experts});
  if (moe.router.has_selection_bias) weights.selection_bias = at::zeros({experts}, at::kFloat);
  weights.gate_up =
      make_parameter(prefix + "gate_up", {experts, 2 * width, config.hidden}, experts);
  weights.down = make_parameter(prefix + "down", {experts, config.hidden, width}, experts);
  if (moe.shared_width > 0)
    weights.shared = make_mlp(prefix + "shared.", config.hidden, moe.shared_width);
  return weights;
}

void append(std::vector<Parameter*>& list, std::initializer_list<Parameter*> parameters) {
  for (Parameter* p : parameters) {
    if (p->defined()) list.push_back(p);
  }
}

/// Where a tensor lives, by what it is for.
struct Piece {
  Parameter* parameter = nullptr;
  std::int64_t first = 0;
  at::Tensor plain;  // instead of a parameter
};

Piece attention_piece(const model::ModelConfig& config, AttentionWeights& w, Role role) {
  const model::AttentionConfig& a = config.attention;
  const std::int64_t q = a.heads * a.head_dim, kv = a.kv_heads * a.head_dim, h = config.hidden;
  switch (role) {
    case Role::input_norm:
      return {&w.norm, 0, {}};
    case Role::q_proj:
      return {&w.qkv, 0, {}};
    case Role::k_proj:
      return {&w.qkv, q * h, {}};
    case Role::v_proj:
      return {&w.qkv, (q + kv) * h, {}};
    case Role::o_proj:
      return {&w.output, 0, {}};
    case Role::q_bias:
      return {&w.qkv_bias, 0, {}};
    case Role::k_bias:
      return {&w.qkv_bias, q, {}};
    case Role::v_bias:
      return {&w.qkv_bias, q + kv, {}};
    case Role::o_bias:
      return {&w.output_bias, 0, {}};
    case Role::q_norm:
      return {&w.q_norm, 0, {}};
    case Role::k_norm:
      return {&w.k_norm, 0, {}};
    default:
      return {};
  }
}

Piece mlp_piece(MlpWeights& w, int part) {
  // part 0 gate, 1 up, 2 down
  if (part == 2) return {&w.down, 0, {}};
  return {&w.gate_up, part == 1 ? w.gate_up.value.numel() / 2 : 0, {}};
}

Piece ffn_piece(const model::ModelConfig& config, LayerWeights& layer, Role role, int expert) {
  MoeWeights& moe = layer.moe;
  const std::int64_t matrix = config.moe.expert_width * config.hidden;
  const auto e = static_cast<std::int64_t>(std::max(expert, 0));
  switch (role) {
    case Role::post_attention_norm:
      return {&layer.ffn_norm, 0, {}};
    case Role::dense_gate:
      return mlp_piece(layer.dense, 0);
    case Role::dense_up:
      return mlp_piece(layer.dense, 1);
    case Role::dense_down:
      return mlp_piece(layer.dense, 2);
    case Role::router:
      return {&moe.router, 0, {}};
    case Role::router_bias:
      return {&moe.router_bias, 0, {}};
    case Role::selection_bias:
      return {nullptr, 0, moe.selection_bias};
    case Role::expert_gate:
      return {&moe.gate_up, e * 2 * matrix, {}};
    case Role::expert_up:
      return {&moe.gate_up, (e * 2 + 1) * matrix, {}};
    case Role::expert_down:
      return {&moe.down, e * matrix, {}};
    case Role::expert_gate_up:
      return {&moe.gate_up, 0, {}};
    case Role::expert_down_stacked:
      return {&moe.down, 0, {}};
    case Role::shared_gate:
      return mlp_piece(moe.shared, 0);
    case Role::shared_up:
      return mlp_piece(moe.shared, 1);
    case Role::shared_down:
      return mlp_piece(moe.shared, 2);
    default:
      return {};
  }
}

Piece find_piece(const model::ModelConfig& config, ModelWeights& weights,
                 const model::TensorSpec& spec) {
  if (spec.layer < 0) {
    switch (spec.role) {
      case Role::embedding:
        return {&weights.embedding, 0, {}};
      case Role::final_norm:
        return {&weights.final_norm, 0, {}};
      case Role::lm_head:
        return {&weights.head, 0, {}};
      default:
        return {};
    }
  }
  LayerWeights& layer = weights.layers[static_cast<std::size_t>(spec.layer)];
  const Piece piece = attention_piece(config, layer.attention, spec.role);
  return piece.parameter != nullptr ? piece : ffn_piece(config, layer, spec.role, spec.expert);
}

bool is_norm(Role role) {
  return role == Role::input_norm || role == Role::post_attention_norm ||
         role == Role::final_norm || role == Role::q_norm || role == Role::k_norm;
}

bool is_bias(Role role) {
  return role == Role::q_bias || role == Role::k_bias || role == Role::v_bias ||
         role == Role::o_bias || role == Role::router_bias || role == Role::selection_bias;
}

void draw(const Binding& binding, std::uint64_t seed, double deviation) {
  float* value = binding.value();
  const std::int64_t n = binding.spec.elements();
  if (is_norm(binding.spec.role) || is_bias(binding.spec.role)) {
    std::fill(value, value + n, is_norm(binding.spec.role) ? 1.0F : 0.0F);
    return;
  }
  Rng rng(seed, binding.spec.name);
  for (std::int64_t i = 0; i < n; ++i) value[i] = static_cast<float>(deviation * rng.normal());
}

std::string why_not_attention(const model::ModelConfig& config) {
  const model::AttentionConfig& a = config.attention;
  if (a.has_output_gate) return "its attention has an output gate";
  if (a.has_sinks) return "its attention has sinks";
  if (a.qk_norm == model::QkNorm::per_head_unweighted) return "its q/k norm has no weight";
  if (a.temperature_floor) return "its attention scales queries by position";
  return "";
}

std::string why_not_rope(const model::ModelConfig& config) {
  const model::Rope& rope = config.rope;
  if (rope.kind == model::RopeKind::none) return "";
  if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0) {
    return fmt::format("{} dims of a head rotate, which are no pairs", rope.rotary_dim);
  }
  if (rope.kind == model::RopeKind::dynamic) return "its rope_type is dynamic";
  if (rope.kind == model::RopeKind::proportional) return "its rope_type is proportional";
  if (rope.kind != model::RopeKind::longrope) return "";
  const auto factors = static_cast<std::size_t>(rope.rotary_dim / 2);
  if (rope.short_factor.size() != factors || rope.long_factor.size() != factors) {
    return "its longrope has no short_factor or no long_factor";
  }
  if (config.family != model::Family::phimoe && (rope.short_mscale || rope.long_mscale)) {
    return "its longrope has a short_mscale or long_mscale, which means something in phimoe only";
  }
  if (!rope.attention_factor && rope.factor > 1.0 && rope.original_max_positions < 2) {
    return "its longrope has no attention_factor, and none follows from 1 original position";
  }
  return "";
}

std::string why_not_moe(const model::MoeConfig& moe) {
  if (moe.expert_bias) return "its experts have biases";
  if (moe.shared_bias) return "its shared expert has biases";
  if (moe.has_shared_gate) return "its shared expert is gated";
  if (moe.latent_width > 0) return "its experts run in a latent space";
  if (moe.router.score == model::ScoreKind::sparsemixer) return "its router is a sparsemixer";
  if (moe.router.score == model::ScoreKind::sigmoid_input) return "its router scales expert inputs";
  return "";
}

}  // namespace

float* Binding::value() const {
  return tensor.data_ptr<float>() + first;
}

const float* Binding::gradient() const {
  return parameter == nullptr ? nullptr : parameter->grad.data_ptr<float>() + first;
}

std::string why_not_trainable(const model::ModelConfig& config) {
  for (const model::LayerConfig& layer : config.layers) {
    if (layer.mixer != model::MixerKind::attention) {
      return fmt::format("its mixer is {}", to_string(layer.mixer));
    }
    if (layer.ffn == model::FfnKind::none) return "it has blocks without an FFN";
    if (layer.chunk > 0) return "it has chunked attention";
  }
  if (config.norm != model::NormKind::rms) return "its norm is not plain RMSNorm";
  if (config.activation != model::Activation::swiglu) return "its activation is not SwiGLU";
  if (config.dense_bias || config.head_bias) return "it has biases in its MLPs or head";
  for (const std::string& reason : {why_not_attention(config), why_not_rope(config)}) {
    if (!reason.empty()) return reason;
  }
  return why_not_moe(config.moe);
}

void require_trainable(const model::ModelConfig& config) {
  const std::string reason = why_not_trainable(config);
  if (reason.empty()) return;
  throw input_error(config.model_type,
                    "this version cannot run the model: {}; families that "
                    "train are mixtral, qwen3_moe, olmoe, granitemoe, deepseek and glm4_moe",
                    reason);
}

ModelWeights make_weights(const model::ModelConfig& config) {
  require_trainable(config);
  ModelWeights weights;
  weights.embedding = make_parameter("embedding", {config.vocab, config.hidden});
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const std::string prefix = fmt::format("layers.{}.", i);
    LayerWeights& layer = weights.layers.emplace_back();
    layer.attention = make_attention(config, prefix + "attention.");
    layer.ffn_norm = make_parameter(prefix + "ffn_norm", {config.hidden});
    if (config.layers[i].ffn == model::FfnKind::moe) {
      layer.moe = make_moe(config, prefix + "moe.");
    } else {
      layer.dense = make_mlp(prefix + "dense.", config.hidden, config.dense_width);
    }
  }
  weights.final_norm = make_parameter("final_norm", {config.hidden});
  if (!config.tied_embeddings) weights.head = make_parameter("head", {config.vocab, config.hidden});
  return weights;
}

std::vector<Parameter*> parameters(ModelWeights& weights) {
  std::vector<Parameter*> list;
  append(list, {&weights.embedding});
  for (LayerWeights& layer : weights.layers) {
    AttentionWeights& a = layer.attention;
    MoeWeights& m = layer.moe;
    append(list, {&a.norm, &a.qkv, &a.qkv_bias, &a.q_norm, &a.k_norm, &a.output, &a.output_bias,
                  &layer.ffn_norm, &layer.dense.gate_up, &layer.dense.down, &m.router,
                  &m.router_bias, &m.gate_up, &m.down, &m.shared.gate_up, &m.shared.down});
  }
  append(list, {&weights.final_norm, &weights.head});
  return list;
}

std::vector<Binding> bindings(const model::ModelConfig& config, ModelWeights& weights) {
  std::vector<Binding> list;
  for (model::TensorSpec& spec : model::tensors(config)) {
    if (spec.component == model::Component::mtp) continue;
    const Piece piece = find_piece(config, weights, spec);
    const at::Tensor tensor = piece.parameter != nullptr ? piece.parameter->value : piece.plain;
    MOESTRO_CHECK(tensor.defined() && piece.first + spec.elements() <= tensor.numel(),
                  "no memory for tensor {}", spec.name);
    list.push_back({std::move(spec), tensor, piece.parameter, piece.first});
  }
  return list;
}

void initialise(const model::ModelConfig& config, std::uint64_t seed, ModelWeights& weights) {
  const std::vector<Binding> list = bindings(config, weights);
  kernels::parallel_for(static_cast<std::int64_t>(list.size()), 1,
                        [&](std::int64_t begin, std::int64_t end) {
                          for (std::int64_t i = begin; i < end; ++i) {
                            draw(list[static_cast<std::size_t>(i)], seed, config.initializer_range);
                          }
                        });
}

}  // namespace moestro::layers
