// Where transformers v5 saves what the original checkpoints hold under other names.

#include <fmt/core.h>

#include <optional>

#include "moestro/model/internal/tensor_list.h"
#include "moestro/model/tensors.h"

namespace moestro::model {
namespace {

/// Replaces the first `from` of a name; nothing if there is none.
std::optional<std::string> renamed(const std::string& name, std::string_view from,
                                   std::string_view to) {
  const std::size_t at = name.find(from);
  if (at == std::string::npos) return std::nullopt;
  std::string result = name;
  return result.replace(at, from.size(), to);
}

/// The tensor that holds all experts in v5, and where this expert's matrix starts in it.
std::optional<AlternativeLocation> fused_location(const ModelConfig& config,
                                                  const TensorSpec& spec) {
  if (spec.expert < 0) return std::nullopt;
  const bool has_gate = internal::has_gate_matrix(config.activation);
  const std::int64_t experts = config.moe.router.experts;
  const std::int64_t out = spec.shape[0], in = spec.shape[1];
  const std::string stem = spec.name.substr(0, spec.name.find("experts.")) + "experts.";
  const bool is_down = spec.role == Role::expert_down;
  const std::int64_t rows = !is_down && has_gate ? 2 * out : out;
  AlternativeLocation location;
  location.name = stem + (is_down ? "down_proj" : has_gate ? "gate_up_proj" : "up_proj");
  location.shape = {experts, rows, in};
  location.first_element = spec.expert * rows * in;
  if (spec.role == Role::expert_up && has_gate) location.first_element += out * in;
  return location;
}

/// Names that v5 gives tensors it does not reshape.
std::vector<std::string> plain_renames(const ModelConfig& config, const std::string& name) {
  std::vector<std::string> names;
  const auto add = [&](const std::optional<std::string>& candidate) {
    if (candidate) names.push_back(*candidate);
  };
  switch (config.family) {
    case Family::mixtral:
      add(renamed(name, ".block_sparse_moe.", ".mlp."));
      break;
    case Family::phimoe:
      add(renamed(name, ".block_sparse_moe.gate.", ".mlp.router."));
      add(renamed(name, ".block_sparse_moe.", ".mlp."));
      break;
    case Family::granitemoe:
      add(renamed(name, ".input_linear.weight", ".experts.gate_up_proj"));
      add(renamed(name, ".output_linear.weight", ".experts.down_proj"));
      add(renamed(name, ".router.layer.weight", ".router.weight"));
      break;
    case Family::nemotron_h:
      add(renamed(name, "backbone.", "model."));
      break;
    case Family::qwen3_5_moe:
      if (config.is_nested) add(renamed(name, "model.language_model.", "model."));
      break;
    case Family::llama4:
      if (config.is_nested) add(renamed(name, "language_model.", ""));
      break;
    default:
      break;
  }
  return names;
}

}  // namespace

std::vector<AlternativeLocation> alternative_locations(const ModelConfig& config,
                                                       const TensorSpec& spec) {
  std::vector<AlternativeLocation> locations;
  const auto add = [&](AlternativeLocation location) {
    const std::vector<std::string> others = plain_renames(config, location.name);
    if (location.name != spec.name) locations.push_back(location);
    for (const std::string& name : others) {
      locations.push_back({name, location.shape, location.first_element});
    }
  };
  add({spec.name, spec.shape, 0});
  if (const auto fused = fused_location(config, spec)) add(*fused);
  return locations;
}

std::vector<TensorSpec> expert_pieces(const ModelConfig& config, const TensorSpec& spec) {
  std::vector<TensorSpec> pieces;
  const bool is_up = spec.role == Role::expert_gate_up;
  const bool is_down = spec.role == Role::expert_down_stacked;
  if (config.family != Family::qwen3_5_moe || (!is_up && !is_down)) return pieces;
  const std::string stem = spec.name.substr(0, spec.name.rfind("experts."));
  const auto add = [&](int expert, std::string_view matrix, Role role) {
    TensorSpec piece = spec;
    piece.name = fmt::format("{}experts.{}.{}.weight", stem, expert, matrix);
    piece.shape = {is_up ? spec.shape[1] / 2 : spec.shape[1], spec.shape[2]};
    piece.role = role;
    piece.expert = expert;
    pieces.push_back(std::move(piece));
  };
  for (int expert = 0; expert < spec.shape[0]; ++expert) {
    if (is_up) add(expert, "gate_proj", Role::expert_gate);
    if (is_up) add(expert, "up_proj", Role::expert_up);
    if (is_down) add(expert, "down_proj", Role::expert_down);
  }
  return pieces;
}

}  // namespace moestro::model
