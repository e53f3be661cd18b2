#include "moestro/layers/autograd.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "moestro/core/error.h"
#include "moestro/layers/parameter.h"

namespace moestro::layers {
namespace {

at::Tensor doubled(const at::Tensor& x) {
  return record(x.detach() * 2.0, {x}, [](const at::Tensor& dy) { return Tensors{dy * 2.0}; });
}

TEST(Autograd, ChainsRecordedOperationsWithTorchs) {
  const at::Tensor x = at::ones({3}).set_requires_grad(true);
  const at::Tensor y = doubled(doubled(x) * x);  // 4 x^2
  torch::autograd::backward({y.sum()}, {});
  EXPECT_TRUE(x.grad().equal(at::ones({3}) * 8.0));
}

TEST(Autograd, RecordsNothingWithoutAGradientToGive) {
  const at::Tensor x = at::ones({3});
  EXPECT_FALSE(doubled(x).requires_grad());
}

TEST(Autograd, RefusesASecondBackward) {
  const at::Tensor x = at::ones({3}).set_requires_grad(true);
  const at::Tensor y = doubled(x).sum();
  torch::autograd::backward({y}, {});
  EXPECT_ANY_THROW(torch::autograd::backward({y}, {}));
}

TEST(GradientQueue, RunsQueuedWorkInOrderOnce) {
  GradientQueue queue;
  std::vector<int> ran;
  weight_gradient(&queue, [&] { ran.push_back(1); });
  weight_gradient(&queue, [&] { ran.push_back(2); });
  EXPECT_TRUE(ran.empty());
  EXPECT_EQ(queue.size(), 2U);
  queue.run();
  queue.run();
  EXPECT_EQ(ran, (std::vector<int>{1, 2}));
  weight_gradient(nullptr, [&] { ran.push_back(3); });
  EXPECT_EQ(ran.back(), 3);
}

TEST(Parameter, ZeroesOnlySlicesNobodyWrote) {
  Parameter parameter = make_parameter("p", {4, 2}, 2);
  allocate_gradient(parameter);
  parameter.grad.fill_(7.0);
  begin_gradient(parameter);
  const GradientTarget target = claim_gradient(parameter, 1);
  EXPECT_FALSE(target.accumulate);
  for (int i = 0; i < 4; ++i) target.data[i] = 3.0F;
  EXPECT_TRUE(claim_gradient(parameter, 1).accumulate);
  finish_gradient(parameter);
  EXPECT_TRUE(parameter.grad.narrow(0, 0, 2).eq(0.0).all().item<bool>());
  EXPECT_TRUE(parameter.grad.narrow(0, 2, 2).eq(3.0).all().item<bool>());
}

TEST(Parameter, Bf16CopyFollowsTheMaster) {
  Parameter parameter = make_parameter("p", {3});
  set_compute_dtype(parameter, at::kBFloat16);
  parameter.value.fill_(1.00390625);  // halfway between two bf16 values: rounds to even
  refresh_compute(parameter);
  EXPECT_EQ(parameter.compute.scalar_type(), at::kBFloat16);
  EXPECT_EQ(parameter.compute[0].item<float>(), 1.0F);
}

}  // namespace
}  // namespace moestro::layers
