#include "moestro/data/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "moestro/core/error.h"

namespace moestro::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Token> counting(int n) {
  std::vector<Token> tokens(static_cast<std::size_t>(n));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

/// First tokens of the sequences of the next batch: which windows it holds.
std::vector<std::int64_t> next_firsts(Batches& batches, std::int64_t count) {
  const Batch batch = batches.next(count);
  std::vector<std::int64_t> firsts;
  for (std::int64_t s = 0; s < batch.sequences; ++s) {
    firsts.push_back(batch.inputs[static_cast<std::size_t>(s * batch.seq_len)]);
  }
  return firsts;
}

TEST(Batches, LabelsAreTheFollowingTokens) {
  Batches batches(counting(50), {.seq_len = 7, .seed = 3});
  const Batch batch = batches.next(20);
  ASSERT_EQ(batch.inputs.size(), 140U);
  for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
    EXPECT_EQ(batch.labels[i], batch.inputs[i] + 1);
  }
}

TEST(Batches, EveryEpochPredictsEveryTokenOnceButTheFirstAndTheTail) {
  const bool holds = rc::check("labels of an epoch", [] {
    const int seq_len = *rc::gen::inRange(1, 10);
    const int tokens = *rc::gen::inRange(seq_len + 1, 100);
    Batches batches(counting(tokens),
                    {.seq_len = seq_len, .seed = *rc::gen::arbitrary<std::uint64_t>()});
    for (int epoch = 0; epoch < 2; ++epoch) {
      Batch all = batches.next(batches.windows());
      std::sort(all.labels.begin(), all.labels.end());
      const auto n = static_cast<std::int64_t>(all.labels.size());
      RC_ASSERT(tokens - 1 - n < seq_len);
      for (std::int64_t i = 0; i < n; ++i)
        RC_ASSERT(all.labels[static_cast<std::size_t>(i)] == i + 1);
    }
    RC_ASSERT(batches.position() == (BatchPosition{2, 0}));
  });
  EXPECT_TRUE(holds);
}

TEST(Batches, SequenceOfWindowsDoesNotDependOnTheBatchSize) {
  const bool holds = rc::check("any cut of the stream of windows is the same stream", [] {
    const auto sizes = *rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 9));
    Batches whole(counting(61), {.seq_len = 5, .seed = 4});
    Batches cut(counting(61), {.seq_len = 5, .seed = 4});
    std::vector<std::int64_t> joined;
    for (const int size : sizes) {
      const auto firsts = next_firsts(cut, size);
      joined.insert(joined.end(), firsts.begin(), firsts.end());
    }
    if (joined.empty()) return;
    RC_ASSERT(joined == next_firsts(whole, static_cast<std::int64_t>(joined.size())));
    RC_ASSERT(cut.position() == whole.position());
  });
  EXPECT_TRUE(holds);
}

TEST(Batches, ResumesExactlyFromASavedPosition) {
  const bool holds = rc::check("seek(position) continues the same sequence", [] {
    const BatchOptions options{.seq_len = 3, .seed = *rc::gen::arbitrary<std::uint64_t>()};
    Batches straight(counting(40), options);
    (void)straight.next(*rc::gen::inRange(1, 60));
    const std::string saved = to_json(straight.position()).dump();
    Batches resumed(counting(40), options);
    resumed.seek(position_from_json(Json::parse(saved), "trainer.json data"));
    RC_ASSERT(next_firsts(resumed, 30) == next_firsts(straight, 30));
  });
  EXPECT_TRUE(holds);
}

TEST(Batches, ShufflesDifferentlyPerEpochAndPerSeed) {
  Batches first(counting(1001), {.seq_len = 10, .seed = 1});
  Batches second(counting(1001), {.seq_len = 10, .seed = 2});
  const auto epoch0 = next_firsts(first, 100);
  const auto epoch1 = next_firsts(first, 100);
  EXPECT_FALSE(std::is_sorted(epoch0.begin(), epoch0.end()));
  EXPECT_NE(epoch0, epoch1);
  EXPECT_NE(epoch0, next_firsts(second, 100));
}

TEST(Batches, OrderOfASeedIsPinned) {
  Batches batches(counting(9), {.seq_len = 1, .seed = 1});
  EXPECT_THAT(next_firsts(batches, 16),
              ElementsAre(2, 6, 1, 3, 7, 4, 0, 5, 2, 0, 3, 7, 1, 5, 6, 4));
}

TEST(Batches, RefusesTextShorterThanOneWindow) {
  EXPECT_NO_THROW(Batches(counting(9), {.seq_len = 8, .seed = 1}));
  try {
    const Batches batches(counting(8), {.seq_len = 8, .seed = 1}, "run.toml data.text");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    EXPECT_STREQ(error.what(),
                 "[run.toml data.text] expected more tokens than one sequence (data.seq_len = 8), "
                 "got 8; add text, hold out less or lower seq_len");
  }
  EXPECT_THROW(Batches(counting(8), {.seq_len = 0, .seed = 1}), Error);
}

TEST(Batches, RefusesAPositionTheDataDoesNotHave) {
  Batches batches(counting(9), {.seq_len = 1, .seed = 1});
  EXPECT_NO_THROW(batches.seek({5, 7}));
  EXPECT_THROW(batches.seek({0, 8}), Error);
  EXPECT_THROW(batches.seek({-1, 0}), Error);
  EXPECT_THROW(batches.seek({0, -1}), Error);
}

TEST(BatchPosition, RefusesMalformedJson) {
  for (const char* text :
       {"3", "{}", R"({"epoch":0})", R"({"epoch":0,"offset":-1})", R"({"epoch":0.5,"offset":0})",
        R"({"epoch":18446744073709551615,"offset":0})"}) {
    EXPECT_THROW((void)position_from_json(Json::parse(text), "trainer.json data"), Error) << text;
  }
}

TEST(WindowsInOrder, AreTheStreamInOrderAndEndWithIt) {
  const std::vector<Token> tokens =
      counting(12);  // windows start at 0, 3, 6; 10 and 11 are left out
  EXPECT_EQ(num_windows(12, 3), 3);
  EXPECT_THAT(windows_in_order(tokens, 3, 0, 2).inputs, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(windows_in_order(tokens, 3, 2, 2).inputs, ElementsAre(6, 7, 8));
  EXPECT_THAT(windows_in_order(tokens, 3, 2, 2).labels, ElementsAre(7, 8, 9));
  EXPECT_EQ(windows_in_order(tokens, 3, 3, 2).sequences, 0);
  EXPECT_EQ(windows_in_order({}, 3, 0, 2).sequences, 0);
}

}  // namespace
}  // namespace moestro::data
