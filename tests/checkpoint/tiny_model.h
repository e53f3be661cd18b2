#pragma once
// A tiny Mixtral whose every value is distinct, for tests of folders.

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "moestro/checkpoint/save.h"
#include "moestro/core/rng.h"
#include "moestro/model/hf_config.h"
#include "moestro/model/tensors.h"

namespace moestro::checkpoint {

inline constexpr const char* kTinyConfig = R"({
  "architectures": ["MixtralForCausalLM"],
  "model_type": "mixtral",
  "hidden_act": "silu",
  "hidden_size": 8,
  "initializer_range": 0.02,
  "intermediate_size": 6,
  "max_position_embeddings": 64,
  "num_attention_heads": 2,
  "num_experts_per_tok": 2,
  "num_hidden_layers": 2,
  "num_key_value_heads": 1,
  "num_local_experts": 4,
  "rms_norm_eps": 1e-05,
  "rope_theta": 10000.0,
  "router_aux_loss_coef": 0.001,
  "tie_word_embeddings": false,
  "vocab_size": 16
})";

inline model::ModelConfig tiny_config(bool is_tied = false) {
  model::ModelConfig config = model::parse_hf_config(kTinyConfig, "tiny").model;
  config.tied_embeddings = is_tied;
  return config;
}

/// Values of a tensor that follow from its name.
inline std::vector<float> values_of(const model::TensorSpec& spec) {
  Rng rng(1, spec.name);
  std::vector<float> values(static_cast<std::size_t>(spec.elements()));
  for (float& value : values) value = static_cast<float>(rng.normal());
  return values;
}

/// values_of as what the writers ask for.
inline TensorValues tiny_values() {
  return [buffer = std::vector<float>()](const model::TensorSpec& spec) mutable {
    buffer = values_of(spec);
    return std::span<const float>(buffer);
  };
}

}  // namespace moestro::checkpoint
