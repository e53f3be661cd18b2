#pragma once
// A GLM-4 MoE of one layer: sigmoid router with a selection bias, a shared expert, partial RoPE.

namespace moestro::model {

inline constexpr const char* kTinyGlm = R"({"model_type": "glm4_moe", "vocab_size": 19,
  "hidden_size": 12, "intermediate_size": 20, "moe_intermediate_size": 6, "num_hidden_layers": 1,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "n_routed_experts": 4,
  "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 0, "n_group": 1,
  "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.5, "use_qk_norm": true,
  "attention_bias": true, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
  "partial_rotary_factor": 0.5, "max_position_embeddings": 64, "tie_word_embeddings": false,
  "num_nextn_predict_layers": 0, "initializer_range": 0.5})";

}  // namespace moestro::model
