#include "moestro/data/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>

#include "moestro/core/error.h"
#include "moestro/core/text.h"
#include "tests/core/temporary_folder.h"

namespace moestro::data {
namespace {

using testing::HasSubstr;

/// The message of the error that reading these bytes as a text file gives.
std::string refusal(std::string_view bytes) {
  const test::TemporaryFolder folder;
  try {
    (void)read_text(folder.file("a.txt", bytes));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
  return "no error";
}

TEST(ReadText, DropsAByteOrderMark) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(read_text(folder.file("bom", "\xEF\xBB\xBFzwölf\n")), "zwölf\n");
  EXPECT_EQ(read_text(folder.file("plain", "zwölf\n")), "zwölf\n");
}

TEST(ReadText, NamesLineAndByteOfMalformedUtf8) {
  const std::string message = refusal("one\ntwo\nz\xE9ro\n");
  EXPECT_THAT(message, HasSubstr("a.txt:3]"));
  EXPECT_THAT(message, HasSubstr("got byte 0xE9 at byte 9 of the file"));
  EXPECT_THAT(refusal("\xFF\xFEh"), HasSubstr("a.txt:1]"));
  EXPECT_THAT(refusal("cut off \xE2\x82"), HasSubstr("byte 8 of"));
}

TEST(ReadText, RefusesAnEmptyFile) {
  EXPECT_THAT(refusal(""), HasSubstr("got an empty file"));
  EXPECT_THAT(refusal("\xEF\xBB\xBF"), HasSubstr("got an empty file"));
}

TEST(ReadText, RefusesAMissingFile) {
  EXPECT_THROW((void)read_text("no such folder/a.txt"), Error);
}

TEST(SplitHeldOut, CutsAtTheNearestLineStart) {
  const std::string text = "aaaa\nbbbb\ncccc\ndddd\n";  // lines of 5 bytes
  EXPECT_EQ(split_held_out(text, 0.25).held_out, "dddd\n");
  EXPECT_EQ(split_held_out(text, 0.30).held_out, "dddd\n");
  EXPECT_EQ(split_held_out(text, 0.45).held_out, "cccc\ndddd\n");
  EXPECT_EQ(split_held_out(text, 0.25).training, "aaaa\nbbbb\ncccc\n");
}

TEST(SplitHeldOut, CutsALongLineAtACharacter) {
  const TextSplit split = split_held_out("éééééééééé", 0.25);  // 20 bytes; 15 is inside an é
  EXPECT_EQ(split.held_out, "éé");
  EXPECT_EQ(split.training, "éééééééé");
}

TEST(SplitHeldOut, LosesNothingAndHoldsOutAboutWhatWasAsked) {
  const bool holds = rc::check("parts join to the text; the share is within a factor of two", [] {
    const auto lines = *rc::gen::container<std::vector<std::string>>(
        rc::gen::container<std::string>(rc::gen::inRange('a', 'z')));
    const std::string text = join(lines, "\n");
    const double fraction = *rc::gen::inRange(0, 100) / 100.0;
    const TextSplit split = split_held_out(text, fraction);
    RC_ASSERT(std::string(split.training) + std::string(split.held_out) == text);
    const double asked = fraction * static_cast<double>(text.size());
    const auto got = static_cast<double>(split.held_out.size());
    RC_ASSERT(got <= 2.0 * asked + 2.0);
    RC_ASSERT(got >= 0.5 * asked - 1.0);
  });
  EXPECT_TRUE(holds);
}

TEST(SplitHeldOut, HoldsOutNothingForFractionZero) {
  EXPECT_EQ(split_held_out("a\nb\n", 0.0).training, "a\nb\n");
  EXPECT_TRUE(split_held_out("a\nb\n", 0.0).held_out.empty());
}

TEST(SplitHeldOut, RefusesFractionsOutsideTheRange) {
  for (const double fraction : {-0.1, 1.0, std::nan("")}) {
    EXPECT_THROW((void)split_held_out("a\nb\n", fraction), Error) << fraction;
  }
}

TEST(UnigramEntropy, OfUniformCountsIsTheLogarithmOfTheirNumber) {
  EXPECT_NEAR(unigram_entropy(std::vector<std::int64_t>{7, 7, 7, 7, 0}), std::log(4.0), 1e-15);
  EXPECT_EQ(unigram_entropy(std::vector<std::int64_t>{5, 0}), 0.0);
  EXPECT_EQ(unigram_entropy(std::vector<std::int64_t>{0, 0}), 0.0);
}

TEST(TokenCounts, CountsEveryIdAndRefusesOthers) {
  EXPECT_THAT(token_counts(std::vector<Token>{2, 0, 2}, 3), testing::ElementsAre(1, 0, 2));
  EXPECT_THROW((void)token_counts(std::vector<Token>{3}, 3), Error);
}

}  // namespace
}  // namespace moestro::data
