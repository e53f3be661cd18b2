#include "moestro/kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "moestro/core/error.h"
#include "moestro/kernels/gemm.h"
#include "moestro/kernels/internal/attention_block.h"
#include "moestro/kernels/internal/attention_panel.h"
#include "moestro/kernels/internal/scratch.h"
#include "reference.h"

namespace moestro::kernels {
namespace {

using testing::kTolerance;
using testing::normal;
using testing::relative_error;
using testing::same_bits;
using testing::widen;
using testing::with_threads;

#define SKIP_WITHOUT_GEMM() \
  if (!has_gemm()) GTEST_SKIP() << "this build has no oneDNN"

AttentionShape shape_of(std::int64_t batch, std::int64_t seq, std::int64_t heads,
                        std::int64_t kv_heads, std::int64_t head_dim, std::int64_t window) {
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  return {batch, seq, heads, kv_heads, head_dim, scale, window};
}

std::string describe(const AttentionShape& s) {
  return "seq " + std::to_string(s.seq) + " heads " + std::to_string(s.heads) + "/" +
         std::to_string(s.kv_heads) + " head_dim " + std::to_string(s.head_dim) + " window " +
         std::to_string(s.window);
}

template <class T>
struct Results {
  std::vector<T> out, d_qkv;
  std::vector<float> log_sum_exp;
};

/// One of the ways to compute it.
template <class T>
struct Attention {
  decltype(&attention_forward<T>) forward = &attention_forward<T>;
  decltype(&attention_backward<T>) backward = &attention_backward<T>;
};
const Attention<bf16> kPanels{internal::panel_attention_forward<bf16>,
                              internal::panel_attention_backward<bf16>};
const Attention<bf16> kBlocks{internal::block_attention_forward,
                              internal::block_attention_backward};

template <class T>
Results<T> run(const AttentionShape& s, const std::vector<T>& qkv, const std::vector<T>& d_out,
               const Attention<T>& attention = {}) {
  Results<T> r;
  r.out.resize(d_out.size());
  r.d_qkv.assign(qkv.size(), from_float<T>(77.0F));  // must be overwritten
  r.log_sum_exp.resize(static_cast<std::size_t>(s.batch * s.heads * s.seq));
  attention.forward(s, qkv.data(), r.out.data(), r.log_sum_exp.data());
  attention.backward(s, qkv.data(), r.out.data(), r.log_sum_exp.data(), d_out.data(),
                     r.d_qkv.data());
  return r;
}

template <class T>
void check(const AttentionShape& s, const Attention<T>& attention = {}) {
  const auto qkv = normal<T>(s.batch * s.seq * s.row(), 1);
  const auto d_out = normal<T>(s.batch * s.seq * s.heads * s.head_dim, 2);
  const Results<T> actual = run(s, qkv, d_out, attention);
  const auto expected = testing::attention(s, widen(qkv));
  EXPECT_LT(relative_error(actual.out, expected.out), kTolerance<T>) << describe(s);
  EXPECT_LT(relative_error(actual.log_sum_exp, expected.log_sum_exp), kTolerance<float>)
      << describe(s);
  const auto gradient = testing::attention_gradient(s, widen(qkv), widen(d_out));
  // Twice the tolerance: probabilities and their gradients are both rounded.
  EXPECT_LT(relative_error(actual.d_qkv, gradient), 2 * kTolerance<T>) << describe(s);
}

template <class T>
void check_all(const Attention<T>& attention = {}) {
  for (const std::int64_t seq : {1, 37, 129, 515}) {
    for (const std::int64_t window : {0, 1, 50, 200}) {
      check(shape_of(1, seq, 2, 1, 16, window), attention);
    }
  }
  for (const std::int64_t kv_heads : {1, 2, 4, 8}) {
    check(shape_of(2, 130, 8, kv_heads, 24, 0), attention);
  }
  for (const std::int64_t head_dim : {16, 40, 64, 128, 256}) {
    check(shape_of(1, 140, 2, 2, head_dim, 33), attention);
  }
}

TEST(Attention, FloatMatchesDoubleReference) {
  check_all<float>();
}
TEST(Attention, Bf16MatchesDoubleReference) {
  check_all(kPanels);
}
TEST(Attention, Bf16ByBlocksMatchesDoubleReference) {
  SKIP_WITHOUT_GEMM();
  check_all(kBlocks);
}

/// Panels are 64 queries of vectors of 16 against chunks of 96 keys, multiplied in tiles of 6 rows.
template <class T>
void check_beside_edges(const Attention<T>& attention = {}) {
  for (std::int64_t seq = 1; seq <= 72; ++seq) check(shape_of(1, seq, 2, 1, 8, 0), attention);
  for (const std::int64_t seq : {95, 96, 97, 127, 128, 191, 193, 257, 300}) {
    for (const std::int64_t window : {0, 3, 64, 97}) {
      check(shape_of(1, seq, 2, 1, 8, window), attention);
    }
  }
  for (std::int64_t window = 1; window <= 72; ++window) {
    check(shape_of(1, 203, 2, 2, 8, window), attention);
  }
}

TEST(Attention, FloatMatchesDoubleReferenceBesideTheEdgesOfTiles) {
  check_beside_edges<float>();
}
TEST(Attention, Bf16MatchesDoubleReferenceBesideTheEdgesOfTiles) {
  check_beside_edges(kPanels);
}

template <class T>
void check_widths_and_groups(const Attention<T>& attention = {}) {
  for (const std::int64_t head_dim : {1, 3, 15, 16, 17, 31, 48, 65, 80, 96, 112}) {
    check(shape_of(2, 70, 2, 1, head_dim, 0), attention);
  }
  for (const std::int64_t group : {3, 4, 5, 7, 9}) {
    for (const std::int64_t window : {0, 20}) {
      check(shape_of(1, 151, 2 * group, 2, 20, window), attention);
    }
  }
}

TEST(Attention, FloatMatchesDoubleReferenceForAllWidthsAndGroups) {
  check_widths_and_groups<float>();
}
TEST(Attention, Bf16MatchesDoubleReferenceForAllWidthsAndGroups) {
  check_widths_and_groups(kPanels);
}

TEST(Attention, ReferenceGradientMatchesFiniteDifferences) {
  const AttentionShape s = shape_of(1, 7, 2, 1, 3, 4);
  const auto qkv = widen(normal<float>(s.batch * s.seq * s.row(), 1));
  const auto d_out = widen(normal<float>(s.batch * s.seq * s.heads * s.head_dim, 2));
  const auto numeric = testing::numeric_gradient(
      [&](const testing::Doubles& x) { return testing::dot(testing::attention(s, x).out, d_out); },
      qkv);
  EXPECT_LT(relative_error(testing::attention_gradient(s, qkv, d_out), numeric), 1e-8);
}

TEST(Attention, EmptyBatchAndEmptySequenceDoNothing) {
  for (const AttentionShape& s : {shape_of(0, 5, 2, 1, 8, 0), shape_of(3, 0, 2, 1, 8, 0)}) {
    const Results<float> r = run<float>(s, {}, {});
    EXPECT_TRUE(r.out.empty());
  }
}

/// The softmax of one score is 1 whatever the score.
template <class T>
void check_single_scores(const Attention<T>& attention = {}) {
  for (const AttentionShape& s : {shape_of(2, 40, 4, 2, 24, 1), shape_of(2, 1, 4, 2, 24, 0)}) {
    const auto qkv = normal<T>(s.batch * s.seq * s.row(), 1);
    const auto d_out = normal<T>(s.batch * s.seq * s.heads * s.head_dim, 2);
    const Results<T> r = run(s, qkv, d_out, attention);
    const std::int64_t queries_and_keys = (s.heads + s.kv_heads) * s.head_dim;
    for (std::size_t i = 0; i < r.d_qkv.size(); ++i) {
      const auto column = static_cast<std::int64_t>(i) % s.row();
      if (column >= queries_and_keys) continue;
      ASSERT_EQ(to_float(r.d_qkv[i]), 0.0F) << i;
    }
    for (std::size_t i = 0; i < r.out.size(); ++i) {  // head h of out is value head h / 2
      const auto at = static_cast<std::int64_t>(i);
      const std::int64_t width = s.heads * s.head_dim;
      const std::int64_t value =
          queries_and_keys + at % width / (2 * s.head_dim) * s.head_dim + at % s.head_dim;
      const auto in = static_cast<std::size_t>(at / width * s.row() + value);
      ASSERT_EQ(to_float(r.out[i]), to_float(qkv[in])) << i;
    }
  }
}

TEST(Attention, QueriesThatSeeOneKeyTakeItsValueAndGiveItsScoreNoGradient) {
  check_single_scores<float>();
  check_single_scores(kPanels);
}
TEST(Attention, ByBlocksQueriesThatSeeOneKeyGiveItsScoreNoGradient) {
  SKIP_WITHOUT_GEMM();
  check_single_scores(kBlocks);
}

/// Products and softmax of one instruction set.
template <class T>
struct Steps {
  void (*multiply)(const internal::Product<internal::Cell<T>>&);
  void (*add_product)(const internal::Product<internal::Cell<T>>&);
  const internal::PanelKernels& panel;
};

struct PanelResults {
  std::vector<float> out, gradients, sums;
};

/// Every step of a panel on made-up operands. Shapes: width is a multiple of kLanes.
template <class T>
PanelResults run_panel(const Steps<T>& steps, const internal::Panel& panel, std::int64_t width) {
  using internal::Cell;
  using internal::kPanel;
  using internal::Product;
  using internal::Rows;
  const auto q_rows = normal<T>(kPanel * width, 1);
  const auto k = normal<T>(panel.keys * width, 2);
  auto scores = normal<float>(panel.keys * kPanel, 3);
  PanelResults r{normal<float>(kPanel * width, 4), normal<float>(panel.keys * kPanel, 5), {}};
  std::vector<Cell<T>> q(static_cast<std::size_t>(kPanel * width)), k_work(q), q_work(q);
  std::vector<T> left(static_cast<std::size_t>((panel.keys + 1) * kPanel));
  internal::transpose_panel(panel.queries, width, {q_rows.data(), width}, q.data());
  const std::int64_t cols = internal::round_up(panel.queries);
  const auto scores_of = [&] {
    steps.multiply(Product<Cell<T>>{panel.keys,
                                    cols,
                                    width,
                                    internal::by_rows(Rows<const T>{k.data(), width}),
                                    {q.data(), kPanel},
                                    {scores.data(), kPanel},
                                    panel.queries_of_key(),
                                    0.1F});
  };
  internal::SoftmaxState state{};
  scores_of();
  steps.panel.softmax(panel, scores.data(), state);
  steps.add_product(
      Product<Cell<T>>{panel.queries,
                       width,
                       panel.keys,
                       internal::rows_are_queries(panel, scores.data(), left.data()),
                       {internal::right_side(panel.keys, width, k.data(), k_work.data()), width},
                       {r.out.data(), width},
                       panel.keys_of_query()});
  r.sums.assign(state.sum, state.sum + panel.queries);
  scores_of();
  steps.panel.differentiate(panel, 0.1F, state.peak, state.sum, scores.data(), r.gradients.data());
  auto d_k = normal<float>(panel.keys * width, 6);
  steps.add_product(Product<Cell<T>>{
      panel.keys,
      width,
      panel.queries,
      internal::rows_are_keys(panel, scores.data(), left.data()),
      {internal::right_side(panel.queries, width, q_rows.data(), q_work.data()), width},
      {d_k.data(), width},
      panel.queries_of_key()});
  r.out.insert(r.out.end(), d_k.begin(), d_k.end());
  for (std::size_t i = 0; i < r.gradients.size(); ++i) {  // lanes beyond `cols` stay as they were
    if (static_cast<std::int64_t>(i) % kPanel >= cols) r.gradients[i] = 0.0F;
  }
  return r;
}

/// All that `steps` make agrees with what `plain` make of the same operands.
template <class T>
void check_steps(const Steps<T>& plain, const Steps<T>& steps) {
  constexpr std::int64_t kWidth = 112;  // 7 vectors of 16
  for (const internal::Panel& panel :
       {internal::Panel{64, 64, 0, 96, 1000}, internal::Panel{64, 39, 60, 43, 1000},
        internal::Panel{128, 64, 70, 96, 50}, internal::Panel{0, 5, 0, 5, 2}}) {
    const PanelResults expected = run_panel(plain, panel, kWidth);
    const PanelResults actual = run_panel(steps, panel, kWidth);
    EXPECT_LT(relative_error(actual.out, widen(expected.out)), kTolerance<float>);
    EXPECT_LT(relative_error(actual.gradients, widen(expected.gradients)), kTolerance<float>);
    EXPECT_LT(relative_error(actual.sums, widen(expected.sums)), kTolerance<float>);
  }
}

template <class T>
void check_bits_on_two_threads(const Attention<T>& attention = {}) {
  const AttentionShape s = shape_of(2, 300, 4, 2, 32, 0);
  const auto qkv = normal<T>(s.batch * s.seq * s.row(), 1);
  const auto d_out = normal<T>(s.batch * s.seq * s.heads * s.head_dim, 2);
  Results<T> one;
  Results<T> two;
  with_threads(1, [&] { one = run(s, qkv, d_out, attention); });
  with_threads(2, [&] { two = run(s, qkv, d_out, attention); });
  EXPECT_TRUE(same_bits(one.out, two.out));
  EXPECT_TRUE(same_bits(one.log_sum_exp, two.log_sum_exp));
  EXPECT_TRUE(same_bits(one.d_qkv, two.d_qkv));
}

TEST(Attention, BitsDoNotDependOnThreads) {
  check_bits_on_two_threads<float>();
  check_bits_on_two_threads(kPanels);
}
TEST(Attention, BitsByBlocksDoNotDependOnThreads) {
  SKIP_WITHOUT_GEMM();
  check_bits_on_two_threads(kBlocks);
}

TEST(Attention, WorkMemoryOfTheForwardDoesNotGrowWithTheSequence) {
  const auto bytes_kept = [](std::int64_t seq) {
    std::size_t bytes = 0;
    std::thread([&] {  // work memory stays with its thread
      with_threads(1, [&] {
        const AttentionShape s = shape_of(1, seq, 2, 1, 8, 0);
        const auto qkv = normal<float>(s.seq * s.row(), 1);
        std::vector<float> out(static_cast<std::size_t>(s.seq * s.heads * s.head_dim));
        std::vector<float> lse(static_cast<std::size_t>(s.heads * s.seq));
        attention_forward(s, qkv.data(), out.data(), lse.data());
        bytes = internal::scratch_kept();
      });
    })
        .join();
    return bytes;
  };
  EXPECT_GT(bytes_kept(100), 0U);
  EXPECT_EQ(bytes_kept(100), bytes_kept(2000));
}

/// What other processors run: each instruction set's kernels agree with the plain ones.
TEST(Attention, InstructionSetsAgree) {
  const auto steps_of = [](const internal::PanelKernels& k) {
    return Steps<float>{k.multiply, k.add_product, k};
  };
  const auto all = internal::supported_panel_kernels();
  for (const auto& kernels : all) check_steps(steps_of(all[0]), steps_of(kernels));
}

TEST(Attention, InstructionSetsForPairsAgree) {
  const internal::PanelKernels& panel = internal::supported_panel_kernels()[0];
  const auto steps_of = [&](const internal::PairKernels& k) {
    return Steps<bf16>{k.multiply, k.add_product, panel};
  };
  const auto all = internal::supported_pair_kernels();
  for (const auto& kernels : all) check_steps(steps_of(all[0]), steps_of(kernels));
}

TEST(Attention, InstructionSetsRoundAlike) {
  using internal::kPanel;
  for (const std::int64_t keys : {1, 2, 7}) {
    auto cells = normal<float>(keys * kPanel, 1);
    cells[5] = std::numeric_limits<float>::infinity();
    const auto rounded = [&](const internal::PairKernels& kernels) {
      std::vector<bf16> all(static_cast<std::size_t>((2 * keys + 1) * kPanel));
      std::vector<internal::Bf16Pair> pairs(static_cast<std::size_t>((keys + 1) / 2 * kPanel));
      kernels.round_by_keys(keys, kPanel - internal::kLanes, cells.data(), all.data());
      kernels.round_by_queries(keys, kPanel - internal::kLanes, cells.data(), pairs.data());
      bf16* next = all.data() + keys * kPanel;
      for (const internal::Bf16Pair& pair : pairs) {
        *next++ = pair.first;
        *next++ = pair.second;
      }
      return all;
    };
    const auto expected = rounded(internal::supported_pair_kernels()[0]);
    for (std::int64_t i = 0; i < kPanel - internal::kLanes; ++i) {
      const auto at = static_cast<std::size_t>(keys * kPanel + 2 * i);  // cell (0, i) as a pair
      EXPECT_EQ(expected[at].bits, expected[static_cast<std::size_t>(i)].bits);
      const bf16 second = keys > 1 ? expected[static_cast<std::size_t>(kPanel + i)] : bf16{};
      EXPECT_EQ(expected[at + 1].bits, second.bits);
    }
    for (const auto& kernels : internal::supported_pair_kernels()) {
      EXPECT_TRUE(same_bits(rounded(kernels), expected)) << keys;
    }
  }
}

/// Scores in the thousands, and of 1e9: the softmax is that of whichever is largest.
template <class T>
void check_large_scores(const Attention<T>& attention = {}) {
  for (const float scale : {100.0F, 1e4F, 1e8F}) {
    AttentionShape s = shape_of(1, 300, 2, 1, 16, 0);
    s.scale = scale;
    const auto qkv = normal<T>(s.seq * s.row(), 1);
    const auto d_out = normal<T>(s.seq * s.heads * s.head_dim, 2);
    const Results<T> r = run(s, qkv, d_out, attention);
    const auto expected = testing::attention(s, widen(qkv));
    EXPECT_LT(relative_error(r.out, expected.out), std::max(1e-3, kTolerance<T>)) << scale;
    EXPECT_LT(relative_error(r.log_sum_exp, expected.log_sum_exp), kTolerance<float>) << scale;
    for (const T d : r.d_qkv) ASSERT_TRUE(std::isfinite(to_float(d))) << scale;
  }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  check_large_scores<float>();
  check_large_scores(kPanels);
}

TEST(Attention, WindowOfTheWholeSequenceIsNoWindow) {
  const AttentionShape open = shape_of(1, 200, 2, 1, 16, 0);
  const auto qkv = normal<float>(open.seq * open.row(), 1);
  const auto d_out = normal<float>(open.seq * open.heads * open.head_dim, 2);
  const Results<float> a = run(open, qkv, d_out);
  for (const std::int64_t window : {std::int64_t{200}, std::numeric_limits<std::int64_t>::max()}) {
    AttentionShape windowed = open;
    windowed.window = window;
    const Results<float> b = run(windowed, qkv, d_out);
    EXPECT_TRUE(same_bits(a.out, b.out)) << window;
    EXPECT_TRUE(same_bits(a.d_qkv, b.d_qkv)) << window;
  }
}

/// A key that is no number reaches every query that sees it, and none that does not.
template <class T>
void check_nan_key(const Attention<T>& attention = {}) {
  const AttentionShape s = shape_of(1, 151, 2, 1, 20, 40);
  auto qkv = normal<T>(s.seq * s.row(), 1);
  const auto d_out = normal<T>(s.seq * s.heads * s.head_dim, 2);
  constexpr std::int64_t kKey = 70;
  qkv[static_cast<std::size_t>(kKey * s.row() + s.heads * s.head_dim + 3)] =
      from_float<T>(std::nanf(""));
  const Results<T> r = run(s, qkv, d_out, attention);
  for (std::int64_t q = 0; q < s.seq; ++q) {
    const bool sees = kKey <= q && q < kKey + s.window;
    for (std::int64_t i = 0; i < s.heads * s.head_dim; ++i) {
      const auto out = static_cast<std::size_t>(q * s.heads * s.head_dim + i);
      const auto d_q = static_cast<std::size_t>(q * s.row() + i);
      EXPECT_EQ(std::isnan(to_float(r.out[out])), sees);
      EXPECT_TRUE(!sees || std::isnan(to_float(r.d_qkv[d_q])));
    }
  }
}

TEST(Attention, NanKeysAreNotHidden) {
  check_nan_key<float>();
  check_nan_key(kPanels);
}

TEST(Attention, RejectsHeadsThatDoNotShareEvenly) {
  EXPECT_THROW(attention_forward<float>(shape_of(1, 4, 3, 2, 8, 0), nullptr, nullptr, nullptr),
               Error);
}

}  // namespace
}  // namespace moestro::kernels
