#include "moestro/kernels/adamw.h"

#include <gtest/gtest.h>

#include <cmath>

#include "moestro/core/error.h"
#include "reference.h"

namespace moestro::kernels {
namespace {

using testing::Doubles;
using testing::normal;
using testing::relative_error;
using testing::same_bits;
using testing::widen;
using testing::with_threads;

/// Algorithm 2 of Loshchilov and Hutter with a constant schedule, in double.
struct Reference {
  Doubles w, m, v;

  void step(const AdamwStep& s, const Doubles& g) {
    const double bias1 = 1.0 - std::pow(static_cast<double>(s.beta1), static_cast<double>(s.step));
    const double bias2 = 1.0 - std::pow(static_cast<double>(s.beta2), static_cast<double>(s.step));
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double slope = g[i] * static_cast<double>(s.gradient_scale);
      m[i] += (1.0 - s.beta1) * (slope - m[i]);
      v[i] += (1.0 - s.beta2) * (slope * slope - v[i]);
      w[i] *= 1.0 - static_cast<double>(s.lr) * static_cast<double>(s.weight_decay);
      w[i] -= s.lr * (m[i] / bias1) / (std::sqrt(v[i] / bias2) + static_cast<double>(s.epsilon));
    }
  }
};

TEST(Adamw, MatchesDoubleReferenceOverManySteps) {
  for (const std::int64_t n : {0, 1, 33, 40000}) {
    auto w = normal<float>(n, 1);
    std::vector<float> m(w.size()), v(w.size());
    std::vector<bf16> rounded(w.size());
    Reference reference{widen(w), Doubles(w.size()), Doubles(w.size())};
    AdamwStep step{1e-2F, 0.9F, 0.95F, 1e-8F, 0.1F, 0.5F, 1};
    for (step.step = 1; step.step <= 20; ++step.step) {
      const auto g = normal<float>(n, 100 + static_cast<std::uint64_t>(step.step), 1e-3);
      adamw(step, n, w.data(), g.data(), m.data(), v.data(), rounded.data());
      reference.step(step, widen(g));
    }
    EXPECT_LT(relative_error(w, reference.w), 1e-6);
    EXPECT_LT(relative_error(m, reference.m), 1e-6);
    EXPECT_LT(relative_error(v, reference.v), 1e-6);
    for (std::size_t i = 0; i < w.size(); ++i) {
      ASSERT_EQ(rounded[i].bits, from_float<bf16>(w[i]).bits);
    }
  }
}

TEST(Adamw, DecayIsDecoupledFromTheGradient) {
  std::vector<float> w = {2.0F};
  std::vector<float> g = {0.0F}, m = {0.0F}, v = {0.0F};
  adamw({0.1F, 0.9F, 0.95F, 1e-8F, 0.5F, 1.0F, 1}, 1, w.data(), g.data(), m.data(), v.data(),
        nullptr);
  EXPECT_FLOAT_EQ(w[0], 2.0F * (1.0F - 0.1F * 0.5F));
  EXPECT_EQ(m[0], 0.0F);
}

TEST(Adamw, RejectsStepZero) {
  EXPECT_THROW(adamw({0.1F, 0.9F, 0.95F, 1e-8F, 0.0F, 1.0F, 0}, 0, nullptr, nullptr, nullptr,
                     nullptr, nullptr),
               Error);
}

TEST(SumOfSquares, MatchesDoubleSumAndDoesNotDependOnThreads) {
  for (const std::int64_t n : {0, 1, 3, 1001, 16384, 100003}) {
    const auto x = normal<float>(n, 1);
    double expected = 0.0;
    for (const double value : widen(x)) expected += value * value;
    double one = 0.0;
    double two = 0.0;
    with_threads(1, [&] { one = sum_of_squares(n, x.data()); });
    with_threads(2, [&] { two = sum_of_squares(n, x.data()); });
    EXPECT_NEAR(one, expected, 1e-12 * expected);
    EXPECT_EQ(one, two);
  }
}

TEST(Conversion, ToBf16RoundsOnce) {
  const auto x = normal<float>(40001, 1);
  std::vector<bf16> rounded(x.size());
  to_bf16(40001, x.data(), rounded.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(to_float(rounded[i]), to_float(from_float<bf16>(x[i])));
  }
}

}  // namespace
}  // namespace moestro::kernels
