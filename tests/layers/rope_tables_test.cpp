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

TEST(RopeTables, NoneGivesNoTables) {
  model::Rope rope{.rotary_dim = 8};
  rope.kind = model::RopeKind::none;
  EXPECT_FALSE(make_rope_tables(rope, 4).cos.defined());
}

}  // namespace
}  // namespace moestro::layers
