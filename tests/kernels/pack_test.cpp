#include "moestro/kernels/internal/pack.h"

#include <gtest/gtest.h>

#include <tuple>

#include "reference.h"

namespace moestro::kernels::internal {
namespace {

using testing::normal;
using testing::same_bits;

/// b(k, n) of the packed layout, by its definition.
template <class T>
T panel_entry(const std::vector<T>& packed, std::int64_t rows, std::int64_t k, std::int64_t n) {
  constexpr std::int64_t kPair = 4 / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t panel = n / kPanelColumns * panel_rows<T>(rows) * kPanelColumns;
  const std::int64_t group = k / kPair * kPanelColumns * kPair;
  return packed[static_cast<std::size_t>(panel + group + n % kPanelColumns * kPair + k % kPair)];
}

template <class T>
class Pack : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(Pack, Types);

TYPED_TEST(Pack, PanelsHoldEveryEntryAndZerosElsewhere) {
  using T = TypeParam;
  for (const auto& [given, k, n] :
       {std::tuple{1, 1, 1}, std::tuple{33, 33, 70}, std::tuple{64, 64, 64},
        std::tuple{100, 100, 17}, std::tuple{31, 31, 129}, std::tuple{33, 96, 70},
        std::tuple{1, 64, 64}}) {
    for (const bool is_transposed : {false, true}) {
      const std::int64_t stride = (is_transposed ? given : n) + 3;
      const auto data = normal<T>((is_transposed ? n : given) * stride, 1);
      const Matrix<const T> b{data.data(), given, n, stride, is_transposed};
      const std::int64_t rows = panel_rows<T>(k);
      const std::int64_t cols = (n + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
      std::vector<T> packed(static_cast<std::size_t>(rows * cols), from_float<T>(7.0F));
      pack_panels(b, k, packed.data());
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < cols; ++j) {
          const bool exists = i < given && j < n;
          const std::int64_t at = is_transposed ? j * stride + i : i * stride + j;
          const float expected = exists ? to_float(data[static_cast<std::size_t>(at)]) : 0.0F;
          ASSERT_EQ(to_float(panel_entry(packed, k, i, j)), expected)
              << given << " of " << k << " x " << n << ": " << i << ", " << j
              << (is_transposed ? " of b^T" : "");
        }
      }
    }
  }
}

TYPED_TEST(Pack, TransposedRowsEndInZeros) {
  using T = TypeParam;
  for (const auto& [tokens, width, cols] :
       {std::tuple{1, 1, 32}, std::tuple{32, 16, 32}, std::tuple{45, 50, 64}}) {
    const std::int64_t stride = width + 5;
    const auto a = normal<T>(tokens * stride, 2);
    std::vector<T> out(static_cast<std::size_t>(width * cols), from_float<T>(7.0F));
    std::vector<T> expected(out.size(), from_float<T>(0.0F));
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t m = 0; m < width; ++m) {
        expected[static_cast<std::size_t>(m * cols + t)] =
            a[static_cast<std::size_t>(t * stride + m)];
      }
    }
    transpose_rows(Matrix<const T>{a.data(), tokens, width, stride, false}, cols, out.data());
    EXPECT_TRUE(same_bits(out, expected)) << tokens << " x " << width;
  }
}

}  // namespace
}  // namespace moestro::kernels::internal
