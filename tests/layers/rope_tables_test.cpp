#include "moestro/layers/rope_tables.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cmath>

namespace moestro::layers {
namespace {

double cosine(const model::Rope& rope, std::int64_t position, std::int64_t i) {
  return make_rope_tables(rope, position + 1).cos[position][i].item<double>();
}

TEST(RopeTables, PlainFollowsTheFormula) {
  const model::Rope rope{.theta = 500.0, .rotary_dim = 8};
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(cosine(rope, 7, i), std::cos(7.0 * std::pow(500.0, -static_cast<double>(i) / 4.0)),
                1e-7);
  }
}

TEST(RopeTables, LinearDividesPositions) {
  model::Rope rope{.rotary_dim = 8};
  rope.kind = model::RopeKind::linear;
  rope.factor = 4.0;
  EXPECT_NEAR(cosine(rope, 8, 0), std::cos(2.0), 1e-7);
}

TEST(RopeTables, YarnKeepsFastAndStretchesSlowDimensions) {
  model::Rope rope{.theta = 10000.0, .rotary_dim = 64};
  rope.kind = model::RopeKind::yarn;
  rope.factor = 8.0;
  rope.original_max_positions = 4096;
  rope.attention_factor = 1.0;
  const model::Rope plain{.theta = 10000.0, .rotary_dim = 64};
  EXPECT_EQ(cosine(rope, 100, 0), cosine(plain, 100, 0));
  EXPECT_NEAR(cosine(rope, 800, 31), cosine(plain, 100, 31), 1e-6);
  rope.attention_factor.reset();
  EXPECT_NEAR(cosine(rope, 0, 0), 0.1 * std::log(8.0) + 1.0, 1e-6);
}

TEST(RopeTables, Llama3StretchesOnlyLongWavelengths) {
  model::Rope rope{.theta = 500000.0, .rotary_dim = 64};
  rope.kind = model::RopeKind::llama3;
  rope.factor = 8.0;
  rope.original_max_positions = 1024;
  const model::Rope plain{.theta = 500000.0, .rotary_dim = 64};
  EXPECT_EQ(cosine(rope, 50, 0), cosine(plain, 50, 0));
  EXPECT_NEAR(cosine(rope, 800, 31), cosine(plain, 100, 31), 1e-6);
}

/// The share of the stretched frequency in dimension i of the plain one's table.
double yarn_ramp(const model::Rope& rope, std::int64_t i) {
  const double plain = std::pow(rope.theta, -2.0 * static_cast<double>(i) / 64.0);
  const double frequency = std::acos(cosine(rope, 1, i));
  return (1.0 - frequency / plain) / (1.0 - 1.0 / rope.factor);
}

TEST(RopeTables, YarnBlendsBetweenTheTwoRotationCounts) {
  model::Rope rope{.theta = 10000.0, .rotary_dim = 64};
  rope.kind = model::RopeKind::yarn;
  rope.factor = 8.0;
  rope.attention_factor = 1.0;
  rope.original_max_positions = 4096;  // dimensions 10.472 to 22.513 turn 32 times to once
  EXPECT_NEAR(yarn_ramp(rope, 12), (12.0 - 10.0) / (23.0 - 10.0), 1e-3);
  rope.truncate = false;
  EXPECT_NEAR(yarn_ramp(rope, 12), (12.0 - 10.472) / (22.513 - 10.472), 1e-3);
  rope.truncate = true;
  rope.original_max_positions = 32;  // -6.385 to 5.656: there is no dimension below 0
  EXPECT_NEAR(yarn_ramp(rope, 3), 3.0 / 6.0, 1e-3);
}

TEST(RopeTables, YarnScalesByTheQuotientOfItsTwoScales) {
  model::Rope rope{.rotary_dim = 8};
  rope.kind = model::RopeKind::yarn;
  rope.factor = 8.0;
  rope.original_max_positions = 4096;
  rope.mscale = 2.0;
  rope.mscale_all_dim = 0.5;
  const double expected = (0.2 * std::log(8.0) + 1.0) / (0.05 * std::log(8.0) + 1.0);
  EXPECT_NEAR(cosine(rope, 0, 0), expected, 1e-6);
}

TEST(RopeTables, LongropeDividesEveryFrequencyByItsOwnFactor) {
  model::Rope rope{.rotary_dim = 4};
  rope.kind = model::RopeKind::longrope;
  rope.short_factor = {2.0, 0.05};
  EXPECT_NEAR(cosine(rope, 3, 0), std::cos(1.5), 1e-6);
  EXPECT_NEAR(cosine(rope, 3, 1), std::cos(3.0 * 0.01 / 0.05), 1e-6);
  rope.short_mscale = 1.25;
  EXPECT_NEAR(cosine(rope, 3, 0), 1.25 * std::cos(1.5), 1e-6);
  EXPECT_NEAR(make_rope_tables(rope, 4).sin[3][0].item<double>(), 1.25 * std::sin(1.5), 1e-6);
}

TEST(RopeTables, Llama3BlendsTheWavelengthsBetween) {
  model::Rope rope{.theta = 16.0, .rotary_dim = 4};  // wavelengths 2 pi and 8 pi
  rope.kind = model::RopeKind::llama3;
  rope.factor = 8.0;
  rope.low_freq_factor = 1.0;
  rope.high_freq_factor = 4.0;
  rope.original_max_positions = 50;
  const double smooth = (50.0 / (8.0 * std::acos(-1.0)) - 1.0) / 3.0;
  EXPECT_NEAR(cosine(rope, 1, 1), std::cos(0.25 * ((1.0 - smooth) / 8.0 + smooth)), 1e-6);
}

TEST(RopeTables, SayWhetherPairsAreNeighbours) {
  model::Rope rope{.rotary_dim = 8};
  EXPECT_FALSE(make_rope_tables(rope, 2).interleaved);
  rope.interleaved = true;
  EXPECT_TRUE(make_rope_tables(rope, 2).interleaved);
}

TEST(RopeTables, NoneGivesNoTables) {
  model::Rope rope{.rotary_dim = 8};
  rope.kind = model::RopeKind::none;
  EXPECT_FALSE(make_rope_tables(rope, 4).cos.defined());
}

}  // namespace
}  // namespace moestro::layers
