#include "moestro/model/internal/known_keys.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "moestro/core/text.h"

namespace moestro::model::internal {
namespace {

using KeyList = std::vector<std::string>;

/// Keys that a reader uses: they mean something to one family at least.
const KeyList& model_keys() {
  static const KeyList keys = {
      // shape
      "architectures", "hidden_size", "intermediate_size", "intermediate_size_mlp",
      "max_position_embeddings", "model_type", "num_hidden_layers", "text_config",
      "tie_word_embeddings", "vocab_size",
      // attention
      "attention_bias", "attention_chunk_size", "attention_multiplier", "attn_output_gate",
      "attn_scale", "attn_temperature_tuning", "clip_qkv", "floor_scale", "head_dim", "layer_types",
      "is_causal", "max_window_layers", "no_rope_layer_interval", "no_rope_layers",
      "num_attention_heads", "num_key_value_heads", "qkv_bias", "sliding_window", "use_qk_norm",
      "use_sliding_window",
      // latent attention
      "kv_lora_rank", "q_lora_rank", "qk_head_dim", "qk_nope_head_dim", "qk_rope_head_dim",
      "v_head_dim",
      // position embedding
      "initial_context_length", "original_max_position_embeddings", "partial_rotary_factor",
      "rope_interleave", "rope_parameters", "rope_scaling", "rope_theta",
      // state-space mixers
      "chunk_size", "conv_kernel", "full_attention_interval", "linear_conv_kernel_dim",
      "linear_key_head_dim", "linear_num_key_heads", "linear_num_value_heads",
      "linear_value_head_dim", "mamba_chunk_size", "mamba_conv_bias", "mamba_d_conv",
      "mamba_dt_min", "mamba_head_dim", "mamba_hidden_act", "mamba_n_groups", "mamba_num_heads",
      "mamba_proj_bias", "n_groups", "ssm_state_size", "time_step_min", "use_bias", "use_conv_bias",
      // experts
      "decoder_sparse_step", "experts_per_token", "first_k_dense_replace", "hidden_act",
      "hybrid_override_pattern", "interleave_moe_layer_step", "layers_block_type", "mlp_bias",
      "mlp_hidden_act", "mlp_only_layers", "moe_intermediate_size", "moe_latent_size",
      "moe_layer_freq", "moe_layers", "moe_shared_expert_intermediate_size", "n_routed_experts",
      "n_shared_experts", "num_experts", "num_experts_per_tok", "num_local_experts",
      "shared_expert_intermediate_size", "swiglu_alpha", "swiglu_limit",
      // router
      "aux_loss_alpha", "n_group", "norm_topk_prob", "routed_scaling_factor",
      "router_aux_loss_coef", "router_jitter_noise", "scoring_func", "topk_group", "topk_method",
      // norms, head, scaling
      "embedding_multiplier", "initializer_range", "layer_norm_epsilon", "lm_head_bias",
      "logits_scaling", "norm_eps", "residual_multiplier", "rms_norm_eps",
      // multi-token prediction
      "mtp_hybrid_override_pattern", "mtp_layers_block_type", "mtp_num_hidden_layers",
      "mtp_use_dedicated_embeddings", "num_mtp_layers", "num_nextn_predict_layers",
      // token ids that are used
      "bos_token_id", "eos_token_id", "pad_token_id"};
  return keys;
}

/// Keys that real files carry and that change neither shape nor arithmetic of training.
const KeyList& ignored_keys() {
  static const KeyList keys = {
      // book-keeping
      "_attn_implementation", "_attn_implementation_autoset", "_experts_implementation",
      "_name_or_path", "cache_implementation", "auto_map", "dtype", "for_llm_compressor", "license",
      "name_or_path", "torch_dtype", "transformers_version", "use_cache", "use_mamba_kernels",
      "pretraining_tp", "ep_size", "tokenizer_class", "torchscript", "use_bfloat16",
      "gradient_checkpointing", "_commit_hash", "unsloth_version", "unsloth_fixed", "router_dtype",
      // what is counted and trained without: each is said where it matters
      "audio_config", "compression_config", "quantization_config", "vision_config",
      // dropout and noise
      "attention_dropout", "attn_pdrop", "embd_pdrop", "hidden_dropout", "input_jitter_noise",
      "resid_pdrop",
      // details of losses and initialisation that a run decides for itself
      "output_router_logits", "rescale_prenorm_residual", "router_z_loss_coef", "seq_aux", "expand",
      "mamba_dt_init_floor", "mamba_dt_limit", "mamba_dt_max", "mamba_expand", "time_step_floor",
      "time_step_limit", "time_step_max", "time_step_rank",
      // storage and run-time choices
      "mamba_ssm_cache_dtype", "mamba_ssm_dtype", "moe_shared_expert_overlap", "num_logits_to_keep",
      "residual_in_fp32",
      // pictures and sound
      "vision_feature_layer", "vision_feature_select_strategy", "boi_token_id", "boi_token_index",
      "eoi_token_id", "eoi_token_index", "image_token_id", "image_token_index", "video_token_id",
      "vision_end_token_id", "vision_start_token_id",
      // labels and token ids
      "decoder_start_token_id", "finetuning_task", "id2label", "label2id", "num_labels", "prefix",
      "problem_type", "sep_token_id", "task_specific_params",
      // generation
      "bad_words_ids", "begin_suppress_tokens", "chunk_size_feed_forward", "diversity_penalty",
      "do_sample", "early_stopping", "encoder_no_repeat_ngram_size",
      "exponential_decay_length_penalty", "forced_bos_token_id", "forced_eos_token_id",
      "length_penalty", "max_length", "max_new_tokens", "min_length", "no_repeat_ngram_size",
      "num_beam_groups", "num_beams", "num_return_sequences", "output_attentions",
      "output_hidden_states", "output_scores", "remove_invalid_values", "repetition_penalty",
      "return_dict", "return_dict_in_generate", "suppress_tokens", "temperature", "tf_legacy_loss",
      "top_k", "top_p", "typical_p",
      // encoder-decoder
      "add_cross_attention", "cross_attention_hidden_size", "is_decoder", "is_encoder_decoder",
      "pruned_heads", "tie_encoder_decoder"};
  return keys;
}

/// Keys of the above that, set to something, ask for parts no family here has.
const KeyList& foreign_keys() {
  static const KeyList keys = {"add_cross_attention", "cross_attention_hidden_size",
                               "is_encoder_decoder", "pruned_heads", "tie_encoder_decoder"};
  return keys;
}

/// Switches that add parameters. Where transformers does not look at one, other programs do: a
/// count would be a guess.
const KeyList& bias_keys() {
  static const KeyList keys = {"lm_head_bias", "mamba_conv_bias", "mamba_proj_bias", "mlp_bias",
                               "qkv_bias",     "use_bias",        "use_conv_bias"};
  return keys;
}

/// What transformers does to activations in training alone.
const KeyList& noise_keys() {
  static const KeyList keys = {"attention_dropout",  "attn_pdrop",         "embd_pdrop",
                               "hidden_dropout",     "input_jitter_noise", "resid_pdrop",
                               "router_jitter_noise"};
  return keys;
}

/// null, false, 0 and [] say that there is nothing.
bool says_nothing(const Json& value) {
  return value.empty() || value == false || value == 0;
}

const KeyList& rope_keys() {
  static const KeyList keys = {"attention_factor",
                               "beta_fast",
                               "beta_slow",
                               "factor",
                               "finetuned",
                               "high_freq_factor",
                               "long_factor",
                               "long_mscale",
                               "low_freq_factor",
                               "mrope_interleaved",
                               "mrope_section",
                               "mscale",
                               "mscale_all_dim",
                               "original_max_position_embeddings",
                               "partial_rotary_factor",
                               "rope_theta",
                               "rope_type",
                               "short_factor",
                               "short_mscale",
                               "truncate",
                               "type"};
  return keys;
}

bool contains(const KeyList& keys, const std::string& key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

/// The nearest of the keys that are known, or empty.
std::string nearest_known(const std::string& key, const KeyList& known) {
  // A key this long is no misspelling, and comparing it would cost time.
  constexpr std::size_t kMaxComparedLength = 64;
  return key.size() <= kMaxComparedLength ? nearest(key, known) : "";
}

bool is_known(const std::string& key) {
  return contains(model_keys(), key) || contains(ignored_keys(), key);
}

void note_unknown(const ConfigObject& config, const std::string& key, const KeyList& known) {
  const std::string suggestion = nearest_known(key, known);
  config.findings().unknown_keys.push_back(
      config.path() + printable(key) +
      (suggestion.empty() ? "" : fmt::format(" (did you mean {}?)", suggestion)));
}

}  // namespace

void find_unknown_keys(const ConfigObject& config) {
  Findings& findings = config.findings();
  for (const auto& [key, value] : config.json().items()) {
    const std::string path = config.path() + key;
    if (!is_known(key)) {
      note_unknown(config, key, model_keys());
    } else if (findings.asked_keys.contains(path)) {
      continue;
    } else if (says_nothing(value) || findings.carried_keys.contains(path)) {
      findings.ignored_keys.push_back(path);
    } else if (contains(noise_keys(), key)) {
      findings.ignored_keys.push_back(path);
      findings.noise.push_back(fmt::format("{} = {}", path, config.shown(value)));
    } else if (contains(bias_keys(), key)) {
      throw config.error(key,
                         "expected false, got {}; models of this family have no such biases: "
                         "correct it or remove the key",
                         config.shown(value));
    } else if (contains(model_keys(), key)) {
      findings.unknown_keys.push_back(fmt::format("{} (a key of other families)", path));
    } else if (contains(foreign_keys(), key)) {
      findings.unknown_keys.push_back(fmt::format("{} (no part of a decoder)", path));
    } else {
      findings.ignored_keys.push_back(path);
    }
  }
}

std::string unknown_key_near(const ConfigObject& config,
                             const std::vector<std::string>& spellings) {
  for (const auto& [key, value] : config.json().items()) {
    if (!is_known(key) && !nearest_known(key, spellings).empty()) return printable(key);
  }
  return "";
}

void find_unknown_rope_keys(const ConfigObject& rope) {
  for (const auto& [key, value] : rope.json().items()) {
    if (!contains(rope_keys(), key)) note_unknown(rope, key, rope_keys());
  }
}

void check_outer_keys(const ConfigObject& root, const ConfigObject& text) {
  // What a nested file says at its root alone, or in both places with its own meaning for each.
  static const KeyList own_keys = {"architectures",       "model_type",   "text_config",
                                   "tie_word_embeddings", "bos_token_id", "eos_token_id",
                                   "pad_token_id"};
  for (const std::string& key : own_keys) {
    root.carries({key});
    text.carries({key});
  }
  for (const auto& [key, value] : root.json().items()) {
    if (value.is_null() || !contains(model_keys(), key) || contains(own_keys, key)) continue;
    const Json* inner = text.find({key});
    root.findings().asked_keys.insert(key);
    if (inner == nullptr) {
      root.findings().unknown_keys.push_back(fmt::format("{} (it belongs into text_config)", key));
    } else if (*inner != value) {
      throw root.error(key, "expected the same value as {}{} ({}), got {}; correct or remove one",
                       text.path(), key, root.shown(*inner), root.shown(value));
    }
  }
}

}  // namespace moestro::model::internal
