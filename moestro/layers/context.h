#pragma once
// What all operations of one forward pass share.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "moestro/layers/autograd.h"

namespace moestro::layers {

/// Gradients that balancing adds to the router, already divided by the number of (micro-batch,
/// shard) pairs of the step, so that the step's loss is ce + mean over pairs of the sums over
/// layers.
struct BalanceScale {
  double aux_loss = 0.0;
  double z_loss = 0.0;
};

/// What one MoE layer's router did with the tokens of a forward pass.
struct RoutingRecord {
  int layer = 0;
  std::vector<std::int64_t> expert_tokens;  // [experts]: token slots each expert received
  std::vector<double> score_sum;            // [experts]: sum of router scores over tokens
  std::int64_t tokens = 0;
  double aux_loss = 0.0;  // Megatron's form, mean over shards
};

/// Tokens are rows: sequence b, position s is row b * seq + s. Shards are equal runs of sequences:
/// auxiliary losses are formed inside each shard.
struct Context {
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  std::int64_t shards = 1;
  at::ScalarType dtype = at::kFloat;  // of everything between residual-stream additions
  GradientQueue* queue = nullptr;     // where weight gradients wait; null: made at once
  BalanceScale balance;
  std::vector<RoutingRecord>* routing = nullptr;  // filled by the router when not null
  bool use_aten = false;  // take the ATen meaning of ops on the CPU too (tests)

  [[nodiscard]] std::int64_t tokens() const { return batch * seq; }
};

}  // namespace moestro::layers
