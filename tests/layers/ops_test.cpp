// Every operation through kernels/ against its ATen formula: value, input gradients, weight
// gradients. Sizes are no multiple of any block.

#include "moestro/layers/ops.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <utility>

#include "moestro/core/error.h"
#include "moestro/kernels/gemm.h"
#include "moestro/kernels/parallel.h"
#include "moestro/layers/rope_tables.h"
#include "moestro/layers/torch_setup.h"

namespace moestro::layers {
namespace {

constexpr double kF32 = 2e-6;     // float32 rounding over sums of a few hundred terms
constexpr double kBf16 = 1.2e-2;  // eight bits of mantissa, in up to three roundings

at::Tensor random(std::vector<std::int64_t> shape, int seed) {
  at::manual_seed(static_cast<std::uint64_t>(seed));
  return at::randn(shape, at::kFloat);
}

Parameter random_parameter(std::vector<std::int64_t> shape, int seed, at::ScalarType dtype,
                           std::int64_t slices = 1) {
  Parameter p = make_parameter("p", shape, slices);
  p.value.copy_((random(shape, seed) * 0.3).to(dtype));  // what both dtypes can hold
  allocate_gradient(p);
  set_compute_dtype(p, dtype);
  return p;
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  return (x - y).abs().max().item<double>() / y.abs().max().item<double>();
}

/// What an op did: its value, the gradients of its inputs and of its weights.
struct Outcome {
  at::Tensor value;
  Tensors input_gradients, weight_gradients;
};

using Op = std::function<at::Tensor(const Context&, const Tensors&)>;

Outcome run(const Context& context, const Tensors& values, const std::vector<Parameter*>& weights,
            const Op& op, bool defer = false) {
  Tensors inputs;
  for (const at::Tensor& v : values) inputs.push_back(v.detach().clone().set_requires_grad(true));
  for (Parameter* w : weights) begin_gradient(*w);
  GradientQueue queue;
  Context deferring = context;
  if (defer) deferring.queue = &queue;
  const at::Tensor y = op(deferring, inputs);
  const at::Tensor noise = random(y.sizes().vec(), 99).to(at::kBFloat16);  // exact in both dtypes
  const at::Tensor dy = y.dim() == 0 ? at::full({}, 1.0, y.options()) : noise.to(y.scalar_type());
  torch::autograd::backward({y}, {dy});
  if (defer) queue.run();
  Outcome outcome{y.detach(), {}, {}};
  for (const at::Tensor& x : inputs) outcome.input_gradients.push_back(x.grad());
  for (Parameter* w : weights) {
    finish_gradient(*w);
    outcome.weight_gradients.push_back(w->grad.clone());
  }
  return outcome;
}

void expect_near(const Tensors& ours, const Tensors& expected, double tolerance, const char* what) {
  for (std::size_t i = 0; i < ours.size(); ++i) {
    ASSERT_TRUE(ours[i].defined() && expected[i].defined()) << what << i;
    EXPECT_LE(difference(ours[i], expected[i]), tolerance) << what << i;
  }
}

/// What the ATen formula makes of the same numbers in f32: in bf16, ATen would round every step.
Outcome run_formula(const Context& context, const Tensors& values,
                    const std::vector<Parameter*>& weights, const Op& op) {
  Context aten = context;
  aten.use_aten = true;
  aten.dtype = at::kFloat;
  Tensors widened, compute;
  for (const at::Tensor& v : values) widened.push_back(v.to(at::kFloat));
  for (Parameter* w : weights) compute.push_back(std::exchange(w->compute, w->value));
  Outcome outcome = run(aten, widened, weights, op);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i]->compute = compute[i];
  return outcome;
}

/// Kernels and ATen agree, and deferring weight gradients changes no bit.
void expect_same_meaning(const Context& context, const Tensors& values,
                         const std::vector<Parameter*>& weights, const Op& op) {
  const double tolerance = context.dtype == at::kFloat ? kF32 : kBf16;
  const Outcome ours = run(context, values, weights, op);
  const Outcome expected = run_formula(context, values, weights, op);
  EXPECT_LE(difference(ours.value, expected.value), tolerance);
  expect_near(ours.input_gradients, expected.input_gradients, tolerance, "input ");
  expect_near(ours.weight_gradients, expected.weight_gradients, tolerance, "weight ");
  const Outcome deferred = run(context, values, weights, op, true);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    EXPECT_TRUE(deferred.weight_gradients[i].equal(ours.weight_gradients[i]));
  }
}

class Ops : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    if (!kernels::has_gemm()) GTEST_SKIP() << "this build has no oneDNN";
    if (GetParam() == at::kBFloat16 && !kernels::has_fast_bf16()) {
      GTEST_SKIP() << "this CPU has no bf16 products";
    }
    set_up_torch();
    context_.batch = 3;
    context_.seq = 37;
    context_.dtype = GetParam();
  }
  at::Tensor typed(std::vector<std::int64_t> shape, int seed) {
    return random(std::move(shape), seed).to(GetParam());
  }
  Context context_;
};

INSTANTIATE_TEST_SUITE_P(Dtypes, Ops, testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& param) {
                           return param.param == at::kFloat ? "f32" : "bf16";
                         });

TEST_P(Ops, EmbedMatchesAten) {
  Parameter table = random_parameter({11, 24}, 1, at::kFloat);
  const at::Tensor ids = at::randint(11, {context_.tokens()}, at::kLong);
  for (const std::optional<std::int64_t> padding : {std::optional<std::int64_t>(), {3}}) {
    std::vector<at::Tensor> gradients;
    for (const bool use_aten : {false, true}) {
      Context context = context_;
      context.use_aten = use_aten;
      begin_gradient(table);
      const at::Tensor y = embed(context, ids, table, 1.5, padding);
      torch::autograd::backward({y}, {random(y.sizes().vec(), 5)});
      EXPECT_TRUE(y.detach().equal(table.value.index_select(0, ids) * 1.5));
      gradients.push_back(table.grad.clone());
    }
    EXPECT_LE(difference(gradients[0], gradients[1]), kF32);
    EXPECT_EQ(gradients[0][3].abs().sum().item<float>() == 0.0F, padding.has_value());
  }
}

TEST_P(Ops, RmsNormMatchesAten) {
  Parameter weight = random_parameter({40}, 2, context_.dtype);
  expect_same_meaning(
      context_, {random({context_.tokens(), 40}, 3)}, {&weight},
      [&](const Context& c, const Tensors& in) { return rms_norm(c, in[0], weight, 1e-5); });
}

TEST_P(Ops, LinearMatchesAten) {
  Parameter weight = random_parameter({50, 24}, 4, context_.dtype);
  Parameter bias = random_parameter({50}, 5, context_.dtype);
  for (Parameter* b : {&bias, static_cast<Parameter*>(nullptr)}) {
    std::vector<Parameter*> weights{&weight};
    if (b != nullptr) weights.push_back(b);
    expect_same_meaning(
        context_, {typed({context_.tokens(), 24}, 6)}, weights,
        [&](const Context& c, const Tensors& in) { return linear(c, in[0], weight, b); });
  }
}

TEST_P(Ops, LinearResidualMatchesAten) {
  Parameter weight = random_parameter({24, 50}, 7, context_.dtype);
  Parameter bias = random_parameter({24}, 8, context_.dtype);
  for (const double multiplier : {1.0, 0.22}) {
    expect_same_meaning(context_,
                        {typed({context_.tokens(), 50}, 9), random({context_.tokens(), 24}, 10)},
                        {&weight, &bias}, [&](const Context& c, const Tensors& in) {
                          return linear_residual(c, in[0], weight, &bias, in[1], multiplier);
                        });
  }
}

TEST_P(Ops, SwigluMatchesAten) {
  expect_same_meaning(context_, {typed({context_.tokens(), 2 * 21}, 11)}, {},
                      [](const Context& c, const Tensors& in) { return swiglu(c, in[0]); });
}

struct AttentionCase {
  std::int64_t heads, kv_heads, head_dim, window;
  model::QkNorm norm;
  std::optional<double> clip;
  bool interleaved;
};

TEST_P(Ops, AttentionMatchesAten) {
  using model::QkNorm;
  // Rounding of the norm to bf16 moves some values over the clip, and their gradients are then all
  // or nothing.
  const auto clip_after_norm =
      context_.dtype == at::kFloat ? std::optional<double>(0.8) : std::nullopt;
  for (const AttentionCase& c : {AttentionCase{4, 2, 16, 0, QkNorm::none, {}, false},
                                 AttentionCase{6, 1, 20, 9, QkNorm::per_head, {}, false},
                                 AttentionCase{2, 2, 8, 11, QkNorm::whole, clip_after_norm, true},
                                 AttentionCase{3, 3, 34, 0, QkNorm::none, 0.5, true}}) {
    const bool per_head = c.norm == QkNorm::per_head;
    const std::int64_t q_width = per_head ? c.head_dim : c.heads * c.head_dim;
    const std::int64_t k_width = per_head ? c.head_dim : c.kv_heads * c.head_dim;
    Parameter q_norm = random_parameter({q_width}, 12, context_.dtype);
    Parameter k_norm = random_parameter({k_width}, 13, context_.dtype);
    q_norm.value.copy_((q_norm.value + 1.0).to(context_.dtype));
    k_norm.value.copy_((k_norm.value + 1.0).to(context_.dtype));
    refresh_compute(q_norm);
    refresh_compute(k_norm);
    const bool has_norm = c.norm != QkNorm::none;
    AttentionSpec spec{.heads = c.heads,
                       .kv_heads = c.kv_heads,
                       .head_dim = c.head_dim,
                       .scale = 0.3,
                       .window = c.window,
                       .qk_norm = c.norm,
                       .norm_epsilon = 1e-2,
                       .clip_qkv = c.clip,
                       .q_norm = has_norm ? &q_norm : nullptr,
                       .k_norm = has_norm ? &k_norm : nullptr,
                       .rope = {}};
    model::Rope rope{.rotary_dim = c.head_dim / 4 * 2};
    rope.interleaved = c.interleaved;
    spec.rope = make_rope_tables(rope, context_.seq);
    const std::int64_t width = (c.heads + 2 * c.kv_heads) * c.head_dim;
    std::vector<Parameter*> weights;
    if (has_norm) weights = {&q_norm, &k_norm};
    expect_same_meaning(
        context_, {typed({context_.tokens(), width}, 14)}, weights,
        [&](const Context& context, const Tensors& in) { return attention(context, in[0], spec); });
  }
}

model::RouterConfig router_case(int index) {
  model::RouterConfig router;
  router.experts = 12;
  router.top_k = 3;
  router.renormalise = index % 2 == 1;
  router.score = index < 2   ? model::ScoreKind::softmax
                 : index < 4 ? model::ScoreKind::sigmoid
                             : model::ScoreKind::softmax_of_chosen;
  router.scaling_factor = index == 3 ? 2.5 : 1.0;
  if (index == 3) {
    router.groups = 4;
    router.topk_groups = 2;
  }
  return router;
}

TEST_P(Ops, RouterMatchesAtenWithBalancing) {
  context_.shards = 3;
  context_.balance = {0.7, 0.3};
  for (int index = 0; index < 5; ++index) {
    const model::RouterConfig config = router_case(index);
    Parameter weight = random_parameter({12, 24}, 15 + index, context_.dtype);
    Parameter bias = random_parameter({12}, 25 + index, context_.dtype);
    const at::Tensor selection = index == 3 ? random({12}, 35) * 0.1 : at::Tensor();
    expect_same_meaning(context_, {typed({context_.tokens(), 24}, 16)}, {&weight, &bias},
                        [&](const Context& c, const Tensors& in) {
                          return route(c, in[0], config, 0, weight, &bias, selection).weight;
                        });
  }
}

TEST_P(Ops, RouterRecordsWhatItDid) {
  std::vector<RoutingRecord> records;
  context_.routing = &records;
  Parameter weight = random_parameter({12, 24}, 17, context_.dtype);
  const Routing routing =
      route(context_, typed({context_.tokens(), 24}, 18), router_case(1), 5, weight, nullptr, {});
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].layer, 5);
  std::int64_t slots = 0;
  double aux = 0.0;
  for (std::size_t e = 0; e < 12; ++e) {
    slots += records[0].expert_tokens[e];
    aux += static_cast<double>(records[0].expert_tokens[e]) * records[0].score_sum[e];
  }
  const auto tokens = static_cast<double>(context_.tokens());
  EXPECT_EQ(slots, context_.tokens() * 3);
  EXPECT_NEAR(records[0].aux_loss, aux * 12.0 / (tokens * tokens * 3.0), 1e-9);
  EXPECT_GE(records[0].aux_loss, 0.5);  // 1 when balanced
}

TEST_P(Ops, RouterWeightsSumToWhatTheConfigSays) {
  Parameter weight = random_parameter({12, 24}, 17, context_.dtype);
  const at::Tensor h = typed({context_.tokens(), 24}, 18);
  const auto sums = [&](int index) {
    return route(context_, h, router_case(index), 0, weight, nullptr, {}).weight.sum(-1);
  };
  EXPECT_LT(sums(0).max().item<double>(), 0.999) << "not renormalised";
  EXPECT_LT((sums(1) - 1.0).abs().max().item<double>(), 1e-5);
  EXPECT_GT((sums(2) - 1.0).abs().max().item<double>(), 0.1) << "not renormalised";
  EXPECT_LT((sums(3) - 2.5).abs().max().item<double>(), 1e-5);
}

TEST_P(Ops, RouterRefusesShardsThatAreNotEqual) {
  context_.shards = 2;  // of 3 sequences
  Parameter weight = random_parameter({12, 24}, 17, context_.dtype);
  EXPECT_THROW(static_cast<void>(route(context_, typed({context_.tokens(), 24}, 18), router_case(1),
                                       0, weight, nullptr, {})),
               Error);
}

TEST_P(Ops, RecordOfShardsIsTheMeanOfTheirOwn) {
  Parameter weight = random_parameter({12, 24}, 17, context_.dtype);
  const at::Tensor h = typed({context_.tokens(), 24}, 18);
  std::vector<RoutingRecord> whole, parts;
  context_.shards = 3;
  context_.routing = &whole;
  static_cast<void>(route(context_, h, router_case(1), 0, weight, nullptr, {}));
  Context one = context_;
  one.batch = 1;
  one.shards = 1;
  one.routing = &parts;
  double aux = 0.0;
  for (std::int64_t s = 0; s < 3; ++s) {
    const at::Tensor own = h.narrow(0, s * context_.seq, context_.seq).contiguous();
    static_cast<void>(route(one, own, router_case(1), 0, weight, nullptr, {}));
    aux += parts.back().aux_loss / 3.0;
  }
  EXPECT_NEAR(whole[0].aux_loss, aux, 1e-9);
  for (std::size_t e = 0; e < 12; ++e) {
    EXPECT_EQ(whole[0].expert_tokens[e],
              parts[0].expert_tokens[e] + parts[1].expert_tokens[e] + parts[2].expert_tokens[e]);
    EXPECT_NEAR(whole[0].score_sum[e],
                parts[0].score_sum[e] + parts[1].score_sum[e] + parts[2].score_sum[e], 1e-9);
  }
}

TEST_P(Ops, ABiasOfAllExpertsChangesNoChoice) {
  const model::RouterConfig config = router_case(3);  // the best 2 of 4 groups; sigmoid
  Parameter weight = random_parameter({12, 24}, 17, context_.dtype);
  const at::Tensor h = typed({context_.tokens(), 24}, 18);
  const auto index = [&](double bias) {
    return route(context_, h, config, 0, weight, nullptr, at::full({12}, bias, at::kFloat)).index;
  };
  // What is outside the groups is out even where all keys are negative; sums may round otherwise.
  EXPECT_GT(index(-5.0).eq(index(0.0)).to(at::kDouble).mean().item<double>(), 0.95);
}

TEST_P(Ops, ExpertsMatchAtenWithAnIdleExpert) {
  Parameter router = random_parameter({12, 24}, 19, context_.dtype);
  router.value[4].fill_(0.0);
  Parameter bias = random_parameter({12}, 20, context_.dtype);
  bias.value[4].fill_(-100.0);  // nobody chooses expert 4
  refresh_compute(router);
  const at::Tensor h = typed({context_.tokens(), 24}, 21);
  const Routing routing = route(context_, h, router_case(1), 0, router, &bias, {});
  Parameter gate_up = random_parameter({12, 2 * 20, 24}, 22, context_.dtype, 12);
  Parameter down = random_parameter({12, 24, 20}, 23, context_.dtype, 12);
  for (const double multiplier : {1.0, 0.5}) {
    expect_same_meaning(context_, {h, routing.weight.detach(), random({context_.tokens(), 24}, 24)},
                        {&gate_up, &down}, [&](const Context& c, const Tensors& in) {
                          Routing plan = routing;
                          plan.weight = in[1];
                          return experts(c, in[0], plan, gate_up, down, in[2], multiplier);
                        });
  }
  EXPECT_EQ(gate_up.grad[4].abs().sum().item<float>(), 0.0F);
}

/// More rows of an expert than a tile holds, more rows of a weight gradient than a task makes.
TEST_P(Ops, LargeExpertsMatchAten) {
  context_.batch = 2;
  context_.seq = 640;
  constexpr std::int64_t kWidth = 520;
  model::RouterConfig config = router_case(1);
  config.experts = 2;
  config.top_k = 1;
  Parameter router = random_parameter({2, 24}, 19, context_.dtype);
  const at::Tensor h = typed({context_.tokens(), 24}, 21);
  const Routing routing = route(context_, h, config, 0, router, nullptr, {});
  ASSERT_GT(routing.offset[1].item<std::int64_t>(), 512);
  Parameter gate_up = random_parameter({2, 2 * kWidth, 24}, 22, context_.dtype, 2);
  Parameter down = random_parameter({2, 24, kWidth}, 23, context_.dtype, 2);
  expect_same_meaning(context_, {h, routing.weight.detach(), random({context_.tokens(), 24}, 24)},
                      {&gate_up, &down}, [&](const Context& c, const Tensors& in) {
                        Routing plan = routing;
                        plan.weight = in[1];
                        return experts(c, in[0], plan, gate_up, down, in[2], 1.0);
                      });
}

TEST_P(Ops, HeadLossMatchesAten) {
  Parameter weight = random_parameter({301, 24}, 26, context_.dtype);
  at::Tensor labels = at::randint(301, {context_.tokens()}, at::kLong);
  labels[5] = -100;
  expect_same_meaning(context_, {typed({context_.tokens(), 24}, 27)}, {&weight},
                      [&](const Context& c, const Tensors& in) {
                        return head_loss(c, in[0], weight, labels, 0.01, 6.0).to(at::kDouble);
                      });
}

/// More rows than have logits at a time.
TEST_P(Ops, HeadLossOfManyRowsMatchesAten) {
  context_.seq = 700;
  Parameter weight = random_parameter({61, 24}, 26, context_.dtype);
  const at::Tensor labels = at::randint(61, {context_.tokens()}, at::kLong);
  ASSERT_GT(context_.tokens(), 2048);
  expect_same_meaning(context_, {typed({context_.tokens(), 24}, 27)}, {&weight},
                      [&](const Context& c, const Tensors& in) {
                        return head_loss(c, in[0], weight, labels, 0.01, 1.0).to(at::kDouble);
                      });
}

TEST_P(Ops, GradientsHaveTheSameBitsOnOneAndTwoThreads) {
  Parameter gate_up = random_parameter({12, 2 * 20, 24}, 28, context_.dtype, 12);
  Parameter down = random_parameter({12, 24, 20}, 29, context_.dtype, 12);
  Parameter router = random_parameter({12, 24}, 30, context_.dtype);
  std::vector<Outcome> outcomes;
  for (const int threads : {1, 2}) {
    kernels::set_num_threads(threads);
    outcomes.push_back(
        run(context_, {typed({context_.tokens(), 24}, 31), random({context_.tokens(), 24}, 32)},
            {&router, &gate_up, &down}, [&](const Context& c, const Tensors& in) {
              const Routing routing = route(c, in[0], router_case(1), 0, router, nullptr, {});
              return experts(c, in[0], routing, gate_up, down, in[1], 1.0);
            }));
  }
  EXPECT_TRUE(outcomes[0].value.equal(outcomes[1].value));
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(outcomes[0].input_gradients[i].equal(outcomes[1].input_gradients[i]));
  }
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(outcomes[0].weight_gradients[i].equal(outcomes[1].weight_gradients[i]));
  }
}

}  // namespace
}  // namespace moestro::layers
