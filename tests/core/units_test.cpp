#include "moestro/core/units.h"

#include <gtest/gtest.h>

#include <type_traits>

namespace moestro {
namespace {

template <class A, class B>
concept Addable = requires(A a, B b) {
  a + b;
};
static_assert(Addable<Seconds, Seconds>);
static_assert(!Addable<Seconds, Bytes>, "units must not mix");
static_assert(!std::is_convertible_v<double, Seconds>, "a bare number has no unit");

TEST(Units, AddAndScale) {
  Seconds t = Seconds(1.0) + 2.0 * Seconds(3.0) - Seconds(0.5);
  t += Seconds(1.0);
  EXPECT_DOUBLE_EQ(t.value(), 7.5);
  EXPECT_DOUBLE_EQ(Seconds(6.0) / Seconds(2.0), 3.0);
  EXPECT_LT(Seconds(1.0), Seconds(2.0));
}

TEST(Units, DivideIntoRatesAndBack) {
  const FlopsPerSecond rate = Flops(6e9) / Seconds(2.0);
  EXPECT_DOUBLE_EQ(rate.value(), 3e9);
  EXPECT_DOUBLE_EQ((Flops(6e9) / rate).value(), 2.0);
  EXPECT_DOUBLE_EQ((Bytes(10.0) / (Bytes(5.0) / Seconds(1.0))).value(), 2.0);
}

TEST(Units, PrintAtLeastThreeDigitsAndTheUnit) {
  EXPECT_EQ(to_string(Bytes(1536.0 * 1024 * 1024)), "1.50 GiB");
  EXPECT_EQ(to_string(Seconds(0.012)), "12.00 ms");
  EXPECT_EQ(to_string(Seconds(2.5e-6)), "2.50 us");
  EXPECT_EQ(to_string(Seconds(0.0)), "0.00 s");
  EXPECT_EQ(to_string(FlopsPerSecond(1.05e9)), "1.05 GFLOP/s");
  EXPECT_EQ(to_string(BytesPerSecond(25e9)), "25.0 GB/s");
  EXPECT_EQ(to_string(Bytes(0.0)), "0.00 B");
}

}  // namespace
}  // namespace moestro
