#include "moestro/runtime/optimizer.h"

#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "moestro/core/error.h"

namespace moestro::runtime {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(LearningRate, WarmsUpThenDecaysToTheMinimum) {
  OptimizerSection config;
  config.lr = 1.0;
  config.min_lr = 0.1;
  config.warmup_steps = 10;
  config.schedule = LrSchedule::cosine;
  EXPECT_DOUBLE_EQ(learning_rate(config, 110, 1), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(config, 110, 10), 1.0);
  EXPECT_NEAR(learning_rate(config, 110, 60), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate(config, 110, 110), 0.1, 1e-12);
  config.schedule = LrSchedule::linear;
  EXPECT_NEAR(learning_rate(config, 110, 35), 1.0 - 0.25 * 0.9, 1e-12);
  config.schedule = LrSchedule::constant;
  EXPECT_DOUBLE_EQ(learning_rate(config, 110, 110), 1.0);
}

struct OneParameter {
  layers::Parameter parameter = layers::make_parameter("p", {2, 2});
  OneParameter() {
    layers::allocate_gradient(parameter);
    parameter.value.fill_(1.0);
  }
  double step(const OptimizerSection& config, float gradient, std::int64_t number = 1,
              double loss = 2.0) {
    Optimizer optimizer = make_optimizer(config, 1, {&parameter});
    begin_gradients(optimizer);
    float* g = layers::claim_gradient_for_adding(parameter);
    for (int i = 0; i < 4; ++i) g[i] = gradient;
    return update(optimizer, number, loss);
  }
};

TEST(Optimizer, FirstStepMovesByTheLearningRate) {
  OptimizerSection config;
  config.lr = 0.1;
  config.weight_decay = 0.5;
  config.schedule = LrSchedule::constant;
  config.clip = 0.0;
  OneParameter one;
  EXPECT_NEAR(one.step(config, 3.0F), 6.0, 1e-9);
  // m / sqrt(v) = 1 after bias correction; decay acts on the old weight.
  EXPECT_NEAR(one.parameter.value[0][0].item<float>(), 1.0 - 0.1 * 0.5 - 0.1, 1e-6);
}

TEST(Optimizer, OnlyMatricesDecay) {
  OptimizerSection config;
  config.lr = 0.1;
  config.weight_decay = 0.5;
  config.schedule = LrSchedule::constant;
  layers::Parameter matrix = layers::make_parameter("matrix", {2, 2});
  layers::Parameter vector = layers::make_parameter("vector", {4});
  for (layers::Parameter* p : {&matrix, &vector}) {
    layers::allocate_gradient(*p);
    p->value.fill_(1.0);
  }
  Optimizer optimizer = make_optimizer(config, 1, {&matrix, &vector});
  begin_gradients(optimizer);  // nobody writes any: zeros
  EXPECT_EQ(update(optimizer, 1, 2.0), 0.0);
  EXPECT_FLOAT_EQ(matrix.value[0][0].item<float>(), 1.0F - 0.1F * 0.5F);
  EXPECT_EQ(vector.value[0].item<float>(), 1.0F);
}

TEST(Optimizer, ClippingIsInvisibleToAdamButReportedUnclipped) {
  OptimizerSection config;
  config.schedule = LrSchedule::constant;
  config.clip = 1.0;
  config.eps = 1.0;  // makes the size of the gradient count
  config.lr = 1.0;
  config.weight_decay = 0.0;
  OneParameter one;
  EXPECT_NEAR(one.step(config, 100.0F), 200.0, 1e-3);
  EXPECT_NEAR(one.parameter.value[0][0].item<float>(), 1.0 - 0.5 / 1.5, 1e-5);  // g = 0.5 each
}

TEST(Optimizer, ClipsATinyNormAsTorchDoes) {
  OptimizerSection config;
  config.schedule = LrSchedule::constant;
  config.clip = 1e-6;
  config.eps = 1.0;
  config.lr = 1.0;
  OneParameter one;
  one.parameter.value.fill_(0.0);
  static_cast<void>(one.step(config, 5e-7F));  // norm 1e-6; torch divides by 1e-6 more
  EXPECT_NEAR(one.parameter.value[0][0].item<float>(), -2.5e-7, 1e-9);
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::string refusal(OneParameter& one, float gradient, std::int64_t step, double loss) {
  try {
    one.step({}, gradient, step, loss);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
  return "no error";
}

TEST(Optimizer, RefusesWhatIsNotFiniteAndChangesNothing) {
  OneParameter one;
  EXPECT_THAT(refusal(one, -kNan, 7, -kNan),
              StartsWith("[step 7] expected a finite loss and gradient norm, got loss nan and "
                         "gradient norm nan; lower optimizer.lr"));
  EXPECT_THAT(refusal(one, kNan, 7, 2.5), HasSubstr("got loss 2.5 and gradient norm nan"));
  EXPECT_THAT(refusal(one, 1.0F, 7, HUGE_VAL), HasSubstr("got loss inf and gradient norm 2;"));
  EXPECT_EQ(one.parameter.value[0][0].item<float>(), 1.0F);
}

TEST(Optimizer, BlamesNoLearningRateBeforeTheFirstUpdate) {
  OneParameter one;
  EXPECT_THAT(refusal(one, kNan, 1, kNan), Not(HasSubstr("optimizer.")));
  EXPECT_THAT(refusal(one, kNan, 1, kNan), HasSubstr("no update has been made; check initial"));
  one.parameter.value.fill_(HUGE_VAL);
  EXPECT_THAT(refusal(one, kNan, 1, kNan), HasSubstr("and p is not finite from the start"));
  EXPECT_THAT(refusal(one, kNan, 2, kNan), HasSubstr("p is not finite; lower optimizer.lr"));
}

}  // namespace
}  // namespace moestro::runtime
