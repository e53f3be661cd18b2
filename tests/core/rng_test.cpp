#include "moestro/core/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "moestro/core/error.h"

namespace moestro {
namespace {

constexpr int kDraws = 20000;

// SplitMix64 seeds and xoshiro256** steps, computed apart from their published definitions.
TEST(Rng, MatchesThePublishedGenerator) {
  Rng rng(0);
  EXPECT_EQ(rng.next(), 0x99EC5F36CB75F2B4ULL);
  EXPECT_EQ(rng.next(), 0xBF6E1F784956452AULL);
  EXPECT_EQ(rng.next(), 0x1A5F849D4933E6E0ULL);
}

TEST(Rng, RepeatsForTheSameSeedPurposeAndIndex) {
  Rng a(7, "shuffle", 3), b(7, "shuffle", 3);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(a.next(), b.next());
}

TEST(Rng, DiffersBySeedPurposeAndIndex) {
  const std::uint64_t base = Rng(7, "shuffle", 3).next();
  EXPECT_NE(base, Rng(8, "shuffle", 3).next());
  EXPECT_NE(base, Rng(7, "weights", 3).next());
  EXPECT_NE(base, Rng(7, "shuffle", 4).next());
}

TEST(Rng, BelowIsUniform) {
  Rng rng(1);
  std::vector<int> count(7);
  for (int i = 0; i < kDraws; ++i) ++count[rng.below(7)];
  const double mean = kDraws / 7.0;
  for (const int c : count) EXPECT_NEAR(c, mean, 5.0 * std::sqrt(mean));  // five sigma
}

TEST(Rng, BelowOneIsZeroAndBelowZeroIsABug) {
  Rng rng(1);
  EXPECT_EQ(rng.below(1), 0U);
  EXPECT_THROW(static_cast<void>(rng.below(0)), Error);
}

TEST(Rng, UniformStaysInItsRange) {
  Rng rng(2);
  double sum = 0.0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = rng.uniform();
    ASSERT_GE(x, 0.0);
    ASSERT_LT(x, 1.0);
    sum += x;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 5.0 / std::sqrt(12.0 * kDraws));
}

TEST(Rng, NormalHasMeanZeroAndVarianceOne) {
  Rng rng(3);
  double sum = 0.0, squares = 0.0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = rng.normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kDraws, 0.0, 5.0 / std::sqrt(kDraws));
  EXPECT_NEAR(squares / kDraws, 1.0, 5.0 * std::sqrt(2.0 / kDraws));
}

}  // namespace
}  // namespace moestro
