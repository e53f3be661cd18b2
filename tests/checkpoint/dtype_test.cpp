#include "moestro/checkpoint/dtype.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "moestro/core/error.h"

namespace moestro::checkpoint {
namespace {

using testing::ElementsAre;

template <class T>
std::vector<float> floats_of(Dtype dtype, const std::vector<T>& values) {
  std::vector<float> out(values.size());
  to_floats(dtype, std::as_bytes(std::span(values)), out);
  return out;
}

/// The value of a half by its definition (IEEE 754 binary16).
float half_by_definition(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0F : 1.0F;
  if (exponent == 31) {
    return mantissa == 0 ? sign * std::numeric_limits<float>::infinity() : std::nanf("");
  }
  const int whole = exponent == 0 ? mantissa : mantissa + 1024;
  return sign * std::ldexp(static_cast<float>(whole), (exponent == 0 ? 1 : exponent) - 25);
}

TEST(Dtype, EveryHalfHasItsValue) {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  const std::vector<float> values = floats_of(Dtype::f16, halves);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const float expected = half_by_definition(halves[i]);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(values[i])) << i;
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(expected))
          << i;
    }
  }
}

TEST(Dtype, EveryBf16SurvivesAsFloat) {
  std::vector<std::uint16_t> stored(65536);
  for (std::size_t i = 0; i < stored.size(); ++i) stored[i] = static_cast<std::uint16_t>(i);
  std::vector<std::uint16_t> again(stored.size());
  from_floats(Dtype::bf16, floats_of(Dtype::bf16, stored),
              std::as_writable_bytes(std::span(again)));
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const bool is_nan = (i & 0x7FFF) > 0x7F80;
    EXPECT_EQ(again[i], is_nan ? (i | 0x40) : i);
  }
}

TEST(Dtype, Bf16RoundsToNearestTiesToEven) {
  const auto round = [](float value) {
    std::vector<std::uint16_t> stored(1);
    from_floats(Dtype::bf16, std::vector<float>{value}, std::as_writable_bytes(std::span(stored)));
    return floats_of(Dtype::bf16, stored)[0];
  };
  EXPECT_EQ(round(1.0F + 0x1p-8F), 1.0F);                       // tie, down to even
  EXPECT_EQ(round(1.0F + 0x3p-8F), 1.0F + 0x1p-6F);             // tie, up to even
  EXPECT_EQ(round(1.0F + 0x1p-8F + 0x1p-20F), 1.0F + 0x1p-7F);  // above the tie
  EXPECT_EQ(round(std::numeric_limits<float>::max()), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(round(std::bit_cast<float>(0x7FFFFFFFU))));
  EXPECT_TRUE(std::isnan(round(std::bit_cast<float>(0xFF800001U))));
  const bool holds = rc::check("no neighbour is nearer", [] {
    const auto bits = *rc::gen::inRange<std::uint32_t>(0, 0x7F7F0000U);
    const auto value = std::bit_cast<float>(bits);
    std::vector<std::uint16_t> stored(1);
    from_floats(Dtype::bf16, std::vector<float>{value}, std::as_writable_bytes(std::span(stored)));
    const double error = std::abs(static_cast<double>(floats_of(Dtype::bf16, stored)[0]) -
                                  static_cast<double>(value));
    for (const int step : {-1, 1}) {
      if (step < 0 && stored[0] == 0) continue;
      const auto bits_beside = static_cast<std::uint32_t>(stored[0] + step) << 16;
      const auto neighbour = static_cast<double>(std::bit_cast<float>(bits_beside));
      RC_ASSERT(error <= std::abs(neighbour - static_cast<double>(value)));
    }
  });
  EXPECT_TRUE(holds);
}

TEST(Dtype, ReadsDoublesAndUnalignedFloats) {
  EXPECT_THAT(floats_of(Dtype::f64, std::vector<double>{0.1, -2.0}), ElementsAre(0.1F, -2.0F));
  std::vector<std::byte> bytes(9);
  const float value = 1.5F;
  std::memcpy(bytes.data() + 1, &value, 4);
  std::vector<float> out(2);
  to_floats(Dtype::f32, std::span(bytes).subspan(1), out);
  EXPECT_THAT(out, ElementsAre(1.5F, 0.0F));
}

TEST(Dtype, ReadsWholeNumbersWithTheirSign) {
  const auto integers_of = [](Dtype dtype, const auto& values) {
    std::vector<std::int64_t> out(values.size());
    to_integers(dtype, std::as_bytes(std::span(values)), out);
    return out;
  };
  EXPECT_THAT(integers_of(Dtype::i64, std::vector<std::int64_t>{-5, 7}), ElementsAre(-5, 7));
  EXPECT_THAT(integers_of(Dtype::i32, std::vector<std::int32_t>{-5, 7}), ElementsAre(-5, 7));
  EXPECT_THAT(integers_of(Dtype::i8, std::vector<std::int8_t>{-5, 7}), ElementsAre(-5, 7));
  EXPECT_THAT(integers_of(Dtype::u8, std::vector<std::uint8_t>{255}), ElementsAre(255));
  EXPECT_THAT(integers_of(Dtype::u16, std::vector<std::uint16_t>{65535}), ElementsAre(65535));
  EXPECT_THAT(integers_of(Dtype::u32, std::vector<std::uint32_t>{4294967295U}),
              ElementsAre(4294967295));
}

TEST(Dtype, NamesReadBack) {
  for (int i = 0; i <= static_cast<int>(Dtype::u64); ++i) {
    const auto dtype = static_cast<Dtype>(i);
    EXPECT_EQ(dtype_from_string(to_string(dtype)), dtype);
  }
  EXPECT_EQ(dtype_from_string("f32"), std::nullopt);
  EXPECT_EQ(dtype_from_string(""), std::nullopt);
}

TEST(Dtype, RefusesSizesThatDiffer) {
  std::vector<std::byte> bytes(7);
  std::vector<float> out(2);
  EXPECT_THROW(to_floats(Dtype::f32, bytes, out), Error);
  EXPECT_THROW(to_floats(Dtype::u8, std::span(bytes).first(2), out), Error);
  EXPECT_THROW(from_floats(Dtype::bf16, out, bytes), Error);
}

}  // namespace
}  // namespace moestro::checkpoint
