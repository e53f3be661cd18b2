#pragma once
// A tiny Qwen3.5: a language model inside a multi-modal one, whose files stack experts or do not.

#include "moestro/model/hf_config.h"

namespace moestro::checkpoint {

inline constexpr const char* kNested = R"({
  "architectures": ["Qwen3_5MoeForConditionalGeneration"],
  "model_type": "qwen3_5_moe",
  "tie_word_embeddings": false,
  "text_config": {
    "attention_bias": false, "head_dim": 8, "hidden_size": 8, "initializer_range": 0.02,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_conv_kernel_dim": 2, "linear_key_head_dim": 4, "linear_num_key_heads": 1,
    "linear_num_value_heads": 2, "linear_value_head_dim": 4, "max_position_embeddings": 64,
    "model_type": "qwen3_5_moe_text", "moe_intermediate_size": 3, "num_attention_heads": 2,
    "num_experts": 3, "num_experts_per_tok": 2, "num_hidden_layers": 2, "num_key_value_heads": 1,
    "rms_norm_eps": 1e-06,
    "rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 10000, "rope_type": "default"},
    "shared_expert_intermediate_size": 5, "vocab_size": 16
  }
})";

inline model::ModelConfig nested_config() {
  return model::parse_hf_config(kNested, "nested", {.strict = true}).model;
}

}  // namespace moestro::checkpoint
