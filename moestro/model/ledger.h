#pragma once
// The ledger of a model: parameters (total and active per token) and model FLOPs per token.
//
//   Ledger ledger = make_ledger(resolve_model("deepseek-v3").model, 4096);
//   ledger.params.total  ->  671026419200;  to_string(ledger.flops)  ->  "259.99 GFLOP"
//
// Parameters are sums over tensors(config), so that they are what a checkpoint holds.

#include <cstdint>
#include <string>
#include <vector>

#include "moestro/core/units.h"
#include "moestro/model/model_config.h"
#include "moestro/model/tensors.h"

namespace moestro::model {

/// Elements of the tensors of one kind. Active: those one token touches, that is top_k of the
/// routed experts and everything else whole.
struct ParameterCount {
  std::int64_t total = 0;
  std::int64_t active = 0;
};

struct ComponentParameters {
  Component component = Component::embedding;
  ParameterCount count;
};

/// Layers that are alike, e.g. "mla + moe".
struct LayerKind {
  std::string name;
  std::int64_t layers = 0;
  ParameterCount per_layer;
  Flops flops_per_layer;  // forward + backward, per token
};

struct ParameterLedger {
  std::int64_t total = 0;   // every tensor but MTP's; selection biases count, tied embeddings once
  std::int64_t active = 0;  // of total; embedding and head count whole
  std::int64_t active_without_embedding = 0;  // of total, without the input embedding
  std::int64_t mtp = 0;         // multi-token prediction, without copies of embedding and head
  std::int64_t mtp_copies = 0;  // those copies, as DeepSeek's checkpoints store them
  std::vector<ComponentParameters> by_component;  // every component, MTP last
};

/// One summand of the FLOPs per token, forward + backward.
struct FlopTerm {
  std::string name;
  Flops flops;
};

struct Ledger {
  std::int64_t seq = 0;
  ParameterLedger params;
  Flops flops;                       // per token, forward + backward: the sum of flop_terms
  std::vector<FlopTerm> flop_terms;  // in printing order
  // What Megatron's counter adds to ours for Mamba-2 layers; empty without them. It takes
  // 2 x hidden for their inner width, whatever heads x head_dim is, and 7 x width x state for the
  // recurrence: with it the published 22.3 GFLOP per token of Nemotron-3-Nano (8192 tokens) come
  // out.
  std::vector<FlopTerm> megatron_differences;
  std::vector<LayerKind> layer_kinds;
};

struct LedgerOptions {
  bool with_mtp = true;  // count the FLOPs of multi-token prediction, where the config has it
};

/// Counts a model at a sequence length. FLOPs per token, forward + backward = 3 x forward:
/// - 6 x every weight a token is multiplied with: chosen routed experts, shared experts, dense FFN,
///   projections of the mixers, LM head; no router, no embedding look-up, no norms;
/// - causal core attention, once: 6 x heads x (qk_dim + v_dim) x (mean number of keys), which is
///   seq/2, less under a window or chunk (mean_keys);
/// - state-space cores: 3 x (5 x heads x head_dim x state) for Mamba-2, 3 x (7 x value_heads x
///   key_dim x value_dim) for Gated DeltaNet, each plus 6 x kernel x channels of its convolution;
/// - MTP, per layer: one more layer, 2 x hidden^2 projection weights, one more LM head.
/// Source: the accounting that reproduces the published rows of Megatron-Core and Megatron-Bridge.
/// Errors: input, if seq < 1 or absurdly long.
[[nodiscard]] Ledger make_ledger(const ModelConfig& config, std::int64_t seq,
                                 const LedgerOptions& options = {});

/// Mean number of keys a query of a causal sequence sees, in the convention that full attention
/// sees seq/2: min(seq, window) positions ramp up, the rest see the window whole; chunks are
/// independent short sequences.
[[nodiscard]] double mean_keys(const LayerConfig& layer, std::int64_t seq);

/// The length `describe` uses when none is given: 4096, or the model's longest if shorter.
[[nodiscard]] std::int64_t default_sequence_length(const ModelConfig& config);

}  // namespace moestro::model
