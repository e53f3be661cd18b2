#include "moestro/layers/rope_tables.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

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
  rope.original_max_positions = 16;
  rope.short_factor = {2.0, 0.05};
  EXPECT_NEAR(cosine(rope, 3, 0), std::cos(1.5), 1e-6);
  EXPECT_NEAR(cosine(rope, 3, 1), std::cos(3.0 * 0.01 / 0.05), 1e-6);
  rope.short_mscale = 1.25;
  EXPECT_NEAR(cosine(rope, 3, 0), 1.25 * std::cos(1.5), 1e-6);
  EXPECT_NEAR(make_rope_tables(rope, 4).sin[3][0].item<double>(), 1.25 * std::sin(1.5), 1e-6);
}

TEST(RopeTables, LongropeTakesItsLongFactorsBeyondTheOriginalContextForAllPositions) {
  model::Rope rope{.rotary_dim = 2};
  rope.kind = model::RopeKind::longrope;
  rope.original_max_positions = 8;
  rope.short_factor = {2.0};
  rope.long_factor = {4.0};
  EXPECT_NEAR(make_rope_tables(rope, 8).cos[3][0].item<double>(), std::cos(1.5), 1e-6);
  EXPECT_NEAR(make_rope_tables(rope, 9).cos[3][0].item<double>(), std::cos(0.75), 1e-6);
  rope.short_mscale = 1.25;
  rope.long_mscale = 1.5;
  EXPECT_NEAR(make_rope_tables(rope, 8).cos[0][0].item<double>(), 1.25, 1e-6);
  EXPECT_NEAR(make_rope_tables(rope, 9).cos[0][0].item<double>(), 1.5, 1e-6);
}

TEST(RopeTables, LongropeScalesByTheLogarithmOfTheExtension) {
  model::Rope rope{.rotary_dim = 2, .factor = 8.0, .original_max_positions = 16};
  rope.kind = model::RopeKind::longrope;
  rope.short_factor = rope.long_factor = {1.0};
  const auto scale = [&](std::int64_t seq) {
    return make_rope_tables(rope, seq).cos[0][0].item<double>();
  };
  EXPECT_NEAR(scale(16), std::sqrt(1.0 + 3.0 / 4.0), 1e-6);  // ln 8 / ln 16
  EXPECT_EQ(scale(16), scale(17));
  rope.factor = 1.0;
  EXPECT_EQ(scale(17), 1.0);
  rope.attention_factor = 1.25;
  EXPECT_EQ(scale(17), 1.25);
}

/// The tables of a kind of rope for so many positions, as transformers 5.24 makes them:
/// cos(position * frequency) * scale.
struct Golden {
  model::Rope rope;
  std::int64_t seq;
  std::vector<double> frequency;
  double scale;
};

model::Rope rope_of(model::RopeKind kind, std::int64_t original) {
  model::Rope rope{.theta = 1000.0, .rotary_dim = 8, .factor = 8.0};
  rope.kind = kind;
  rope.original_max_positions = original;
  return rope;
}

std::vector<Golden> golden_of_transformers() {
  using enum model::RopeKind;
  model::Rope four = rope_of(linear, 0);
  four.factor = 4.0;
  model::Rope exact = rope_of(yarn, 256);
  exact.truncate = false;
  exact.beta_fast = 16.0;
  exact.beta_slow = 2.0;
  exact.mscale = 1.0;
  exact.mscale_all_dim = 0.5;
  model::Rope one_scale = rope_of(yarn, 256);
  one_scale.mscale = 2.0;
  model::Rope told = exact;
  told.attention_factor = 0.7;
  model::Rope extended = rope_of(longrope, 16);
  extended.short_factor = {1.0, 1.1, 1.3, 1.5};
  extended.long_factor = {1.5, 2.0, 4.0, 8.0};
  const std::vector<double> blended = {1.0, 0.12596145272254944, 0.01317615807056427,
                                       0.0007029266562312841};
  const std::vector<double> untruncated = {1.0, 0.11854755133390427, 0.0039528473280370235,
                                           0.0007029266562312841};
  return {{four, 40, {0.25, 0.04445698484778404, 0.007905694656074047, 0.0014058533124625683}, 1.0},
          {rope_of(llama3, 64),
           40,
           {1.0, 0.06430987268686295, 0.0039528473280370235, 0.0007029266562312841},
           1.0},
          {rope_of(yarn, 256), 40, blended, 1.2079441541679836},
          {one_scale, 40, blended, 1.2079441541679836},
          {exact, 40, untruncated, 1.094179988101349},
          {told, 40, untruncated, 0.7},
          {extended,
           16,
           {1.0, 0.1616617739200592, 0.024325214326381683, 0.0037489421665668488},
           1.3228756555322954},
          {extended,
           17,
           {0.6666666865348816, 0.08891396969556808, 0.007905694656074047, 0.0007029266562312841},
           1.3228756555322954}};
}

TEST(RopeTables, AreThoseOfTransformers) {
  int index = 0;
  for (const Golden& golden : golden_of_transformers()) {
    const RopeTables tables = make_rope_tables(golden.rope, golden.seq);
    for (const std::int64_t position : {std::int64_t{0}, std::int64_t{1}, golden.seq - 1}) {
      for (std::int64_t i = 0; i < 4; ++i) {
        const double angle =
            static_cast<double>(position) * golden.frequency[static_cast<std::size_t>(i)];
        EXPECT_NEAR(tables.cos[position][i].item<double>(), std::cos(angle) * golden.scale, 4e-6)
            << index;
        EXPECT_NEAR(tables.sin[position][i].item<double>(), std::sin(angle) * golden.scale, 4e-6)
            << index;
      }
    }
    ++index;
  }
}

TEST(RopeTables, RoundWhereTransformersRounds) {
  // Of transformers 5.24 at position 4095; exact angles give values 6e-5 to 1.4e-4 away.
  EXPECT_NEAR(cosine({.theta = 1e4, .rotary_dim = 64}, 4095, 1), -0.09004636108875275, 1e-6);
  EXPECT_NEAR(cosine({.theta = 1e6, .rotary_dim = 128}, 4095, 3), 0.9414244890213013, 1e-6);
  EXPECT_NEAR(cosine({.theta = 5e5, .rotary_dim = 40}, 4095, 1), 0.5221697092056274, 1e-6);
}

TEST(RopeTables, ServeShorterSequencesOnTheSameSideOfTheOriginalContext) {
  const model::Rope plain{.rotary_dim = 8};
  EXPECT_FALSE(serve({}, plain, 1));
  EXPECT_TRUE(serve(make_rope_tables(plain, 8), plain, 5));
  EXPECT_FALSE(serve(make_rope_tables(plain, 8), plain, 9));
  model::Rope longrope = rope_of(model::RopeKind::longrope, 8);
  longrope.short_factor = longrope.long_factor = {1.0, 1.0, 1.0, 1.0};
  EXPECT_TRUE(serve(make_rope_tables(longrope, 8), longrope, 5));
  EXPECT_TRUE(serve(make_rope_tables(longrope, 12), longrope, 9));
  EXPECT_FALSE(serve(make_rope_tables(longrope, 12), longrope, 8));
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
  EXPECT_TRUE(serve({}, rope, 4));
}

}  // namespace
}  // namespace moestro::layers
