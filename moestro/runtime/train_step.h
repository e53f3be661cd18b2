#pragma once
// One optimizer step: micro-batches forward and backward, balancing, update. The trainer loops over
// it; benchmarks time it.

#include <atomic>
#include <optional>
#include <vector>

#include "moestro/data/batches.h"
#include "moestro/runtime/decoder.h"
#include "moestro/runtime/optimizer.h"
#include "moestro/runtime/routing_report.h"
#include "moestro/runtime/run_config.h"

namespace moestro::runtime {

/// How a global batch is cut and computed.
struct StepPlan {
  std::int64_t seq_len = 0;
  std::int64_t micro_batch = 1;  // sequences per shard and micro-batch
  std::int64_t shards = 1;
  at::ScalarType dtype = at::kFloat;
  Recompute recompute = Recompute::none;
  BalanceSection balance;
};

struct StepOutcome {
  double loss = 0.0;       // mean cross-entropy per token, nats
  double grad_norm = 0.0;  // before clipping
  StepRouting routing;
};

/// Forward and backward over one global batch for step number `step` (from 1). Changes nothing but
/// gradients. Errors: as usable_gradient_norm.
[[nodiscard]] StepOutcome compute_gradients(Decoder& decoder, Optimizer& optimizer,
                                            const StepPlan& plan, const data::Batch& batch,
                                            std::int64_t step);

/// Updates weights, moments and selection biases by these gradients.
void apply_gradients(Decoder& decoder, Optimizer& optimizer, const StepPlan& plan,
                     const StepOutcome& outcome, std::int64_t step);

/// Both: trains on one global batch.
[[nodiscard]] StepOutcome train_step(Decoder& decoder, Optimizer& optimizer, const StepPlan& plan,
                                     const data::Batch& batch, std::int64_t step);

/// Mean cross-entropy per token over a batch, without training. Sequences that fill no whole
/// micro-batch are evaluated as a smaller one. Nothing, if `stop` is set before the end.
[[nodiscard]] std::optional<double> evaluate_batch(Decoder& decoder, const StepPlan& plan,
                                                   const data::Batch& batch,
                                                   const std::atomic<bool>* stop = nullptr);

}  // namespace moestro::runtime
