#include "moestro/runtime/train_step.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "moestro/core/error.h"

namespace moestro::runtime {
namespace {

/// `count` sequences from `first` as a tensor of token rows. The batch keeps the memory.
at::Tensor rows(const std::vector<std::int64_t>& tokens, const data::Batch& batch,
                std::int64_t first, std::int64_t count) {
  const std::int64_t* begin = tokens.data() + first * batch.seq_len;
  at::Tensor result = at::empty({count * batch.seq_len}, at::kLong);
  std::copy(begin, begin + count * batch.seq_len, result.data_ptr<std::int64_t>());
  return result;
}

layers::Context context_of(const StepPlan& plan, std::int64_t sequences, std::int64_t shards) {
  layers::Context context;
  context.batch = sequences;
  context.seq = plan.seq_len;
  context.shards = shards;
  context.dtype = plan.dtype;
  return context;
}

}  // namespace

StepOutcome compute_gradients(Decoder& decoder, Optimizer& optimizer, const StepPlan& plan,
                              const data::Batch& batch, std::int64_t step) {
  const std::int64_t sequences = plan.micro_batch * plan.shards;
  MOESTRO_CHECK(batch.sequences % sequences == 0 && batch.seq_len == plan.seq_len,
                "a batch of {} sequences cannot be cut into micro-batches of {}", batch.sequences,
                sequences);
  const std::int64_t micro_batches = batch.sequences / sequences;
  const double pairs = static_cast<double>(micro_batches * plan.shards);
  layers::Context context = context_of(plan, sequences, plan.shards);
  context.balance = {plan.balance.aux_loss / pairs, plan.balance.z_loss / pairs};
  std::vector<layers::RoutingRecord> records;
  context.routing = &records;

  StepOutcome outcome;
  begin_gradients(optimizer);
  const double scale = 1.0 / static_cast<double>(batch.sequences * batch.seq_len);
  for (std::int64_t m = 0; m < micro_batches; ++m) {
    const at::Tensor ids = rows(batch.inputs, batch, m * sequences, sequences);
    const at::Tensor labels = rows(batch.labels, batch, m * sequences, sequences);
    outcome.loss += forward_backward(decoder, context, ids, labels, scale, plan.recompute);
  }
  outcome.grad_norm = usable_gradient_norm(optimizer, step, outcome.loss);
  outcome.routing = sum_routing(records);
  return outcome;
}

void apply_gradients(Decoder& decoder, Optimizer& optimizer, const StepPlan& plan,
                     const StepOutcome& outcome, std::int64_t step) {
  apply_update(optimizer, step, outcome.grad_norm);
  if (plan.balance.bias_update > 0.0) {
    update_selection_biases(outcome.routing, plan.balance.bias_update, decoder.weights);
  }
}

StepOutcome train_step(Decoder& decoder, Optimizer& optimizer, const StepPlan& plan,
                       const data::Batch& batch, std::int64_t step) {
  StepOutcome outcome = compute_gradients(decoder, optimizer, plan, batch, step);
  apply_gradients(decoder, optimizer, plan, outcome, step);
  return outcome;
}

std::optional<double> evaluate_batch(Decoder& decoder, const StepPlan& plan,
                                     const data::Batch& batch, const std::atomic<bool>* stop) {
  const double scale = 1.0 / static_cast<double>(batch.sequences * batch.seq_len);
  double loss = 0.0;
  for (std::int64_t first = 0; first < batch.sequences;) {
    if (stop != nullptr && stop->load()) return std::nullopt;
    const std::int64_t count = std::min(plan.micro_batch * plan.shards, batch.sequences - first);
    const layers::Context context = context_of(plan, count, 1);
    loss += evaluate(decoder, context, rows(batch.inputs, batch, first, count),
                     rows(batch.labels, batch, first, count), scale);
    first += count;
  }
  return loss;
}

}  // namespace moestro::runtime
