// The router: scores, choice, balancing losses.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "moestro/core/error.h"
#include "moestro/kernels/routing.h"
#include "moestro/layers/formula.h"
#include "moestro/layers/ops.h"
#include "moestro/layers/products.h"
#include "moestro/layers/typed.h"

namespace moestro::layers {
namespace {

using Score = kernels::RoutingRule::Score;

kernels::RoutingRule rule_of(const model::RouterConfig& config) {
  kernels::RoutingRule rule{.experts = config.experts, .top_k = config.top_k};
  switch (config.score) {
    case model::ScoreKind::softmax:
      rule.score = Score::softmax;
      break;
    case model::ScoreKind::sigmoid:
      rule.score = Score::sigmoid;
      break;
    case model::ScoreKind::softmax_of_chosen:
      rule.score = Score::softmax_of_chosen;
      break;
    case model::ScoreKind::sigmoid_input:
    case model::ScoreKind::sparsemixer:
      throw input_error("router",
                        "this router rule cannot be trained yet; choose a model whose "
                        "router uses softmax or sigmoid top-k");
  }
  rule.renormalise = config.renormalise;
  rule.scaling_factor = static_cast<float>(config.scaling_factor);
  rule.groups = config.groups;
  rule.topk_groups = config.topk_groups;
  // Experts outside the kept groups compete with 0 (DeepSeek-V2) or not at all (V3 and later).
  const bool by_max = config.group_score == model::GroupScore::max;
  rule.group_score = by_max ? kernels::RoutingRule::GroupScore::max
                            : kernels::RoutingRule::GroupScore::sum_of_two_best;
  rule.masked_group_score = by_max ? 0.0F : -std::numeric_limits<float>::infinity();
  return rule;
}

/// Sums over one shard, from which its auxiliary losses and their gradients follow.
struct ShardSums {
  std::vector<std::int64_t> expert_tokens;
  std::vector<double> score_sum;
};

struct ShardRange {
  std::int64_t first = 0, tokens = 0;
};

ShardRange shard_range(const Context& context, std::int64_t shard) {
  const std::int64_t tokens = context.tokens() / context.shards;
  return {shard * tokens, tokens};
}

std::vector<ShardSums> sum_shards(const Context& context, const kernels::RoutingRule& rule,
                                  const at::Tensor& scores, const at::Tensor& index) {
  std::vector<ShardSums> sums(static_cast<std::size_t>(context.shards));
  for (std::int64_t s = 0; s < context.shards; ++s) {
    const ShardRange range = shard_range(context, s);
    ShardSums& shard = sums[static_cast<std::size_t>(s)];
    shard.expert_tokens.assign(static_cast<std::size_t>(rule.experts), 0);
    shard.score_sum.assign(static_cast<std::size_t>(rule.experts), 0.0);
    const std::int64_t* chosen = data<std::int64_t>(index) + range.first * rule.top_k;
    for (std::int64_t i = 0; i < range.tokens * rule.top_k; ++i) {
      ++shard.expert_tokens[static_cast<std::size_t>(chosen[i])];
    }
    kernels::routing_sums(rule, range.tokens, data<float>(scores) + range.first * rule.experts,
                          shard.score_sum.data());
  }
  return sums;
}

/// experts / (T^2 k) * tokens_e: what one unit of score of expert e adds to the auxiliary loss.
double aux_slope(const kernels::RoutingRule& rule, std::int64_t tokens,
                 std::int64_t expert_tokens) {
  const auto t = static_cast<double>(std::max<std::int64_t>(tokens, 1));
  return static_cast<double>(rule.experts) / (t * t * static_cast<double>(rule.top_k)) *
         static_cast<double>(expert_tokens);
}

RoutingRecord make_record(const Context& context, const kernels::RoutingRule& rule, int layer,
                          const std::vector<ShardSums>& sums) {
  RoutingRecord record;
  record.layer = layer;
  record.tokens = context.tokens();
  record.expert_tokens.assign(static_cast<std::size_t>(rule.experts), 0);
  record.score_sum.assign(static_cast<std::size_t>(rule.experts), 0.0);
  const auto shards = static_cast<double>(context.shards);
  for (const ShardSums& shard : sums) {
    const std::int64_t tokens = context.tokens() / context.shards;
    for (std::size_t e = 0; e < record.expert_tokens.size(); ++e) {
      record.expert_tokens[e] += shard.expert_tokens[e];
      record.score_sum[e] += shard.score_sum[e];
      record.aux_loss +=
          aux_slope(rule, tokens, shard.expert_tokens[e]) * shard.score_sum[e] / shards;
    }
  }
  return record;
}

/// Logits of all experts in f32. Shapes: [T, experts].
at::Tensor router_logits(const at::Tensor& h, const Parameter& weight, const Parameter* bias) {
  at::Tensor logits = at::empty({h.size(0), weight.value.size(0)}, h.options().dtype(at::kFloat));
  multiply(h, weight.compute, logits, false);
  if (bias != nullptr) logits.add_(bias->value);
  return logits;
}

struct Choice {
  kernels::RoutingRule rule;
  at::Tensor logits, scores, index, weight;
  std::vector<ShardSums> sums;
};

/// Gradient of the logits: through the chosen weights and from the balancing losses.
at::Tensor logits_gradient(const Context& context, const Choice& choice,
                           const at::Tensor& d_weight) {
  at::Tensor d_logits = at::empty_like(choice.logits);
  const std::int64_t experts = choice.rule.experts, k = choice.rule.top_k;
  std::vector<float> d_scores(static_cast<std::size_t>(experts));
  for (std::int64_t s = 0; s < context.shards; ++s) {
    const ShardRange range = shard_range(context, s);
    const ShardSums& sums = choice.sums[static_cast<std::size_t>(s)];
    for (std::size_t e = 0; e < d_scores.size(); ++e) {
      d_scores[e] = static_cast<float>(context.balance.aux_loss *
                                       aux_slope(choice.rule, range.tokens, sums.expert_tokens[e]));
    }
    const auto tokens = static_cast<double>(std::max<std::int64_t>(range.tokens, 1));
    kernels::route_backward(
        choice.rule, range.tokens, data<float>(choice.logits) + range.first * experts,
        data<float>(choice.scores) + range.first * experts,
        data<std::int64_t>(choice.index) + range.first * k,
        data<float>(choice.weight) + range.first * k, data<float>(d_weight) + range.first * k,
        context.balance.aux_loss != 0.0 ? d_scores.data() : nullptr,
        static_cast<float>(context.balance.z_loss / tokens),
        data<float>(d_logits) + range.first * experts);
  }
  return d_logits;
}

Choice choose(const Context& context, const kernels::RoutingRule& rule, const at::Tensor& logits,
              const at::Tensor& selection_bias) {
  const std::int64_t tokens = logits.size(0);
  Choice choice;
  choice.rule = rule;
  choice.logits = logits;
  choice.scores = at::empty_like(logits);
  choice.index = at::empty({tokens, rule.top_k}, logits.options().dtype(at::kLong));
  choice.weight = at::empty({tokens, rule.top_k}, logits.options());
  kernels::route_forward(rule, tokens, data<float>(logits),
                         selection_bias.defined() ? data<float>(selection_bias) : nullptr,
                         data<float>(choice.scores), data<std::int64_t>(choice.index),
                         data<float>(choice.weight));
  choice.sums = sum_shards(context, rule, choice.scores, choice.index);
  return choice;
}

at::Tensor record_weights(const Context& context, const at::Tensor& h, Parameter& weight,
                          Parameter* bias, const Choice& choice) {
  // The output must not be captured by its own backward: that keeps a detached alias.
  const at::Tensor output = choice.weight;
  Choice saved = choice;
  saved.weight = output.detach();
  return record(output, {h}, [=, &weight, x = h.detach()](const at::Tensor& gradient) {
    const at::Tensor d_logits = logits_gradient(context, saved, gradient.contiguous());
    const at::Tensor g = to_compute(d_logits, 1.0, x.scalar_type());
    weight_gradient(context.queue, [=, &weight] { add_linear_gradients(x, g, weight, bias); });
    return Tensors{input_gradient(g, weight.compute)};
  });
}

// ---- the ATen meaning: the choice is made by the same rule, the weights follow by autograd ------

at::Tensor score_formula(Score score, const at::Tensor& logits) {
  return score == Score::sigmoid ? at::sigmoid(logits) : at::softmax(logits, -1);
}

at::Tensor weights_formula(const Context& context, const Choice& choice, const at::Tensor& logits) {
  const kernels::RoutingRule& rule = choice.rule;
  const at::Tensor index = choice.index.to(logits.device());
  at::Tensor chosen;
  if (rule.score == Score::softmax_of_chosen) {
    chosen = at::softmax(logits.gather(1, index), -1);
  } else {
    chosen = score_formula(rule.score, logits).gather(1, index);
    if (rule.renormalise)
      chosen = chosen / (chosen.sum(-1, true) + (rule.score == Score::sigmoid ? 1e-20 : 0.0));
  }
  at::Tensor result = chosen * rule.scaling_factor;
  // Adds 0 to the value and the balancing gradients to the logits (Megatron's auxiliary scaler).
  at::Tensor balance = at::zeros({}, logits.options());
  for (std::int64_t s = 0; s < context.shards; ++s) {
    const ShardRange range = shard_range(context, s);
    const at::Tensor part = logits.narrow(0, range.first, range.tokens);
    at::Tensor scores = score_formula(rule.score, part);
    if (rule.score == Score::sigmoid) scores = scores / (scores.sum(-1, true) + 1e-20);
    std::vector<double> slope;
    for (const std::int64_t n : choice.sums[static_cast<std::size_t>(s)].expert_tokens) {
      slope.push_back(aux_slope(rule, range.tokens, n));
    }
    balance = balance + context.balance.aux_loss *
                            (scores.sum(0) * at::tensor(slope, logits.options())).sum();
    balance = balance + context.balance.z_loss * at::logsumexp(part, -1).square().mean();
  }
  return at::cat({result.flatten(), (balance - balance.detach() + 1.0).reshape({1})}, 0);
}

at::Tensor weights_by_formula(const Context& context, const at::Tensor& h, Parameter& weight,
                              Parameter* bias, const Choice& choice) {
  const std::int64_t tokens = h.size(0), k = choice.rule.top_k;
  // One extra element carries the balancing term, whose gradient is 1 whatever the loss is.
  const at::Tensor packed =
      apply_formula(context, {h}, {&weight, bias}, [=](const Tensors& in, const Tensors& w) {
        at::Tensor logits = at::matmul(in[0].to(at::kFloat), w[0].to(at::kFloat).t());
        if (w[1].defined()) logits = logits + w[1].to(at::kFloat);
        return weights_formula(context, choice, logits);
      });
  const at::Tensor value = packed.detach().narrow(0, 0, tokens * k).view({tokens, k}).clone();
  return record(value, {packed}, [=](const at::Tensor& gradient) {
    const at::Tensor one = at::ones({1}, gradient.options());
    return Tensors{at::cat({gradient.flatten(), one}, 0)};
  });
}

Choice choose_anywhere(const Context& context, const kernels::RoutingRule& rule,
                       const at::Tensor& h, const Parameter& weight, const Parameter* bias,
                       const at::Tensor& selection_bias) {
  at::Tensor logits = at::matmul(h.detach().to(at::kFloat), weight.compute.to(at::kFloat).t());
  if (bias != nullptr) logits = logits + bias->value;
  return choose(context, rule, logits.cpu().contiguous(),
                selection_bias.defined() ? selection_bias.cpu() : selection_bias);
}

Routing group(const Choice& choice, const at::Tensor& weight) {
  const std::int64_t slots = choice.index.numel();
  const auto options = choice.index.options();
  Routing routing{.weight = weight,
                  .index = choice.index,
                  .offset = at::empty({choice.rule.experts + 1}, options),
                  .slot_of_row = at::empty({slots}, options),
                  .row_of_slot = at::empty({slots}, options)};
  kernels::group_by_expert(slots, choice.rule.experts, data<std::int64_t>(routing.index),
                           data<std::int64_t>(routing.offset),
                           data<std::int64_t>(routing.slot_of_row),
                           data<std::int64_t>(routing.row_of_slot));
  return routing;
}

}  // namespace

Routing route(const Context& context, const at::Tensor& h, const model::RouterConfig& config,
              int layer, Parameter& weight, Parameter* bias, const at::Tensor& selection_bias) {
  MOESTRO_CHECK(context.shards > 0 && context.batch % context.shards == 0,
                "{} sequences cannot be {} equal shards", context.batch, context.shards);
  const kernels::RoutingRule rule = rule_of(config);
  const bool on_cpu = uses_kernels(context, h);
  Choice choice;
  if (on_cpu) {
    choice = choose(context, rule, router_logits(h, weight, bias), selection_bias);
  } else {
    choice = choose_anywhere(context, rule, h, weight, bias, selection_bias);
  }
  if (context.routing != nullptr) {
    context.routing->push_back(make_record(context, rule, layer, choice.sums));
  }
  const at::Tensor weights = on_cpu ? record_weights(context, h, weight, bias, choice)
                                    : weights_by_formula(context, h, weight, bias, choice);
  return group(choice, weights);
}

}  // namespace moestro::layers
