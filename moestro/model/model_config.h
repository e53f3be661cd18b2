#pragma once
// What is trained: the shape of a decoder-only MoE language model, independent of the family that
// spells it. Plain data; hf_config.h fills it from a Hugging Face config.json, tensors.h lists its
// tensors, ledger.h counts its parameters and FLOPs.
//
// A model is an embedding, a list of layers and a head. A layer has a mixer half (attention or a
// state-space mixer) and an FFN half (dense or routed); either may be absent (Nemotron-H blocks
// have one of the two).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moestro::model {

/// The architecture family: decides tensor names and the details that no field spells out.
enum class Family {
  deepseek_v1,
  deepseek_v2,
  deepseek_v3,  // also R1 and Kimi-K2
  qwen3_moe,
  qwen3_next,
  qwen3_5_moe,
  nemotron_h,
  gpt_oss,
  mixtral,
  llama4,
  olmoe,
  granitemoe,
  phimoe,
  glm4_moe,
};

enum class MixerKind { none, attention, mla, mamba2, gated_delta_net };
enum class FfnKind { none, dense, moe };

/// How an FFN or expert combines its matrices. swiglu kinds have three matrices (gate, up, down),
/// the others two (up, down).
enum class Activation { swiglu, clamped_swiglu, relu2, gelu };

enum class NormKind { rms, rms_zero_centred /* x * (1 + w) */, layer_norm /* with bias */ };

enum class QkNorm {
  none,
  per_head,            // RMS over head_dim, weight [head_dim]
  whole,               // RMS over the whole projection before the head split (OLMoE)
  per_head_unweighted  // RMS over head_dim without weight (Llama 4)
};

/// Rotary position embedding.
enum class RopeKind { none, plain, linear, dynamic, yarn, llama3, longrope, proportional };

/// inv_freq_i = theta^(-2i/d) over the `rotary_dim` first dims.
struct Rope {
  RopeKind kind = RopeKind::plain;
  double theta = 10000.0;
  std::int64_t rotary_dim = 0;  // dims of a head that rotate (the first ones)
  bool interleaved = false;     // pairs (2i, 2i+1) instead of (i, i + d/2)
  double factor = 1.0;
  std::int64_t original_max_positions = 0;
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn
  bool truncate = true;                                  // yarn: round low/high to integers
  std::optional<double> attention_factor;                // yarn, longrope
  std::optional<double> mscale, mscale_all_dim;          // yarn
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  std::vector<double> short_factor, long_factor;         // longrope
  std::optional<double> short_mscale, long_mscale;       // longrope (Phi)

  bool operator==(const Rope&) const = default;
};

/// Grouped-query (or multi-head: kv_heads == heads) softmax attention.
struct AttentionConfig {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  bool qkv_bias = false;
  bool output_bias = false;
  bool has_output_gate = false;  // q_proj also makes a sigmoid gate per head (Qwen3-Next)
  bool has_sinks = false;        // one learned logit per head in the softmax denominator (gpt-oss)
  QkNorm qk_norm = QkNorm::none;
  double scale = 0.0;              // softmax scale; head_dim^-1/2 unless the family says otherwise
  std::optional<double> clip_qkv;  // clamp q, k, v to [-c, c] after the q/k norm (OLMoE)
  std::optional<std::int64_t> temperature_floor;  // Llama 4 query scaling on NoPE layers
  double temperature_scale = 0.1;

  bool operator==(const AttentionConfig&) const = default;
};

/// Multi-head latent attention. q_lora_rank 0: queries are projected directly.
struct MlaConfig {
  std::int64_t heads = 0;
  std::int64_t q_lora_rank = 0;
  std::int64_t kv_lora_rank = 0;
  std::int64_t qk_nope_head_dim = 0;
  std::int64_t qk_rope_head_dim = 0;
  std::int64_t v_head_dim = 0;
  bool has_bias = false;  // on q_a_proj (if present), kv_a_proj_with_mqa and o_proj only
  double scale = 0.0;     // (nope + rope)^-1/2, times m(mscale_all_dim)^2 under yarn

  bool operator==(const MlaConfig&) const = default;
};

struct Mamba2Config {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t groups = 0;
  std::int64_t state = 0;
  std::int64_t conv_kernel = 0;
  std::int64_t chunk = 0;
  bool conv_bias = false;
  bool proj_bias = false;  // in_proj and out_proj
  double time_step_min = 0.0;

  bool operator==(const Mamba2Config&) const = default;
};

struct GatedDeltaNetConfig {
  std::int64_t key_heads = 0;
  std::int64_t key_head_dim = 0;
  std::int64_t value_heads = 0;
  std::int64_t value_head_dim = 0;
  std::int64_t conv_kernel = 0;

  bool operator==(const GatedDeltaNetConfig&) const = default;
};

/// How router logits become scores.
enum class ScoreKind {
  softmax,            // softmax over all experts, then top-k
  sigmoid,            // sigmoid, then top-k (on score + selection bias)
  softmax_of_chosen,  // top-k on logits, then softmax over the chosen
  sigmoid_input,      // top-1 on logits, sigmoid scales the expert input (Llama 4)
  sparsemixer         // PhiMoE
};

/// How experts are chosen inside groups.
enum class GroupScore { max, sum_of_two_best };

struct RouterConfig {
  std::int64_t experts = 0;
  std::int64_t top_k = 0;
  ScoreKind score = ScoreKind::softmax;
  bool renormalise = false;  // divide the chosen weights by their sum
  double scaling_factor = 1.0;
  bool has_selection_bias = false;  // e_score_correction_bias: used to choose, not to weigh
  bool has_linear_bias = false;     // gpt-oss
  std::int64_t groups = 1;          // experts are chosen inside the topk_groups best groups
  std::int64_t topk_groups = 1;
  GroupScore group_score = GroupScore::sum_of_two_best;
  double aux_loss_coefficient = 0.0;  // as the config states it; a run decides for itself
  double sparsemixer_epsilon = 0.01;

  bool operator==(const RouterConfig&) const = default;
};

struct MoeConfig {
  RouterConfig router;
  std::int64_t expert_width = 0;  // I of one routed expert
  std::int64_t shared_width = 0;  // total width of the shared expert(s); 0: none
  bool has_shared_gate = false;   // sigmoid(x . w) scales the shared expert (Qwen3-Next)
  bool expert_bias = false;       // biases in the routed experts (gpt-oss)
  bool shared_bias = false;       // biases in the shared expert (mlp_bias)
  bool latent_bias = false;       // biases in the latent projections (Nemotron mlp_bias)
  std::int64_t latent_width = 0;  // routed experts run in a projected space (Nemotron); 0: none

  bool operator==(const MoeConfig&) const = default;
};

/// One layer (or block) of the decoder.
struct LayerConfig {
  MixerKind mixer = MixerKind::attention;
  FfnKind ffn = FfnKind::dense;
  std::int64_t window = 0;  // sliding window: 0 <= i - j < window; 0: none
  std::int64_t chunk = 0;   // chunked attention: floor(i/chunk) == floor(j/chunk); 0: none
  bool has_rope = true;     // false: no position embedding on this layer

  bool operator==(const LayerConfig&) const = default;
};

/// Multi-token prediction: extra layers that the checkpoint holds beside the model.
struct MtpConfig {
  std::int64_t layers = 0;          // prediction depths
  std::vector<LayerConfig> blocks;  // decoder layers of one depth (one; two blocks in Nemotron-H)
  bool has_own_embedding = false;   // the checkpoint stores a copy of embedding and head (DeepSeek)

  bool operator==(const MtpConfig&) const = default;
};

struct ModelConfig {
  Family family = Family::mixtral;
  std::string model_type;    // as the file says ("qwen3_moe")
  std::string architecture;  // as the file says ("Qwen3MoeForCausalLM"); may be empty
  std::int64_t hidden = 0;
  std::int64_t vocab = 0;
  std::int64_t max_positions = 0;
  std::vector<LayerConfig> layers;

  AttentionConfig attention;  // used by layers whose mixer is attention
  MlaConfig mla;
  Mamba2Config mamba2;
  GatedDeltaNetConfig gated_delta_net;
  Rope rope;
  MoeConfig moe;  // used by layers whose ffn is moe
  std::int64_t dense_width = 0;
  bool dense_bias = false;
  Activation activation = Activation::swiglu;
  double swiglu_alpha = 1.702, swiglu_limit = 7.0;  // clamped_swiglu

  NormKind norm = NormKind::rms;
  double norm_epsilon = 1e-5;
  bool tied_embeddings = false;
  bool head_bias = false;
  double embedding_multiplier = 1.0;  // Granite
  double residual_multiplier = 1.0;
  double logits_divisor = 1.0;
  double initializer_range = 0.02;
  bool is_nested = false;  // the language model of a multi-modal one: its tensors have other names
  MtpConfig mtp;
  std::optional<std::int64_t> padding_token;  // its embedding row is not trained by look-ups

  bool operator==(const ModelConfig&) const = default;
};

/// The names of the enumerators, as they are spelled above.
[[nodiscard]] const char* to_string(Family family);
[[nodiscard]] const char* to_string(MixerKind kind);
[[nodiscard]] const char* to_string(FfnKind kind);

}  // namespace moestro::model
