#include "moestro/kernels/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "moestro/kernels/bf16.h"
#include "moestro/kernels/internal/attention_vectors.h"

namespace moestro::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(ExpFast, RelativeErrorIsBelowTwoInTenMillion) {
  double worst = 0.0;
  for (double x = -87.3; x < 88.3; x += 1.0 / 1024.0) {
    const auto rounded = static_cast<float>(x);
    const double exact = std::exp(static_cast<double>(rounded));
    worst = std::max(worst, std::abs(static_cast<double>(exp_fast(rounded)) - exact) / exact);
  }
  EXPECT_LT(worst, 2e-7);
}

TEST(ExpFast, EndsOfTheRange) {
  EXPECT_EQ(exp_fast(0.0F), 1.0F);
  EXPECT_EQ(exp_fast(-kInfinity), 0.0F);
  EXPECT_EQ(exp_fast(-1e30F), 0.0F);
  EXPECT_EQ(exp_fast(kInfinity), kInfinity);
  EXPECT_EQ(exp_fast(89.0F), kInfinity);
  for (const float x : {1e5F, 8.5e7F, 1e15F, 3e38F}) EXPECT_EQ(exp_fast(x), kInfinity) << x;
  EXPECT_TRUE(std::isnan(exp_fast(kNan)));
  EXPECT_TRUE(std::isnan(exp_fast(-kNan)));
}

float power_of_2(float x) {
  using Four = internal::Vector<4>;
  Four::Floats lanes{x, 1.0F, x, -1.0F};
  internal::power_of_2<Four::Floats, Four::Bits>(lanes);
  EXPECT_TRUE(lanes[0] == lanes[2] || std::isnan(lanes[0]));
  EXPECT_EQ(lanes[1], 2.0F);
  EXPECT_EQ(lanes[3], 0.5F);
  return lanes[0];
}

TEST(PowerOf2, RelativeErrorIsBelowElevenInAHundredMillion) {
  double worst = 0.0;
  for (double x = -126.0; x < 1.0; x += 1.0 / 4096.0 + 1e-6) {
    const auto rounded = static_cast<float>(x);
    const double exact = std::exp2(static_cast<double>(rounded));
    worst = std::max(worst, std::abs(static_cast<double>(power_of_2(rounded)) - exact) / exact);
  }
  EXPECT_LT(worst, 1.1e-7);
}

TEST(PowerOf2, EndsOfTheRange) {
  EXPECT_EQ(power_of_2(0.0F), 1.0F);
  for (const float x : {-126.6F, -127.0F, -1e5F, -1e30F, -kInfinity}) {
    EXPECT_EQ(power_of_2(x), 0.0F) << x;
  }
  EXPECT_TRUE(std::isnan(power_of_2(kNan)));
  EXPECT_TRUE(std::isnan(power_of_2(-kNan)));
}

TEST(SigmoidFast, SaturatesWithoutNan) {
  EXPECT_EQ(sigmoid_fast(0.0F), 0.5F);
  EXPECT_EQ(sigmoid_fast(200.0F), 1.0F);
  EXPECT_EQ(sigmoid_fast(-200.0F), 0.0F);
}

TEST(LargestOf, PassesNansOver) {
  const float x[] = {kNan, -3.0F, kNan, 2.0F, -kInfinity};
  EXPECT_EQ(largest_of(5, x), 2.0F);
  EXPECT_EQ(largest_of(0, x), -kInfinity);
}

TEST(Bf16, RoundsToNearestEven) {
  const auto rounded = [](float x) { return to_float(from_float<bf16>(x)); };
  EXPECT_EQ(rounded(1.0F), 1.0F);
  EXPECT_EQ(rounded(1.0F + 0x1p-8F), 1.0F);                      // tie: to the even neighbour below
  EXPECT_EQ(rounded(1.0F + 0x1p-7F + 0x1p-8F), 1.0F + 0x1p-6F);  // tie: to the even one above
  EXPECT_EQ(rounded(1.0F + 0x1p-8F + 0x1p-20F), 1.0F + 0x1p-7F);  // above the tie
  EXPECT_EQ(rounded(kInfinity), kInfinity);
  EXPECT_EQ(rounded(3.4e38F), kInfinity);
}

}  // namespace
}  // namespace moestro::kernels
