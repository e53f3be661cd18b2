#pragma once
// Every tensor of a checkpoint, in order: the one list behind parameter counts, checkpoint reading
// and writing, and completeness proofs.
//
//   for (const TensorSpec& t : tensors(config)) total += t.elements();

#include <cstdint>
#include <string>
#include <vector>

#include "moestro/model/model_config.h"

namespace moestro::model {

/// What a tensor is for, whatever its family calls it. Shapes are PyTorch's [out, in] unless said.
enum class Role {
  embedding,   // [vocab, hidden]
  input_norm,  // [hidden]: before the mixer (or before a single-mixer block)
  input_norm_bias,
  post_attention_norm,  // [hidden]: before the FFN half
  post_attention_norm_bias,
  final_norm,
  final_norm_bias,
  lm_head,  // [vocab, hidden]; absent when tied
  lm_head_bias,
  // attention
  q_proj,
  k_proj,
  v_proj,
  o_proj,
  q_bias,
  k_bias,
  v_bias,
  o_bias,
  q_norm,
  k_norm,
  sinks,
  // MLA
  q_a_proj,
  q_a_bias,
  q_a_norm,
  q_b_proj,
  kv_a_proj,
  kv_a_bias,
  kv_a_norm,
  kv_b_proj,
  // state-space mixers (Mamba-2 and Gated DeltaNet)
  in_proj,
  in_proj_bias,
  in_proj_qkvz,
  in_proj_ba,
  in_proj_qkv,
  in_proj_z,
  in_proj_b,
  in_proj_a,
  conv,
  conv_bias,
  a_log,
  d_skip,
  dt_bias,
  mixer_norm,
  out_proj,
  out_proj_bias,
  // FFN
  router,
  router_bias,
  selection_bias,
  expert_gate,
  expert_up,
  expert_down,  // one expert, or dense when expert == -1 is dense_*
  expert_gate_up,
  expert_down_stacked,  // all experts in one tensor; layout says which way
  expert_gate_up_bias,
  expert_down_stacked_bias,
  shared_gate,
  shared_up,
  shared_down,
  shared_gate_bias,
  shared_up_bias,
  shared_down_bias,
  shared_expert_gate,
  dense_gate,
  dense_up,
  dense_down,
  dense_gate_bias,
  dense_up_bias,
  dense_down_bias,
  latent_in,
  latent_in_bias,
  latent_out,
  latent_out_bias,
  // MTP
  mtp_embedding_norm,
  mtp_hidden_norm,
  mtp_projection,
  mtp_final_norm,
  mtp_embedding,
  mtp_head,
};

/// How the experts of a stacked tensor are laid out.
enum class Layout {
  out_in,              // [.., out, in]
  in_out,              // [.., in, out] (gpt-oss, Llama 4): transposed
  in_out_interleaved,  // [.., in, 2I] with even columns gate, odd columns up (gpt-oss)
};

/// Where `describe` counts a tensor.
enum class Component {
  embedding,
  attention,
  mixer,
  router,
  routed_experts,
  shared_experts,
  dense_ffn,
  norm,
  lm_head,
  mtp,
};

struct TensorSpec {
  std::string name;  // exactly as on disk
  std::vector<std::int64_t> shape;
  Role role = Role::embedding;
  Component component = Component::embedding;
  int layer = -1;   // -1: not in a layer
  int expert = -1;  // routed expert index, -1: not per expert
  Layout layout = Layout::out_in;

  [[nodiscard]] std::int64_t elements() const;
};

/// All tensors a checkpoint of this model holds, in a fixed order (embedding, layers, final norm,
/// head, MTP). MTP tensors have Component::mtp. Tied heads are not listed.
/// Source: the modelling code of Hugging Face transformers and the published checkpoints.
[[nodiscard]] std::vector<TensorSpec> tensors(const ModelConfig& config);

/// The head [vocab, hidden], whether it is listed or tied: some files hold the latter, too.
[[nodiscard]] TensorSpec head_tensor(const ModelConfig& config);

/// Where else a file may hold (part of) a tensor: transformers v5 saves fused experts.
struct AlternativeLocation {
  std::string name;                 // tensor on disk
  std::vector<std::int64_t> shape;  // its whole shape
  std::int64_t first_element = 0;   // the wanted tensor is contiguous from here
};
/// Locations to try, in order, when `spec.name` itself is not in the file. May be empty.
[[nodiscard]] std::vector<AlternativeLocation> alternative_locations(const ModelConfig& config,
                                                                     const TensorSpec& spec);

/// The matrices of single experts that a stacked tensor consists of, in the order of its elements,
/// for families whose files hold experts either way: published Qwen3.5 files stack them,
/// transformers saves them one by one. Empty for all other tensors.
[[nodiscard]] std::vector<TensorSpec> expert_pieces(const ModelConfig& config,
                                                    const TensorSpec& spec);

/// The name of the enumerator, as it is spelled above.
[[nodiscard]] const char* to_string(Component component);

}  // namespace moestro::model
