#include "moestro/runtime/routing_report.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace moestro::runtime {
namespace {

TEST(Gini, MatchesClosedForms) {
  EXPECT_DOUBLE_EQ(gini({5, 5, 5, 5}), 0.0);
  EXPECT_DOUBLE_EQ(gini({0, 0, 0, 8}), 0.75);
  EXPECT_DOUBLE_EQ(gini({0, 0}), 0.0);
  EXPECT_DOUBLE_EQ(gini({3, 1}), 0.25);
}

layers::RoutingRecord record(int layer, std::vector<std::int64_t> counts, double aux) {
  layers::RoutingRecord r;
  r.layer = layer;
  r.expert_tokens = std::move(counts);
  r.aux_loss = aux;
  return r;
}

TEST(RoutingReport, SumsMicroBatchesBeforeComparingExperts) {
  const StepRouting routing =
      sum_routing({record(0, {4, 0}, 1.0), record(1, {1, 1}, 1.0), record(0, {0, 4}, 3.0)});
  const auto report = summarise(routing);
  ASSERT_TRUE(report.has_value());
  EXPECT_DOUBLE_EQ(report->max_over_mean, 1.0);
  EXPECT_DOUBLE_EQ(report->gini, 0.0);
  EXPECT_EQ(report->dead_experts, 0);
  EXPECT_DOUBLE_EQ(report->aux_loss, 1.5);
  EXPECT_FALSE(summarise({}).has_value());
}

TEST(RoutingReport, WorstLayerCounts) {
  const auto report =
      summarise(sum_routing({record(0, {6, 0, 0}, 1.0), record(1, {2, 2, 2}, 1.0)}));
  EXPECT_DOUBLE_EQ(report->max_over_mean, 3.0);
  EXPECT_EQ(report->dead_experts, 2);
}

TEST(SelectionBias, MovesTowardsIdleExperts) {
  layers::ModelWeights weights;
  weights.layers.resize(1);
  weights.layers[0].moe.selection_bias = at::zeros({4}, at::kFloat);
  update_selection_biases(sum_routing({record(0, {5, 1, 2, 0}, 0.0)}), 0.5, weights);
  const float* bias = weights.layers[0].moe.selection_bias.data_ptr<float>();
  EXPECT_EQ(std::vector<float>(bias, bias + 4), (std::vector<float>{-0.5F, 0.5F, 0.0F, 0.5F}));
}

}  // namespace
}  // namespace moestro::runtime
