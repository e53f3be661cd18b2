// Kernels that work on rows: norm, rotary embedding, SwiGLU, cross-entropy, embedding.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "moestro/core/error.h"
#include "moestro/kernels/cross_entropy.h"
#include "moestro/kernels/embedding.h"
#include "moestro/kernels/rms_norm.h"
#include "moestro/kernels/rope.h"
#include "moestro/kernels/swiglu.h"
#include "reference.h"

namespace moestro::kernels {
namespace {

using testing::dot;
using testing::Doubles;
using testing::kTolerance;
using testing::normal;
using testing::numeric_gradient;
using testing::relative_error;
using testing::same_bits;
using testing::widen;
using testing::with_threads;

// A central difference with a step of 1e-5 is exact to about 1e-9 here; the kernels' f32 dominates.
constexpr double kGradientTolerance = 1e-6;

Doubles slice(const Doubles& x, std::int64_t begin, std::int64_t count) {
  return {x.begin() + begin, x.begin() + begin + count};
}

// ---- RMSNorm ------------------------------------------------------------------------------------

Doubles rms_norm(const Doubles& x, const Doubles& weight, double epsilon) {
  const double scale = 1.0 / std::sqrt(dot(x, x) / static_cast<double>(x.size()) + epsilon);
  Doubles y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * weight[i];
  return y;
}

template <class T>
struct NormCase {
  NormShape shape;
  std::vector<T> x, dy, y, dx;
  std::vector<float> weight, inverse_rms, d_weight;

  explicit NormCase(const NormShape& s)
      : shape(s),
        x(normal<T>(s.rows * s.in_stride, 1)),
        dy(normal<T>(s.rows * s.out_stride, 2)),
        y(dy.size()),
        dx(x.size()),
        weight(normal<float>(s.width, 3)),
        inverse_rms(static_cast<std::size_t>(s.rows * s.groups)),
        d_weight(static_cast<std::size_t>(s.width), 0.5F) {}

  void run() {
    rms_norm_forward(shape, x.data(), weight.data(), y.data(), inverse_rms.data());
    rms_norm_backward(shape, x.data(), weight.data(), inverse_rms.data(), dy.data(), dx.data(),
                      d_weight.data());
  }
};

template <class T>
void check_rms_norm(const NormShape& s) {
  NormCase<T> c(s);
  c.run();
  const Doubles x = widen(c.x);
  const Doubles dy = widen(c.dy);
  const Doubles weight = widen(c.weight);
  Doubles d_weight(weight.size(), 0.5);  // added to
  for (std::int64_t r = 0; r < s.rows; ++r) {
    for (std::int64_t g = 0; g < s.groups; ++g) {
      const std::int64_t in = r * s.in_stride + g * s.width;
      const std::int64_t out = r * s.out_stride + g * s.width;
      const Doubles row = slice(x, in, s.width);
      const Doubles slope = slice(dy, out, s.width);
      const auto loss = [&](const Doubles& v) {
        return dot(rms_norm(v, weight, s.epsilon), slope);
      };
      const auto weight_loss = [&](const Doubles& w) {
        return dot(rms_norm(row, w, s.epsilon), slope);
      };
      ASSERT_LT(relative_error(slice(widen(c.y), out, s.width), rms_norm(row, weight, s.epsilon)),
                kTolerance<T>);
      ASSERT_LT(relative_error(slice(widen(c.dx), in, s.width), numeric_gradient(loss, row)),
                kTolerance<T>);
      const Doubles part = numeric_gradient(weight_loss, weight);
      for (std::size_t i = 0; i < part.size(); ++i) d_weight[i] += part[i];
    }
  }
  EXPECT_LT(relative_error(c.d_weight, d_weight), kGradientTolerance);
}

TEST(RmsNorm, MatchesReferenceAndFiniteDifferences) {
  for (const std::int64_t width : {2, 7, 64, 129}) {
    check_rms_norm<float>({5, 1, width, width, width, 1e-6F});
    check_rms_norm<bf16>({5, 1, width, width, width, 1e-6F});
  }
  check_rms_norm<float>({131, 1, 24, 24, 24, 1e-5F});  // several blocks of rows
}

TEST(RmsNorm, NormsEachHeadOfStridedRows) {
  check_rms_norm<float>({70, 3, 16, 90, 50, 1e-6F});
  check_rms_norm<bf16>({70, 3, 16, 90, 50, 1e-6F});
}

TEST(RmsNorm, WorksInPlaceForwardAndBackward) {
  const NormShape s{67, 2, 24, 60, 60, 1e-6F};
  NormCase<float> apart(s);
  apart.run();
  NormCase<float> in_place(s);
  auto values = in_place.x;
  rms_norm_forward(s, values.data(), in_place.weight.data(), values.data(),
                   in_place.inverse_rms.data());
  auto slopes = in_place.dy;
  rms_norm_backward(s, in_place.x.data(), in_place.weight.data(), in_place.inverse_rms.data(),
                    slopes.data(), slopes.data(), in_place.d_weight.data());
  EXPECT_TRUE(same_bits(in_place.inverse_rms, apart.inverse_rms));
  EXPECT_TRUE(same_bits(in_place.d_weight, apart.d_weight));
  for (std::int64_t r = 0; r < s.rows; ++r) {
    for (std::int64_t i = 0; i < s.groups * s.width; ++i) {
      const auto at = static_cast<std::size_t>(r * s.in_stride + i);
      ASSERT_EQ(values[at], apart.y[at]);
      ASSERT_EQ(slopes[at], apart.dx[at]);
    }
  }
}

TEST(RmsNorm, LeavesWeightGradientOutWhenNull) {
  const NormShape s{9, 1, 33, 33, 33, 1e-6F};
  NormCase<float> c(s);
  c.run();
  const Doubles with_weight_gradient = widen(c.dx);
  c.dx.assign(c.dx.size(), 0.0F);
  rms_norm_backward(s, c.x.data(), c.weight.data(), c.inverse_rms.data(), c.dy.data(), c.dx.data(),
                    nullptr);
  EXPECT_EQ(widen(c.dx), with_weight_gradient);
}

TEST(RmsNorm, MixedTypesReadAndWriteEach) {
  const NormShape s{3, 1, 40, 40, 40, 1e-6F};
  const auto x = normal<float>(120, 1);
  const auto weight = normal<float>(40, 2);
  std::vector<bf16> rounded(120);
  std::vector<float> exact(120);
  rms_norm_forward(s, x.data(), weight.data(), rounded.data(), nullptr);
  rms_norm_forward(s, x.data(), weight.data(), exact.data(), nullptr);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    EXPECT_EQ(rounded[i].bits, from_float<bf16>(exact[i]).bits);
  }
}

TEST(RmsNorm, BitsDoNotDependOnThreads) {
  NormCase<float> one({500, 1, 96, 96, 96, 1e-6F});
  NormCase<float> two = one;
  with_threads(1, [&] { one.run(); });
  with_threads(2, [&] { two.run(); });
  EXPECT_TRUE(same_bits(one.y, two.y));
  EXPECT_TRUE(same_bits(one.dx, two.dx));
  EXPECT_TRUE(same_bits(one.d_weight, two.d_weight));
}

// ---- RoPE ---------------------------------------------------------------------------------------

template <class T>
void check_rope(const RopeShape& s) {
  const auto before = normal<T>(s.rows * s.stride, 1);
  std::vector<float> cos, sin;
  for (std::int64_t i = 0; i < s.seq * s.half; ++i) {
    cos.push_back(std::cos(0.37F * static_cast<float>(i)));
    sin.push_back(std::sin(0.37F * static_cast<float>(i)));
  }
  Doubles expected = widen(before);
  for (std::int64_t r = 0; r < s.rows; ++r) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      for (std::int64_t i = 0; i < s.half; ++i) {
        const std::int64_t head = r * s.stride + h * s.head_dim;
        const auto a = static_cast<std::size_t>(head + (s.interleaved ? 2 * i : i));
        const auto b = static_cast<std::size_t>(head + (s.interleaved ? 2 * i + 1 : i + s.half));
        const auto at = static_cast<std::size_t>((s.first + r) % s.seq * s.half + i);
        const double x = expected[a];
        const double y = expected[b];
        expected[a] = x * static_cast<double>(cos[at]) - y * static_cast<double>(sin[at]);
        expected[b] = y * static_cast<double>(cos[at]) + x * static_cast<double>(sin[at]);
      }
    }
  }
  auto data = before;
  rope(s, data.data(), cos.data(), sin.data(), false);
  EXPECT_LT(relative_error(data, expected), kTolerance<T>);
  rope(s, data.data(), cos.data(), sin.data(), true);
  EXPECT_LT(relative_error(data, widen(before)), kTolerance<T>) << "inverse";
}

TEST(Rope, RotatesAndTurnsBack) {
  for (const bool interleaved : {false, true}) {
    check_rope<float>({130, 65, 3, 16, 70, 8, interleaved});
    check_rope<bf16>({130, 65, 3, 16, 70, 8, interleaved});
    check_rope<float>({11, 11, 2, 10, 20, 3, interleaved});  // only the first 6 dims
    check_rope<float>({4, 4, 1, 2, 2, 1, interleaved});
    check_rope<float>({30, 13, 2, 8, 16, 4, interleaved, 47});  // rows 47 to 77 of more
  }
}

TEST(Rope, RejectsMoreRotatedDimsThanAHeadHas) {
  float x[4] = {};
  EXPECT_THROW(rope<float>({1, 1, 1, 4, 4, 3, false}, x, x, x, false), Error);
}

// ---- SwiGLU -------------------------------------------------------------------------------------

double swiglu(double gate, double up) {
  return gate / (1.0 + std::exp(-gate)) * up;
}

Doubles swiglu_row(const Doubles& gate_up) {
  const std::size_t width = gate_up.size() / 2;
  Doubles a(width);
  for (std::size_t i = 0; i < width; ++i) a[i] = swiglu(gate_up[i], gate_up[width + i]);
  return a;
}

template <class T>
void check_swiglu(std::int64_t rows, std::int64_t width, bool is_weighted) {
  const auto gate_up = normal<T>(rows * 2 * width, 1, 2.0);
  const auto d_a = normal<T>(rows * width, 2);
  const auto weight = normal<float>(rows, 3);
  std::vector<T> a(d_a.size()), weighted_a(d_a.size()), d_gate_up(gate_up.size());
  std::vector<float> d_weight(weight.size());
  swiglu_forward(rows, width, gate_up.data(), a.data());
  swiglu_backward(rows, width, gate_up.data(), d_a.data(), is_weighted ? weight.data() : nullptr,
                  d_gate_up.data(), weighted_a.data(), is_weighted ? d_weight.data() : nullptr);
  std::vector<T> without_a(d_gate_up.size());
  swiglu_backward<T>(rows, width, gate_up.data(), d_a.data(), is_weighted ? weight.data() : nullptr,
                     without_a.data(), nullptr, nullptr);
  EXPECT_TRUE(same_bits(without_a, d_gate_up));
  for (std::int64_t r = 0; r < rows; ++r) {
    const Doubles row = slice(widen(gate_up), r * 2 * width, 2 * width);
    const Doubles slope = slice(widen(d_a), r * width, width);
    const double w = is_weighted ? static_cast<double>(weight[static_cast<std::size_t>(r)]) : 1.0;
    Doubles expected = swiglu_row(row);
    EXPECT_LT(relative_error(slice(widen(a), r * width, width), expected), kTolerance<T>);
    if (is_weighted) {
      // A sum with cancellation: compared on the scale of its terms.
      double scale = 0.0;
      for (std::size_t i = 0; i < expected.size(); ++i) scale += std::abs(expected[i] * slope[i]);
      EXPECT_NEAR(d_weight[static_cast<std::size_t>(r)], dot(expected, slope), 1e-6 * scale);
    }
    for (double& value : expected) value *= w;
    EXPECT_LT(relative_error(slice(widen(weighted_a), r * width, width), expected), kTolerance<T>);
    const auto loss = [&](const Doubles& x) { return w * dot(swiglu_row(x), slope); };
    EXPECT_LT(relative_error(slice(widen(d_gate_up), r * 2 * width, 2 * width),
                             numeric_gradient(loss, row)),
              kTolerance<T>);
  }
}

TEST(Swiglu, MatchesReferenceAndFiniteDifferences) {
  for (const std::int64_t width : {1, 16, 37, 130, 300}) {
    for (const bool is_weighted : {false, true}) {
      check_swiglu<float>(35, width, is_weighted);
      check_swiglu<bf16>(35, width, is_weighted);
    }
  }
}

TEST(Swiglu, SaturatedGatesStayFinite) {
  const std::vector<float> gate_up = {-1000.0F, 1000.0F, -90.0F, 1.0F, 2.0F, 3.0F};
  const std::vector<float> d_a = {1.0F, 1.0F, 1.0F};
  std::vector<float> a(3), d(6);
  swiglu_forward(1, 3, gate_up.data(), a.data());
  swiglu_backward<float>(1, 3, gate_up.data(), d_a.data(), nullptr, d.data(), nullptr, nullptr);
  EXPECT_EQ(a[0], 0.0F);
  EXPECT_EQ(a[1], 2000.0F);
  for (const float value : d) EXPECT_TRUE(std::isfinite(value));
}

// ---- Cross-entropy ------------------------------------------------------------------------------

double cross_entropy(const Doubles& logits, std::int64_t label) {
  double sum = 0.0;
  for (const double x : logits) sum += std::exp(x - logits[static_cast<std::size_t>(label)]);
  return std::log(sum);
}

template <class T>
void check_cross_entropy(std::int64_t rows, std::int64_t vocab) {
  constexpr float kScale = 0.25F;
  const auto logits = normal<float>(rows * vocab, 1, 3.0);
  std::vector<std::int64_t> label;
  for (std::int64_t r = 0; r < rows; ++r) label.push_back(r % 3 == 1 ? kIgnoredLabel : r % vocab);
  std::vector<float> loss(label.size(), 9.0F);
  std::vector<T> d(logits.size(), from_float<T>(9.0F));
  cross_entropy_rows(rows, vocab, logits.data(), label.data(), kScale, loss.data(), d.data());
  for (std::int64_t r = 0; r < rows; ++r) {
    const Doubles row = slice(widen(logits), r * vocab, vocab);
    const auto at = static_cast<std::size_t>(r);
    const bool is_ignored = label[at] == kIgnoredLabel;
    const auto f = [&](const Doubles& x) {
      return is_ignored ? 0.0 : static_cast<double>(kScale) * cross_entropy(x, label[at]);
    };
    const double expected = is_ignored ? 0.0 : cross_entropy(row, label[at]);
    EXPECT_NEAR(loss[at], expected, 1e-6 * std::max(1.0, expected));
    EXPECT_LT(relative_error(slice(widen(d), r * vocab, vocab), numeric_gradient(f, row)),
              kTolerance<T>);
  }
}

TEST(CrossEntropy, MatchesReferenceAndFiniteDifferences) {
  for (const std::int64_t vocab : {1, 5, 64, 515}) {
    check_cross_entropy<float>(7, vocab);
    check_cross_entropy<bf16>(7, vocab);
  }
}

TEST(CrossEntropy, GradientMayOverwriteTheLogits) {
  const auto logits = normal<float>(6 * 300, 1);
  const std::vector<std::int64_t> label = {0, 299, 5, kIgnoredLabel, 100, 7};
  std::vector<float> loss(6), loss_in_place(6), d(logits.size());
  auto in_place = logits;
  cross_entropy_rows(6, 300, logits.data(), label.data(), 1.0F, loss.data(), d.data());
  cross_entropy_rows(6, 300, in_place.data(), label.data(), 1.0F, loss_in_place.data(),
                     in_place.data());
  EXPECT_TRUE(same_bits(d, in_place));
  EXPECT_TRUE(same_bits(loss, loss_in_place));
}

TEST(CrossEntropy, LargeLogitsDoNotOverflowAndGradientIsOptional) {
  std::vector<float> logits(100, -1e4F);
  logits[3] = 1e4F;
  const std::vector<std::int64_t> label = {3};
  std::vector<float> loss(1);
  cross_entropy_rows<float>(1, 100, logits.data(), label.data(), 1.0F, loss.data(), nullptr);
  EXPECT_EQ(loss[0], 0.0F);
  const std::vector<std::int64_t> other = {4};
  cross_entropy_rows<float>(1, 100, logits.data(), other.data(), 1.0F, loss.data(), nullptr);
  EXPECT_EQ(loss[0], 2e4F);
}

TEST(CrossEntropy, RejectsLabelsOutsideTheVocabulary) {
  const std::vector<float> logits(10);
  std::vector<float> loss(1);
  for (const std::int64_t label : {std::int64_t{-1}, std::int64_t{10}}) {
    EXPECT_THROW(
        cross_entropy_rows<float>(1, 10, logits.data(), &label, 1.0F, loss.data(), nullptr), Error);
  }
}

// ---- Embedding ----------------------------------------------------------------------------------

TEST(Embedding, LooksUpRowsAndAddsTheirGradientsInTokenOrder) {
  const std::int64_t width = 130;  // three column blocks
  const auto table = normal<float>(10 * width, 1);
  const std::vector<std::int64_t> id = {3, 9, 3, 0, 3};
  std::vector<float> out(static_cast<std::size_t>(5 * width));
  embedding_forward(5, width, table.data(), id.data(), 2.0F, out.data());
  for (std::size_t t = 0; t < id.size(); ++t) {
    for (std::size_t i = 0; i < 130; ++i) {
      ASSERT_EQ(out[t * 130 + i], 2.0F * table[static_cast<std::size_t>(id[t]) * 130 + i]);
    }
  }
  const auto d_out = normal<float>(5 * width, 2);
  auto d_table = table;  // added to
  embedding_backward(5, width, id.data(), 2.0F, d_out.data(), d_table.data());
  Doubles expected = widen(table);
  for (std::size_t t = 0; t < id.size(); ++t) {
    for (std::size_t i = 0; i < 130; ++i) {
      expected[static_cast<std::size_t>(id[t]) * 130 + i] +=
          2.0 * static_cast<double>(d_out[t * 130 + i]);
    }
  }
  EXPECT_LT(relative_error(d_table, expected), 1e-6);
}

TEST(Embedding, GradientBitsDoNotDependOnThreads) {
  const auto d_out = normal<float>(200 * 300, 1);
  std::vector<std::int64_t> id;
  for (std::int64_t t = 0; t < 200; ++t) id.push_back(t * t % 7);
  const auto run = [&](int threads) {
    std::vector<float> d_table(7 * 300, 0.0F);
    with_threads(threads, [&] {
      embedding_backward(200, 300, id.data(), 1.0F, d_out.data(), d_table.data());
    });
    return d_table;
  };
  EXPECT_TRUE(same_bits(run(1), run(2)));
}

}  // namespace
}  // namespace moestro::kernels
