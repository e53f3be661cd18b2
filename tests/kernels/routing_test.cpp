#include "moestro/kernels/routing.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "moestro/core/error.h"
#include "reference.h"

namespace moestro::kernels {
namespace {

using testing::dot;
using testing::Doubles;
using testing::normal;
using testing::numeric_gradient;
using testing::relative_error;
using testing::same_bits;
using testing::widen;
using testing::with_threads;

using Score = RoutingRule::Score;
using GroupScore = RoutingRule::GroupScore;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Routed {
  std::vector<float> scores, weight;
  std::vector<std::int64_t> index;
};

Routed route(const RoutingRule& rule, const std::vector<float>& logits,
             const std::vector<float>& bias = {}) {
  const auto tokens = static_cast<std::int64_t>(logits.size()) / rule.experts;
  const auto slots = static_cast<std::size_t>(tokens * rule.top_k);
  Routed r{std::vector<float>(logits.size()), std::vector<float>(slots, kNan),
           std::vector<std::int64_t>(slots, -7)};
  route_forward(rule, tokens, logits.data(), bias.empty() ? nullptr : bias.data(), r.scores.data(),
                r.index.data(), r.weight.data());
  return r;
}

RoutingRule rule_of(std::int64_t experts, std::int64_t top_k, Score score, bool renormalise) {
  RoutingRule rule;
  rule.experts = experts;
  rule.top_k = top_k;
  rule.score = score;
  rule.renormalise = renormalise;
  return rule;
}

// ---- The choice ---------------------------------------------------------------------------------

TEST(Route, TiesGoToTheLowestIndex) {
  const RoutingRule rule = rule_of(6, 3, Score::softmax, true);
  EXPECT_EQ(route(rule, {1, 1, 1, 1, 1, 1}).index, (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(route(rule, {0, 2, 1, 2, 1, 2}).index, (std::vector<std::int64_t>{1, 3, 5}));
  EXPECT_EQ(route(rule, {0, 1, 1, 9, 0, 1}).index, (std::vector<std::int64_t>{3, 1, 2}));
}

TEST(Route, SaturatedSigmoidsTieAsWell) {
  const RoutingRule rule = rule_of(4, 2, Score::sigmoid, true);
  EXPECT_EQ(route(rule, {50, 60, 70, 80}).index, (std::vector<std::int64_t>{0, 1}));
}

TEST(Route, SelectionBiasChangesTheChoiceButNotTheWeights) {
  const RoutingRule rule = rule_of(3, 1, Score::sigmoid, false);
  const Routed r = route(rule, {2, 1, 0}, {0, 0, 5});
  EXPECT_EQ(r.index[0], 2);
  EXPECT_FLOAT_EQ(r.weight[0], 0.5F);
}

TEST(Route, GroupsLimitTheChoice) {
  RoutingRule rule = rule_of(6, 2, Score::sigmoid, false);
  rule.groups = 3;
  rule.topk_groups = 1;
  rule.masked_group_score = -kInfinity;
  // Best two of each group: {4, 3}, {5, -9}, {2.5, 2.5}.
  const std::vector<float> logits = {4, 3, 5, -9, 2.5, 2.5};
  rule.group_score = GroupScore::max;
  EXPECT_EQ(route(rule, logits).index, (std::vector<std::int64_t>{2, 3}));
  rule.group_score = GroupScore::sum_of_two_best;
  EXPECT_EQ(route(rule, logits).index, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(route(rule, {3, 4, -9, 5, 2.5, 2.5}).index, (std::vector<std::int64_t>{1, 0}))
      << "the second best may come first";
}

TEST(Route, GroupsOfOneExpertCountByIt) {
  RoutingRule rule = rule_of(4, 2, Score::sigmoid, false);
  rule.groups = 4;
  rule.topk_groups = 2;
  rule.masked_group_score = -kInfinity;
  rule.group_score = GroupScore::sum_of_two_best;
  EXPECT_EQ(route(rule, {0, 2, 1, 3}).index, (std::vector<std::int64_t>{3, 1}));
}

/// Sums of scores are divided by with 1e-20 added, as in transformers.
TEST(Route, ScoresOfNextToNothingAreNotBlownUp) {
  const RoutingRule rule = rule_of(4, 2, Score::sigmoid, true);
  const std::vector<float> logits(4, -60.0F), d_weight(2, 0.0F), d_scores = {1, 0, 0, 0};
  const Routed r = route(rule, logits);
  for (const float weight : r.weight) {
    EXPECT_NEAR(weight, std::exp(-60.0) / 1e-20, 1e-9);
  }
  std::vector<float> d(4, 9.0F);
  route_backward(rule, 1, logits.data(), r.scores.data(), r.index.data(), r.weight.data(),
                 d_weight.data(), d_scores.data(), 0.0F, d.data());
  EXPECT_NEAR(d[0], std::exp(-60.0) / 1e-20, 1e-9);
}

TEST(Route, MaskedGroupsCompeteWithTheirScore) {
  RoutingRule rule = rule_of(4, 2, Score::sigmoid, false);
  rule.groups = 2;
  rule.topk_groups = 1;
  const std::vector<float> bias = {-3, -3, 0, -2};  // the kept group's second expert is below 0
  rule.masked_group_score = 0.0F;
  EXPECT_EQ(route(rule, {0, 0, 0, 0}, bias).index, (std::vector<std::int64_t>{2, 0}));
  rule.masked_group_score = -kInfinity;
  EXPECT_EQ(route(rule, {0, 0, 0, 0}, bias).index, (std::vector<std::int64_t>{2, 3}));
}

TEST(Route, NanAndInfinityNeverGiveAnInvalidExpert) {
  for (const Score score : {Score::softmax, Score::sigmoid, Score::softmax_of_chosen}) {
    RoutingRule rule = rule_of(4, 3, score, true);
    rule.groups = 2;
    for (const float bad : {kNan, kInfinity, -kInfinity}) {
      const std::vector<float> logits = {bad, 1, bad, 2, bad, bad, bad, bad};
      const Routed r = route(rule, logits);
      for (std::size_t t = 0; t < 2; ++t) {
        const std::set<std::int64_t> chosen(
            r.index.begin() + static_cast<std::ptrdiff_t>(3 * t),
            r.index.begin() + static_cast<std::ptrdiff_t>(3 * t + 3));
        EXPECT_EQ(chosen.size(), 3U);
        EXPECT_GE(*chosen.begin(), 0);
        EXPECT_LT(*chosen.rbegin(), 4);
      }
    }
  }
}

TEST(Route, RejectsRulesThatCannotBeMet) {
  EXPECT_THROW(route(rule_of(4, 5, Score::softmax, false), {0, 0, 0, 0}), Error);
  RoutingRule rule = rule_of(4, 2, Score::softmax, false);
  rule.groups = 3;
  EXPECT_THROW(route(rule, {0, 0, 0, 0}), Error);
}

RoutingRule arbitrary_rule() {
  RoutingRule rule;
  rule.groups = *rc::gen::inRange<std::int64_t>(1, 5);
  rule.topk_groups = *rc::gen::inRange<std::int64_t>(1, rule.groups + 1);
  const auto group_size = *rc::gen::inRange<std::int64_t>(1, 9);
  rule.experts = rule.groups * group_size;
  rule.top_k = *rc::gen::inRange<std::int64_t>(1, rule.topk_groups * group_size + 1);
  rule.score = *rc::gen::element(Score::softmax, Score::sigmoid, Score::softmax_of_chosen);
  rule.group_score = *rc::gen::element(GroupScore::max, GroupScore::sum_of_two_best);
  rule.renormalise = *rc::gen::arbitrary<bool>();
  rule.scaling_factor = *rc::gen::element(1.0F, 2.5F);
  rule.masked_group_score = -kInfinity;
  return rule;
}

/// Logits with many ties.
std::vector<float> arbitrary_logits(std::int64_t count) {
  const auto steps = *rc::gen::container<std::vector<int>>(static_cast<std::size_t>(count),
                                                           rc::gen::inRange(-6, 7));
  std::vector<float> logits;
  for (const int step : steps) logits.push_back(static_cast<float>(step) * 0.5F);
  return logits;
}

void check_token(const RoutingRule& rule, const float* keys, const std::int64_t* index) {
  const std::set<std::int64_t> chosen(index, index + rule.top_k);
  RC_ASSERT(static_cast<std::int64_t>(chosen.size()) == rule.top_k);
  std::set<std::int64_t> groups;
  const std::int64_t group_size = rule.experts / rule.groups;
  for (const std::int64_t e : chosen) groups.insert(e / group_size);
  RC_ASSERT(static_cast<std::int64_t>(groups.size()) <= rule.topk_groups);
  for (std::int64_t j = 1; j < rule.top_k; ++j) {
    const bool is_ordered = keys[index[j - 1]] > keys[index[j]] ||
                            (keys[index[j - 1]] == keys[index[j]] && index[j - 1] < index[j]);
    RC_ASSERT(is_ordered);
  }
  for (std::int64_t e = 0; e < rule.experts; ++e) {
    if (chosen.count(e) != 0 || groups.count(e / group_size) == 0) continue;
    const std::int64_t worst = index[rule.top_k - 1];
    const bool loses = keys[e] < keys[worst] || (keys[e] == keys[worst] && e > worst);
    RC_ASSERT(loses);
  }
}

TEST(RouteProperty, ChoiceIsUniqueOrderedAndRespectsGroups) {
  EXPECT_TRUE(rc::check([] {
    const RoutingRule rule = arbitrary_rule();
    const auto tokens = *rc::gen::inRange<std::int64_t>(0, 6);
    const auto logits = arbitrary_logits(tokens * rule.experts);
    const Routed r = route(rule, logits);
    const auto& keys = rule.score == Score::softmax_of_chosen ? logits : r.scores;
    for (std::int64_t t = 0; t < tokens; ++t) {
      check_token(rule, keys.data() + t * rule.experts, r.index.data() + t * rule.top_k);
    }
  }));
}

TEST(RouteProperty, RenormalisedWeightsSumToTheScalingFactor) {
  EXPECT_TRUE(rc::check([] {
    RoutingRule rule = arbitrary_rule();
    rule.renormalise = true;
    const auto logits = arbitrary_logits(3 * rule.experts);
    const Routed r = route(rule, logits);
    for (std::int64_t t = 0; t < 3; ++t) {
      const auto begin = r.weight.begin() + t * rule.top_k;
      const double sum = std::accumulate(begin, begin + rule.top_k, 0.0);
      RC_ASSERT(std::abs(sum - static_cast<double>(rule.scaling_factor)) < 1e-5);
    }
  }));
}

// ---- Scores, weights and gradients against double -----------------------------------------------

double log_sum_exp(const Doubles& x) {
  double sum = 0.0;
  for (const double value : x) sum += std::exp(value);
  return std::log(sum);
}

Doubles scores_of(Score score, const Doubles& logits) {
  Doubles s(logits.size());
  for (std::size_t e = 0; e < s.size(); ++e) {
    s[e] = score == Score::sigmoid ? 1.0 / (1.0 + std::exp(-logits[e]))
                                   : std::exp(logits[e] - log_sum_exp(logits));
  }
  return s;
}

/// Weights of one token for a given choice.
Doubles weights_of(const RoutingRule& rule, const Doubles& logits, const std::int64_t* index) {
  const Doubles s = scores_of(rule.score, logits);
  Doubles w;
  double sum = 0.0;
  for (std::int64_t j = 0; j < rule.top_k; ++j) {
    const auto e = static_cast<std::size_t>(index[j]);
    w.push_back(rule.score == Score::softmax_of_chosen ? std::exp(logits[e]) : s[e]);
    sum += w.back();
  }
  const bool divides = rule.renormalise || rule.score == Score::softmax_of_chosen;
  for (double& value : w) value *= rule.scaling_factor / (divides ? sum : 1.0);
  return w;
}

/// Scores as the auxiliary loss sums them.
Doubles normalised_scores(Score score, const Doubles& logits) {
  Doubles s = scores_of(score, logits);
  const double sum = std::accumulate(s.begin(), s.end(), 0.0);
  for (double& value : s) value /= score == Score::sigmoid ? sum : 1.0;
  return s;
}

struct Rules : ::testing::TestWithParam<std::tuple<Score, bool>> {
  [[nodiscard]] RoutingRule rule() const {
    RoutingRule r = rule_of(12, 4, std::get<0>(GetParam()), std::get<1>(GetParam()));
    r.scaling_factor = 2.5F;
    return r;
  }
};

TEST_P(Rules, ScoresAndWeightsMatchDouble) {
  const auto logits = normal<float>(70 * 12, 1);
  const Routed r = route(rule(), logits);
  for (std::int64_t t = 0; t < 70; ++t) {
    const Doubles row(logits.begin() + t * 12, logits.begin() + t * 12 + 12);
    const std::vector<float> scores(r.scores.begin() + t * 12, r.scores.begin() + t * 12 + 12);
    const std::vector<float> weight(r.weight.begin() + t * 4, r.weight.begin() + t * 4 + 4);
    EXPECT_LT(relative_error(scores, scores_of(rule().score, row)), 1e-6);
    EXPECT_LT(relative_error(weight, weights_of(rule(), row, r.index.data() + t * 4)), 1e-6);
  }
}

TEST_P(Rules, BackwardMatchesFiniteDifferences) {
  constexpr double kZ = 0.3;
  const std::int64_t tokens = 66;
  const auto logits = normal<float>(tokens * 12, 1);
  const auto d_weight = normal<float>(tokens * 4, 2);
  const auto d_scores = normal<float>(12, 3);
  const Routed r = route(rule(), logits);
  std::vector<float> d(logits.size(), 9.0F);
  route_backward(rule(), tokens, logits.data(), r.scores.data(), r.index.data(), r.weight.data(),
                 d_weight.data(), d_scores.data(), static_cast<float>(kZ), d.data());
  for (std::int64_t t = 0; t < tokens; ++t) {
    const Doubles row(logits.begin() + t * 12, logits.begin() + t * 12 + 12);
    const Doubles slope(d_weight.begin() + t * 4, d_weight.begin() + t * 4 + 4);
    const auto loss = [&](const Doubles& x) {
      const double z = log_sum_exp(x);
      return dot(weights_of(rule(), x, r.index.data() + t * 4), slope) +
             dot(normalised_scores(rule().score, x), widen(d_scores)) + kZ * z * z;
    };
    const std::vector<float> actual(d.begin() + t * 12, d.begin() + t * 12 + 12);
    EXPECT_LT(relative_error(actual, numeric_gradient(loss, row)), 1e-6);
  }
}

TEST_P(Rules, ALoneExpertHasItsWholeShareAndNoGradient) {
  RoutingRule alone = rule();
  alone.top_k = 1;
  if (!alone.renormalise && alone.score != Score::softmax_of_chosen) return;
  const std::int64_t tokens = 66;
  const auto logits = normal<float>(tokens * 12, 1);
  const auto d_weight = normal<float>(tokens, 2);
  const Routed r = route(alone, logits);
  for (const float weight : r.weight) EXPECT_EQ(weight, alone.scaling_factor);
  std::vector<float> d(logits.size(), 9.0F);
  route_backward(alone, tokens, logits.data(), r.scores.data(), r.index.data(), r.weight.data(),
                 d_weight.data(), nullptr, 0.0F, d.data());
  for (const float gradient : d) EXPECT_EQ(gradient, 0.0F);
}

TEST_P(Rules, SumsMatchDoubleAndDoNotDependOnThreads) {
  const std::int64_t tokens = 1100;  // three blocks
  const auto logits = normal<float>(tokens * 12, 1);
  const Routed r = route(rule(), logits);
  const auto run = [&](int threads) {
    Doubles sums(12);
    with_threads(threads, [&] { routing_sums(rule(), tokens, r.scores.data(), sums.data()); });
    return sums;
  };
  Doubles expected(12, 0.0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const Doubles row(logits.begin() + t * 12, logits.begin() + t * 12 + 12);
    const Doubles scores = normalised_scores(rule().score, row);
    for (std::size_t e = 0; e < 12; ++e) expected[e] += scores[e];
  }
  EXPECT_LT(relative_error(run(1), expected), 1e-6);
  EXPECT_TRUE(same_bits(run(1), run(2)));
}

INSTANTIATE_TEST_SUITE_P(All, Rules,
                         ::testing::Combine(::testing::Values(Score::softmax, Score::sigmoid,
                                                              Score::softmax_of_chosen),
                                            ::testing::Bool()));

// ---- Expert order -------------------------------------------------------------------------------

struct Order {
  std::vector<std::int64_t> offset, slot_of_row, row_of_slot;
};

Order order_of(const std::vector<std::int64_t>& index, std::int64_t experts) {
  Order o{std::vector<std::int64_t>(static_cast<std::size_t>(experts + 1)),
          std::vector<std::int64_t>(index.size()), std::vector<std::int64_t>(index.size())};
  group_by_expert(static_cast<std::int64_t>(index.size()), experts, index.data(), o.offset.data(),
                  o.slot_of_row.data(), o.row_of_slot.data());
  return o;
}

TEST(ExpertOrderProperty, GroupingIsAStablePermutation) {
  EXPECT_TRUE(rc::check([] {
    const auto experts = *rc::gen::inRange<std::int64_t>(1, 9);
    const auto index =
        *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(0, experts));
    const Order o = order_of(index, experts);
    RC_ASSERT(o.offset.front() == 0);
    RC_ASSERT(o.offset.back() == static_cast<std::int64_t>(index.size()));
    for (std::int64_t e = 0; e < experts; ++e) {
      for (std::int64_t r = o.offset[static_cast<std::size_t>(e)];
           r < o.offset[static_cast<std::size_t>(e + 1)]; ++r) {
        const std::int64_t slot = o.slot_of_row[static_cast<std::size_t>(r)];
        RC_ASSERT(index[static_cast<std::size_t>(slot)] == e);
        RC_ASSERT(o.row_of_slot[static_cast<std::size_t>(slot)] == r);
        const bool is_first = r == o.offset[static_cast<std::size_t>(e)];
        const bool is_ordered = is_first || o.slot_of_row[static_cast<std::size_t>(r - 1)] < slot;
        RC_ASSERT(is_ordered);  // a plain value: the macro would evaluate both sides of ||
      }
    }
  }));
}

TEST(ExpertOrder, RejectsExpertsThatDoNotExist) {
  EXPECT_THROW(order_of({0, 3}, 3), Error);
  EXPECT_THROW(order_of({-1}, 3), Error);
}

template <class T>
void check_gather_and_combine(std::int64_t tokens, std::int64_t width, std::int64_t top_k,
                              std::int64_t experts) {
  std::vector<std::int64_t> index;
  for (std::int64_t s = 0; s < tokens * top_k; ++s) index.push_back(s * s % experts);
  const Order o = order_of(index, experts);
  const std::int64_t slots = tokens * top_k;
  const auto x = normal<T>(tokens * width, 1);
  const auto y = normal<T>(slots * width, 2);
  std::vector<T> rows(y.size());
  std::vector<float> sums(x.size());
  gather_rows(slots, width, top_k, x.data(), o.slot_of_row.data(), rows.data());
  combine_rows<T, float>(tokens, width, top_k, y.data(), o.row_of_slot.data(), nullptr, nullptr,
                         sums.data());
  // <gather(x), y> = <x, combine(y)>
  const double forward = dot(widen(rows), widen(y));
  const double scale = std::sqrt(dot(widen(rows), widen(rows)) * dot(widen(y), widen(y)));
  EXPECT_NEAR(forward, dot(widen(x), widen(sums)), 1e-6 * scale);
  for (std::size_t r = 0; r < static_cast<std::size_t>(slots); ++r) {
    const auto token = static_cast<std::size_t>(o.slot_of_row[r] / top_k);
    const auto w = static_cast<std::size_t>(width);
    ASSERT_TRUE(
        same_bits(std::vector<T>(rows.begin() + static_cast<std::ptrdiff_t>(r * w),
                                 rows.begin() + static_cast<std::ptrdiff_t>((r + 1) * w)),
                  std::vector<T>(x.begin() + static_cast<std::ptrdiff_t>(token * w),
                                 x.begin() + static_cast<std::ptrdiff_t>((token + 1) * w))));
  }
}

TEST(ExpertOrder, GatherAndCombineAreTransposes) {
  check_gather_and_combine<float>(70, 300, 2, 5);
  check_gather_and_combine<bf16>(70, 37, 3, 4);
  check_gather_and_combine<float>(1, 1, 1, 1);
  check_gather_and_combine<float>(0, 8, 2, 2);
}

template <class Out>
void check_weighted_combine() {
  const std::int64_t tokens = 5;
  const std::int64_t width = 270;
  const auto rows = normal<float>(2 * tokens * width, 1);
  const auto weight = normal<float>(2 * tokens, 2);
  const Order o = order_of({1, 0, 1, 2, 0, 1, 2, 0, 1, 0}, 3);
  const auto base = normal<Out>(tokens * width, 3);
  std::vector<Out> out(base.size());
  Doubles expected = widen(base);
  for (std::int64_t s = 0; s < 2 * tokens; ++s) {
    const std::int64_t row = o.row_of_slot[static_cast<std::size_t>(s)];
    for (std::int64_t i = 0; i < width; ++i) {
      expected[static_cast<std::size_t>(s / 2 * width + i)] +=
          static_cast<double>(weight[static_cast<std::size_t>(s)]) *
          static_cast<double>(rows[static_cast<std::size_t>(row * width + i)]);
    }
  }
  combine_rows(tokens, width, 2, rows.data(), o.row_of_slot.data(), weight.data(), base.data(),
               out.data());
  EXPECT_LT(relative_error(out, expected), testing::kTolerance<Out>);
}

TEST(ExpertOrder, CombineWeighsAndAccumulates) {
  check_weighted_combine<float>();
  check_weighted_combine<bf16>();
}

}  // namespace
}  // namespace moestro::kernels
