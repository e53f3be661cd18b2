#pragma once
// Builds the tensor list half-layer by half-layer. `Names` is how a family spells things.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "moestro/model/model_config.h"
#include "moestro/model/tensors.h"

namespace moestro::model::internal {

/// How a family's checkpoints spell things; parts of a layer are suffixes of the layer's prefix.
struct Names {
  std::string_view decoder = "model.";  // precedes "layers.N."
  std::string_view head;                // precedes "lm_head."
  std::string_view input_norm = "input_layernorm";
  std::string_view attention = "self_attn.";
  std::string_view mamba = "mixer.";
  std::string_view delta_net = "linear_attn.";
  std::string_view ffn = "mlp.";     // dense and routed
  std::string_view router = "gate";  // after ffn
  std::string_view shared = "shared_experts.";
  std::string_view gate = "gate_proj";  // of one routed expert
  std::string_view up = "up_proj";
  std::string_view down = "down_proj";
  std::string_view stacked_up = "experts.gate_up_proj";  // all experts in one tensor
  std::string_view stacked_down = "experts.down_proj";
  bool stacks_experts = false;
  bool splits_delta_net = false;  // in_proj_qkv, z, b, a instead of qkvz, ba
  Layout stacked_up_layout = Layout::out_in;
  Layout stacked_down_layout = Layout::out_in;
};
[[nodiscard]] Names names_of(const ModelConfig& config);

/// The list under construction, with the layer that is being listed.
class TensorList {
 public:
  /// Tensors that follow belong to `layer`, and their names start with `prefix`.
  void begin(int layer, std::string prefix);
  /// From here on everything counts as multi-token prediction.
  void begin_prediction() { is_prediction_ = true; }
  TensorSpec& add(std::string_view name, std::vector<std::int64_t> shape, Role role,
                  Component component);
  [[nodiscard]] std::vector<TensorSpec> take() { return std::move(tensors_); }

 private:
  std::vector<TensorSpec> tensors_;
  int layer_ = -1;
  std::string prefix_;
  bool is_prediction_ = false;
};

/// The mixer half of a layer, norms of the layer excluded.
void add_mixer(const ModelConfig& config, const LayerConfig& layer, const Names& names,
               TensorList& list);
/// The FFN half of a layer, norms of the layer excluded.
void add_ffn(const ModelConfig& config, const LayerConfig& layer, const Names& names,
             TensorList& list);

/// Whether FFNs and experts have a gate matrix beside up and down.
[[nodiscard]] bool has_gate_matrix(Activation activation);

}  // namespace moestro::model::internal
