// One optimizer step: what its options mean, whatever the batch is cut into.

#include "moestro/runtime/train_step.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "moestro/core/rng.h"
#include "moestro/kernels/gemm.h"
#include "moestro/layers/torch_setup.h"
#include "moestro/model/hf_config.h"
#include "tests/model/tiny_glm.h"

namespace moestro::runtime {
namespace {

constexpr std::int64_t kSequences = 8, kSeqLen = 5;

data::Batch batch_of(std::int64_t sequences) {
  Rng rng(1, "batch");
  data::Batch batch{sequences, kSeqLen, {}, {}};
  for (std::int64_t i = 0; i < sequences * kSeqLen; ++i) {
    batch.inputs.push_back(static_cast<std::int64_t>(rng.below(19)));
    batch.labels.push_back(static_cast<std::int64_t>(rng.below(19)));
  }
  return batch;
}

class TrainStep : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernels::has_gemm()) GTEST_SKIP() << "this build has no oneDNN";
    layers::set_up_torch();
    decoder_ = make_decoder(model::parse_hf_config(model::kTinyGlm, "test").model);
    prepare_for_training(decoder_, at::kFloat);
    plan_.seq_len = kSeqLen;
    plan_.micro_batch = kSequences;
  }
  /// The first step from the same weights each time.
  StepOutcome first_step() {
    layers::initialise(decoder_.config, 3, decoder_.weights);
    selection_bias().zero_();
    Optimizer optimizer = make_optimizer({}, 10, layers::parameters(decoder_.weights));
    return train_step(decoder_, optimizer, plan_, batch_of(kSequences), 1);
  }
  at::Tensor& selection_bias() { return decoder_.weights.layers[0].moe.selection_bias; }
  double grad_norm(std::int64_t micro_batch, std::int64_t shards) {
    plan_.micro_batch = micro_batch;
    plan_.shards = shards;
    return first_step().grad_norm;
  }
  Decoder decoder_;
  StepPlan plan_;
};

/// What a run that is ended by an error may still save.
TEST_F(TrainStep, GradientsChangeNeitherWeightsNorMoments) {
  plan_.balance.bias_update = 0.1;
  layers::initialise(decoder_.config, 3, decoder_.weights);
  selection_bias().zero_();
  Optimizer optimizer = make_optimizer({}, 10, layers::parameters(decoder_.weights));
  const auto sums = [&] {
    double weights = selection_bias().abs().sum().item<double>(), moments = 0.0;
    for (std::size_t i = 0; i < optimizer.parameters.size(); ++i) {
      weights += optimizer.parameters[i]->value.sum().item<double>();
      moments += optimizer.moments[i].first.abs().sum().item<double>();
    }
    return std::pair(weights, moments);
  };
  const auto before = sums();
  const StepOutcome outcome =
      compute_gradients(decoder_, optimizer, plan_, batch_of(kSequences), 1);
  EXPECT_GT(outcome.grad_norm, 0.0);
  EXPECT_EQ(sums(), before);
  apply_gradients(decoder_, optimizer, plan_, outcome, 1);
  EXPECT_NE(sums().first, before.first);
  EXPECT_GT(sums().second, 0.0);
}

TEST_F(TrainStep, ZLossIsAMeanOverTheWholeBatch) {
  const double without = grad_norm(8, 1);
  plan_.balance.z_loss = 1.0;
  const double whole = grad_norm(8, 1);
  EXPECT_GT(std::abs(whole / without - 1.0), 0.05);
  EXPECT_NEAR(grad_norm(2, 1) / whole, 1.0, 1e-4);
  EXPECT_NEAR(grad_norm(1, 4) / whole, 1.0, 1e-4);
}

TEST_F(TrainStep, AuxiliaryLossIsAMeanOverShardsAndMicroBatches) {
  const double without = grad_norm(2, 1);
  plan_.balance.aux_loss = 30.0;
  const double cut = grad_norm(2, 1);
  EXPECT_GT(std::abs(cut / without - 1.0), 0.05);
  EXPECT_NEAR(grad_norm(2, 4) / cut, 1.0, 1e-4) << "the same cut as four micro-batches";
  EXPECT_GT(std::abs(grad_norm(8, 1) / cut - 1.0), 1e-3) << "another cut, another loss";
}

TEST_F(TrainStep, SelectionBiasMovesAgainstTheLoadOfTheStep) {
  plan_.balance.bias_update = 0.25;
  const StepOutcome outcome = first_step();
  const std::vector<std::int64_t>& load = outcome.routing.at(0).expert_tokens;
  constexpr std::int64_t kMean = kSequences * kSeqLen * 2 / 4;
  bool has_moved = false;
  for (std::size_t e = 0; e < load.size(); ++e) {
    const float expected = load[e] < kMean ? 0.25F : load[e] > kMean ? -0.25F : 0.0F;
    EXPECT_EQ(selection_bias()[static_cast<std::int64_t>(e)].item<float>(), expected) << e;
    has_moved = has_moved || expected != 0.0F;
  }
  EXPECT_TRUE(has_moved);
}

TEST_F(TrainStep, EvaluationIsAMeanOverTokensHoweverTheyAreCut) {
  static_cast<void>(first_step());
  const data::Batch batch = batch_of(7);  // no whole number of micro-batches
  plan_.micro_batch = 7;
  const double whole = evaluate_batch(decoder_, plan_, batch).value();
  for (const std::int64_t micro_batch : {1, 2, 3, 8}) {
    plan_.micro_batch = micro_batch;
    EXPECT_NEAR(evaluate_batch(decoder_, plan_, batch).value(), whole, 1e-6) << micro_batch;
  }
}

}  // namespace
}  // namespace moestro::runtime
