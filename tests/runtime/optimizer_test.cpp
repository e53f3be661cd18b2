#include "moestro/runtime/optimizer.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "moestro/core/error.h"

namespace moestro::runtime {
namespace {

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
  double step(const OptimizerSection& config, float gradient) {
    Optimizer optimizer = make_optimizer(config, 1, {&parameter});
    begin_gradients(optimizer);
    float* g = layers::claim_gradient_for_adding(parameter);
    for (int i = 0; i < 4; ++i) g[i] = gradient;
    return update(optimizer, 1);
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

TEST(Optimizer, RefusesANormThatIsNotFiniteAndChangesNothing) {
  OneParameter one;
  EXPECT_THROW(one.step({}, std::numeric_limits<float>::quiet_NaN()), Error);
  EXPECT_EQ(one.parameter.value[0][0].item<float>(), 1.0F);
}

}  // namespace
}  // namespace moestro::runtime
