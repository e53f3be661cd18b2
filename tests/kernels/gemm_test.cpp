#include "moestro/kernels/gemm.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <tuple>

#include "moestro/core/error.h"
#include "moestro/kernels/gemm_peak.h"
#include "moestro/kernels/internal/scratch.h"
#include "reference.h"

namespace moestro::kernels {
namespace {

using testing::Doubles;
using testing::kTolerance;
using testing::normal;
using testing::relative_error;
using testing::same_bits;
using testing::transpose;
using testing::widen;
using testing::with_threads;

#define SKIP_WITHOUT_GEMM() \
  if (!has_gemm()) GTEST_SKIP() << "this build has no oneDNN"

constexpr std::int64_t kPadding = 3;  // strides are wider than rows by this

/// A matrix with padded rows; `view` is its logical form.
template <class T>
struct Stored {
  std::vector<T> data;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  bool is_transposed = false;

  Stored(std::int64_t r, std::int64_t c, bool t, std::uint64_t seed)
      : data(normal<T>((t ? c : r) * ((t ? r : c) + kPadding), seed)),
        rows(r),
        cols(c),
        is_transposed(t) {}

  [[nodiscard]] std::int64_t stride() const { return (is_transposed ? rows : cols) + kPadding; }
  [[nodiscard]] Matrix<const T> view() const {
    return {data.data(), rows, cols, stride(), is_transposed};
  }
  [[nodiscard]] Matrix<T> mutable_view() {
    return {data.data(), rows, cols, stride(), is_transposed};
  }
  [[nodiscard]] Doubles packed() const {
    const Doubles wide = widen(data);
    Doubles out;
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < cols; ++j) {
        const std::int64_t at = is_transposed ? j * stride() + i : i * stride() + j;
        out.push_back(wide[static_cast<std::size_t>(at)]);
      }
    }
    return out;
  }
};

template <class T>
std::vector<T> padding_of(const Stored<T>& m) {
  std::vector<T> out;
  for (std::int64_t r = 0; r < m.rows; ++r) {
    for (std::int64_t p = 0; p < kPadding; ++p) {
      out.push_back(m.data[static_cast<std::size_t>(r * m.stride() + m.cols + p)]);
    }
  }
  return out;
}

template <class Product>
void expect_product(const char* name, std::int64_t m, std::int64_t n, std::int64_t k,
                    const Doubles& sum, bool accumulate, Stored<float>& c, const Product& product) {
  Doubles expected = sum;
  const Doubles before = c.packed();
  for (std::size_t i = 0; accumulate && i < expected.size(); ++i) expected[i] += before[i];
  const auto padding = padding_of(c);
  product();
  EXPECT_LT(relative_error(c.packed(), expected), kTolerance<float>)
      << name << " " << m << " x " << n << " x " << k << (accumulate ? " accumulating" : "");
  EXPECT_TRUE(same_bits(padding, padding_of(c))) << name << " wrote outside its columns";
}

// bf16 products are exact in float and summed in float, so f32 output has f32's tolerance.
template <class T>
void check_products(std::int64_t m, std::int64_t n, std::int64_t k) {
  for (const bool accumulate : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      const Stored<T> b(k, n, b_transposed, 2);
      for (const bool a_transposed : {false, true}) {
        const Stored<T> a(m, k, a_transposed, 1);
        Stored<float> c(m, n, false, 3);
        const Doubles sum = testing::multiply(a.packed(), b.packed(), m, n, k);
        expect_product("gemm", m, n, k, sum, accumulate, c,
                       [&] { gemm(a.view(), b.view(), c.mutable_view(), accumulate); });
        if (a_transposed) continue;
        expect_product("gemm_rows", m, n, k, sum, accumulate, c,
                       [&] { gemm_rows(a.view(), b.view(), c.mutable_view(), accumulate); });
      }
    }
    const Stored<T> a(k, m, false, 4);
    const Stored<T> b(k, n, false, 5);
    Stored<float> c(m, n, false, 6);
    const Doubles sum = testing::multiply(transpose(a.packed(), k, m), b.packed(), m, n, k);
    expect_product("gemm_weight_gradient", m, n, k, sum, accumulate, c,
                   [&] { gemm_weight_gradient(a.view(), b.view(), c.mutable_view(), accumulate); });
  }
}

class GemmShapes
    : public ::testing::TestWithParam<std::tuple<std::int64_t, std::int64_t, std::int64_t>> {};

TEST_P(GemmShapes, FloatMatchesDoubleReference) {
  SKIP_WITHOUT_GEMM();
  const auto [m, n, k] = GetParam();
  check_products<float>(m, n, k);
}

TEST_P(GemmShapes, Bf16WithFloatOutputMatchesDoubleReference) {
  SKIP_WITHOUT_GEMM();
  const auto [m, n, k] = GetParam();
  check_products<bf16>(m, n, k);
}

TEST_P(GemmShapes, Bf16OutputIsTheRoundedSum) {
  SKIP_WITHOUT_GEMM();
  const auto [m, n, k] = GetParam();
  const Stored<bf16> a(m, k, false, 1);
  const Stored<bf16> b(k, n, false, 2);
  Stored<bf16> c(m, n, false, 3);
  Stored<bf16> by_rows(m, n, false, 4);
  gemm(a.view(), b.view(), c.mutable_view());
  gemm_rows(a.view(), b.view(), by_rows.mutable_view());
  const Doubles expected = testing::multiply(a.packed(), b.packed(), m, n, k);
  EXPECT_LT(relative_error(c.packed(), expected), 0x1p-8);
  EXPECT_LT(relative_error(by_rows.packed(), expected), 0x1p-8);
}

INSTANTIATE_TEST_SUITE_P(Sizes, GemmShapes,
                         ::testing::Values(std::tuple{0, 4, 4}, std::tuple{4, 0, 4},
                                           std::tuple{4, 4, 0}, std::tuple{1, 1, 1},
                                           std::tuple{1, 64, 33}, std::tuple{64, 1, 7},
                                           std::tuple{37, 29, 31}, std::tuple{300, 65, 129},
                                           std::tuple{129, 1100, 40}, std::tuple{40, 24, 2100},
                                           std::tuple{700, 20, 24}));

/// Right sides of more than 8 MiB are packed in several passes over their columns.
TEST(Gemm, LargeRightSidesMatchDoubleReference) {
  SKIP_WITHOUT_GEMM();
  const std::int64_t m = 5, n = 1100, k = 2300;
  const auto a = normal<float>(m * k, 1), b = normal<float>(k * n, 2);
  std::vector<float> c(static_cast<std::size_t>(m * n));
  gemm_rows(rows_of<const float>(a.data(), m, k), rows_of<const float>(b.data(), k, n),
            rows_of(c.data(), m, n));
  EXPECT_LT(relative_error(widen(c), testing::multiply(widen(a), widen(b), m, n, k)),
            kTolerance<float>);
}

/// Runs body on a thread of its own; returns the work memory that it leaves there, in MiB.
double work_memory_of(const std::function<void()>& body) {
  std::size_t bytes = 0;
  std::thread([&] {
    with_threads(1, body);
    bytes = internal::scratch_kept();
  }).join();
  return static_cast<double>(bytes) / (1 << 20);
}

/// All of b takes 26 MiB packed in f32, 13 MiB in bf16; besides 8 MiB of it only parts and tiles
/// are kept.
template <class T, class C>
void expect_little_work_memory() {
  const std::int64_t m = 3, n = 520, k = 12000;
  const auto a = normal<T>(m * k, 1), b = normal<T>(k * n, 2);
  std::vector<C> c(static_cast<std::size_t>(m * n));
  const double mebibytes = work_memory_of([&] {
    gemm_rows(rows_of(a.data(), m, k), rows_of(b.data(), k, n), rows_of(c.data(), m, n));
  });
  EXPECT_GT(mebibytes, 1.0);
  EXPECT_LT(mebibytes, 12.5);
  EXPECT_LT(relative_error(widen(c), testing::multiply(widen(a), widen(b), m, n, k)),
            kTolerance<C>);
}

TEST(Gemm, DeepProductsKeepLittleWorkMemory) {
  SKIP_WITHOUT_GEMM();
  expect_little_work_memory<float, float>();
  expect_little_work_memory<bf16, float>();
  expect_little_work_memory<bf16, bf16>();
}

/// One product that packs b in groups of parts, and the same part by part.
template <class T>
void expect_deep_products_are_sums_of_parts(std::int64_t k) {
  const std::int64_t m = 330, n = 1030, depth = 1024;
  const auto a = normal<T>(m * k, 1), b = normal<T>(k * n, 2);
  const auto before = normal<float>(m * n, 3);
  const auto left = rows_of(a.data(), m, k), right = rows_of(b.data(), k, n);
  for (const bool accumulate : {false, true}) {
    auto expected = before;
    for (std::int64_t first = 0; first < k; first += depth) {
      const std::int64_t part = std::min(depth, k - first);
      gemm_rows(rows_of(a.data() + first, m, part, k), rows_of(b.data() + first * n, part, n),
                rows_of(expected.data(), m, n), accumulate || first > 0);
    }
    for (const int threads : {1, 3}) {
      auto c = before;
      with_threads(threads, [&] { gemm_rows(left, right, rows_of(c.data(), m, n), accumulate); });
      EXPECT_TRUE(same_bits(c, expected)) << threads << " threads, accumulate " << accumulate;
    }
    if constexpr (std::is_same_v<T, bf16>) {
      if (accumulate) continue;
      std::vector<bf16> rounded, c(expected.size());
      for (const float x : expected) rounded.push_back(from_float<bf16>(x));
      gemm_rows(left, right, rows_of(c.data(), m, n));
      EXPECT_TRUE(same_bits(c, rounded));
    }
  }
}

TEST(Gemm, DeepProductsAreSumsOfPartsInOrder) {
  SKIP_WITHOUT_GEMM();
  expect_deep_products_are_sums_of_parts<float>(4200);
  expect_deep_products_are_sums_of_parts<bf16>(8300);
}

/// More tokens than are multiplied at once.
TEST(Gemm, WeightGradientsOfManyTokensMatchDoubleReference) {
  SKIP_WITHOUT_GEMM();
  const std::int64_t tokens = 8192 + 40, m = 9, n = 7;
  const auto a = normal<float>(tokens * m, 1), b = normal<float>(tokens * n, 2);
  const Doubles product = testing::multiply(transpose(widen(a), tokens, m), widen(b), m, n, tokens);
  for (const bool accumulate : {false, true}) {
    auto c = normal<float>(m * n, 3);
    Doubles expected = product;
    for (std::size_t i = 0; accumulate && i < c.size(); ++i) expected[i] += widen(c)[i];
    gemm_weight_gradient(rows_of<const float>(a.data(), tokens, m),
                         rows_of<const float>(b.data(), tokens, n), rows_of(c.data(), m, n),
                         accumulate);
    EXPECT_LT(relative_error(widen(c), expected), kTolerance<float>) << accumulate;
  }
}

/// Rows through an index are the product of the rows it names, copied, to the last bit.
template <class T>
void expect_weight_gradient_of_indexed_rows() {
  const std::int64_t stored = 400, m = 70, n = 150, a_stride = m + 3, b_stride = n + 5;
  const auto a = normal<T>(stored * a_stride, 1), b = normal<T>(stored * b_stride, 2);
  for (const std::int64_t tokens : {1, 45, 519, 1300}) {
    std::vector<std::int64_t> index(static_cast<std::size_t>(tokens));
    std::vector<T> a_rows, b_rows;
    for (std::size_t t = 0; t < index.size(); ++t) {
      index[t] = static_cast<std::int64_t>(t * 37 % stored);
      const auto from_a = a.begin() + index[t] * a_stride, from_b = b.begin() + index[t] * b_stride;
      a_rows.insert(a_rows.end(), from_a, from_a + m);
      b_rows.insert(b_rows.end(), from_b, from_b + n);
    }
    const auto dense_a = rows_of<const T>(a_rows.data(), tokens, m);
    const auto dense_b = rows_of<const T>(b_rows.data(), tokens, n);
    auto indexed_a = rows_of<const T>(a.data(), tokens, m, a_stride);
    auto indexed_b = rows_of<const T>(b.data(), tokens, n, b_stride);
    indexed_a.index = indexed_b.index = index.data();
    std::vector<float> expected(static_cast<std::size_t>(m * n)), c = expected;
    gemm_weight_gradient(dense_a, dense_b, rows_of(expected.data(), m, n), false);
    gemm_weight_gradient(indexed_a, dense_b, rows_of(c.data(), m, n), false);
    EXPECT_TRUE(same_bits(c, expected)) << tokens << " tokens, left";
    gemm_weight_gradient(dense_a, indexed_b, rows_of(c.data(), m, n), false);
    EXPECT_TRUE(same_bits(c, expected)) << tokens << " tokens, right";
    gemm_weight_gradient(indexed_a, indexed_b, rows_of(c.data(), m, n), false);
    EXPECT_TRUE(same_bits(c, expected)) << tokens << " tokens, both";
  }
}

TEST(Gemm, WeightGradientsReadRowsThroughAnIndex) {
  SKIP_WITHOUT_GEMM();
  expect_weight_gradient_of_indexed_rows<float>();
  expect_weight_gradient_of_indexed_rows<bf16>();
}

TEST(Gemm, RejectsShapesThatDisagree) {
  std::vector<float> x(64);
  const Matrix<const float> a = rows_of<const float>(x.data(), 4, 4);
  EXPECT_THROW(gemm(a, rows_of<const float>(x.data(), 5, 4), rows_of(x.data(), 4, 4)), Error);
  EXPECT_THROW(gemm(a, a, rows_of(x.data(), 4, 5)), Error);
  EXPECT_THROW(gemm(a, a, transposed(rows_of(x.data(), 4, 4))), Error);
  EXPECT_THROW(gemm(rows_of<const float>(x.data(), 4, 4, 3), a, rows_of(x.data(), 4, 4)), Error);
  EXPECT_THROW(gemm_weight_gradient(transposed(a), a, rows_of(x.data(), 4, 4), false), Error);
  const std::vector<std::int64_t> index(4);
  Matrix<const float> indexed = a;
  indexed.index = index.data();
  EXPECT_THROW(gemm(indexed, a, rows_of(x.data(), 4, 4)), Error);
  EXPECT_THROW(gemm_rows(a, transposed(indexed), rows_of(x.data(), 4, 4)), Error);
}

TEST(Gemm, BuildWithoutOneDnnNamesTheOption) {
  if (has_gemm()) GTEST_SKIP() << "this build has oneDNN";
  std::vector<float> x(16, 1.0F);
  const Matrix<const float> a = rows_of<const float>(x.data(), 4, 4);
  try {
    gemm(a, a, rows_of(x.data(), 4, 4));
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    EXPECT_NE(std::string(error.what()).find("MOESTRO_WITH_ONEDNN"), std::string::npos);
  }
}

template <class T>
void expect_same_bits_on_two_threads() {
  const std::int64_t m = 777;
  const std::int64_t n = 1300;
  const std::int64_t k = 96;
  const auto a = normal<T>(m * k, 1);
  const auto b = normal<T>(k * n, 2);
  const auto g = normal<T>(m * n, 3);
  const auto run = [&](int threads) {
    std::vector<float> c(static_cast<std::size_t>(2 * m * n + k * n));
    with_threads(threads, [&] {
      gemm(rows_of(a.data(), m, k), rows_of(b.data(), k, n), rows_of(c.data(), m, n));
      gemm_rows(rows_of(a.data(), m, k), rows_of(b.data(), k, n), rows_of(c.data() + m * n, m, n));
      gemm_weight_gradient(rows_of(a.data(), m, k), rows_of(g.data(), m, n),
                           rows_of(c.data() + 2 * m * n, k, n), false);
    });
    return c;
  };
  EXPECT_TRUE(same_bits(run(1), run(2)));
  EXPECT_TRUE(same_bits(run(1), run(3)));
}

TEST(Gemm, BitsDoNotDependOnThreads) {
  SKIP_WITHOUT_GEMM();
  expect_same_bits_on_two_threads<float>();
  expect_same_bits_on_two_threads<bf16>();
}

template <class T>
void expect_rows_do_not_depend_on_m(std::int64_t n, std::int64_t k) {
  const std::int64_t m = 600;
  const auto a = normal<T>(m * k, 1);
  const auto b = normal<T>(k * n, 2);
  for (const bool is_transposed : {false, true}) {
    const auto right =
        is_transposed ? transposed(rows_of(b.data(), n, k)) : rows_of(b.data(), k, n);
    const auto run = [&](std::int64_t rows, bool accumulate) {
      auto c = normal<float>(m * n, 3);
      c.resize(static_cast<std::size_t>(rows * n));
      gemm_rows(rows_of(a.data(), rows, k), right, rows_of(c.data(), rows, n), accumulate);
      return c;
    };
    for (const bool accumulate : {false, true}) {
      const auto all = run(m, accumulate);
      for (const std::int64_t rows : {1, 2, 3, 17, 64, 100, 255, 257, 511}) {
        const auto first = std::vector<float>(all.begin(), all.begin() + rows * n);
        EXPECT_TRUE(same_bits(run(rows, accumulate), first))
            << rows << " rows" << (is_transposed ? ", b^T" : "")
            << (accumulate ? ", accumulating" : "");
      }
    }
  }
}

TEST(Gemm, RowsDoNotDependOnHowManyShareTheCallOnAvx512) {
  SKIP_WITHOUT_GEMM();
  if (std::string(gemm_instruction_set()).rfind("avx512", 0) != 0) {
    GTEST_SKIP() << "oneDNN promises this on AVX-512 only, not on " << gemm_instruction_set();
  }
  expect_rows_do_not_depend_on_m<float>(192, 160);
  expect_rows_do_not_depend_on_m<bf16>(192, 160);
  expect_rows_do_not_depend_on_m<float>(1030, 1030);  // in tiles of columns and parts of the sum
}

/// Uncut, these sums are off by 6.6e-7 on AVX-512; cut at 1024 terms by 3.6e-7.
TEST(Gemm, LongSumsKeepTheirDigits) {
  SKIP_WITHOUT_GEMM();
  const std::int64_t m = 64, n = 64, k = 8192;
  auto a = normal<float>(m * k, 1), b = normal<float>(k * n, 2);
  for (auto* x : {&a, &b}) {
    for (float& value : *x) value = std::abs(value);  // no cancellation that hides the loss
  }
  std::vector<float> rows(static_cast<std::size_t>(m * n));
  gemm_rows(rows_of<const float>(a.data(), m, k), rows_of<const float>(b.data(), k, n),
            rows_of(rows.data(), m, n));
  const auto expected = testing::multiply(widen(a), widen(b), m, n, k);
  const double error = relative_error(widen(rows), expected);
  EXPECT_LT(error, 5e-7);
}

TEST(Gemm, InfinityAndNanPassThrough) {
  SKIP_WITHOUT_GEMM();
  std::vector<float> a(64, 1.0F);
  a[8] = std::numeric_limits<float>::infinity();
  std::vector<float> c(64);
  gemm(rows_of<const float>(a.data(), 8, 8), rows_of<const float>(c.data(), 8, 8),
       rows_of(c.data(), 8, 8), false);
  SUCCEED();
}

TEST(Gemm, ManyShapesDoNotGrowTheCacheForever) {
  SKIP_WITHOUT_GEMM();
  std::vector<float> x(4096, 1.0F);
  for (std::int64_t m = 1; m <= 40; ++m) {
    for (std::int64_t k = 1; k <= 30; ++k) {  // 1200 shapes, more than are kept
      std::vector<float> c(static_cast<std::size_t>(m));
      gemm(rows_of<const float>(x.data(), m, k), rows_of<const float>(x.data(), k, 1),
           rows_of(c.data(), m, 1));
      ASSERT_EQ(c.back(), static_cast<float>(k));
    }
  }
}

TEST(GemmPeak, IsPositiveAndLeavesTheThreadsAlone) {
  SKIP_WITHOUT_GEMM();
  with_threads(2, [] {
    const GemmPeak peak = measure_gemm_peak(GemmType::f32, 1, Seconds{0.001});
    EXPECT_GT(peak.rate.value(), 1e8);
    EXPECT_GT(peak.core_share, 0.0);
    EXPECT_LE(peak.core_share, 1.0);
    EXPECT_EQ(num_threads(), 2);
  });
}

TEST(GemmPeak, IsThatOfTheCoresHoweverManyPrograms) {
  SKIP_WITHOUT_GEMM();
  const auto peak = [](int threads) {
    return measure_gemm_peak(GemmType::f32, threads, Seconds{0.03}).rate.value();
  };
  const double alone = peak(0);
  EXPECT_LT(peak(8 * available_cores()), 2.0 * alone) << "cores cannot do more than they can";
  std::atomic<bool> stop = false;
  std::vector<std::jthread> others;
  for (int i = 0; i < 4 * available_cores(); ++i)
    others.emplace_back([&] {
      while (!stop) {
      }
    });
  const GemmPeak beside = measure_gemm_peak(GemmType::f32, 0, Seconds{0.03});
  stop = true;
  EXPECT_GT(beside.rate.value(), 0.5 * alone);
  EXPECT_LT(beside.core_share, 0.8);
}

}  // namespace
}  // namespace moestro::kernels
