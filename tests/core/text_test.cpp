#include "moestro/core/text.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

namespace moestro {
namespace {

using ::testing::ElementsAre;

TEST(EditDistance, CountsSingleEdits) {
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("steps", "steps"), 0U);
  EXPECT_EQ(edit_distance("step", "steps"), 1U);
  EXPECT_EQ(edit_distance("setps", "steps"), 1U) << "a swap of neighbours is one edit";
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

TEST(EditDistance, IsSymmetricAndBounded) {
  EXPECT_TRUE(rc::check([](const std::string& a, const std::string& b) {
    const std::size_t distance = edit_distance(a, b);
    RC_ASSERT(distance == edit_distance(b, a));
    RC_ASSERT(distance <= std::max(a.size(), b.size()));
    RC_ASSERT((distance == 0) == (a == b));
  }));
}

TEST(Nearest, FindsMisspellingsOnly) {
  EXPECT_EQ(nearest("global_bach", {"global_batch", "micro_batch"}), "global_batch");
  EXPECT_EQ(nearest("xyzzy", {"global_batch", "seed"}), "");
  EXPECT_EQ(nearest("a", {}), "");
}

TEST(Nearest, CompletesNumbers) {
  EXPECT_EQ(nearest("bf6", {"f32", "bf16"}), "bf16");
  EXPECT_EQ(nearest("qwen-30b-a3b", {"qwen3-235b-a22b", "qwen3-30b-a3b"}), "qwen3-30b-a3b");
}

TEST(Nearest, SuggestsNoOtherNumber) {
  EXPECT_EQ(nearest("bf17", {"f32", "bf16"}), "");
  EXPECT_EQ(nearest("deepseek-v", {"deepseek-r1", "deepseek-v3"}), "") << "nor the next best";
  EXPECT_EQ(nearest("llama", {"llama4"}), "");
  EXPECT_EQ(nearest("qwen2_moe", {"qwen3_moe", "qwen3_5_moe"}), "");
  EXPECT_EQ(nearest("qwen3_mo", {"qwen2_mo", "qwen3_moe"}), "qwen3_moe");
  EXPECT_EQ(nearest("phi3.5-moe", {"phi-3.5-moe"}), "phi-3.5-moe") << "the same digits";
  EXPECT_EQ(nearest("layer.0.norm", {"layer.1.norm", "layers.0.norm"}), "layers.0.norm");
}

TEST(Split, KeepsEmptyParts) {
  EXPECT_THAT(split("a,,b,", ','), ElementsAre("a", "", "b", ""));
  EXPECT_THAT(split("", ','), ElementsAre(""));
}

TEST(Split, IsUndoneByJoin) {
  EXPECT_TRUE(
      rc::check([](const std::string& text) { RC_ASSERT(join(split(text, ','), ",") == text); }));
}

TEST(Lower, ChangesLettersOnly) {
  EXPECT_EQ(lower("AZ[@az1É"), "az[@az1É");
}

TEST(Trim, RemovesSpaceAtBothEnds) {
  EXPECT_EQ(trim(" \t a b \r\n"), "a b");
  EXPECT_EQ(trim(" \n"), "");
}

TEST(WithThousands, GroupsDigits) {
  EXPECT_EQ(with_thousands(0), "0");
  EXPECT_EQ(with_thousands(999), "999");
  EXPECT_EQ(with_thousands(671026419200), "671,026,419,200");
  EXPECT_EQ(with_thousands(-1000), "-1,000");
  EXPECT_EQ(with_thousands(-100), "-100");
}

TEST(Exact, ReadsBackAsTheSameNumber) {
  EXPECT_TRUE(rc::check([](std::int32_t numerator) {
    const float f = static_cast<float>(numerator) / 7.0F;
    RC_ASSERT(std::strtof(exact(f).c_str(), nullptr) == f);
    const double d = numerator / 7.0;
    RC_ASSERT(std::strtod(exact(d).c_str(), nullptr) == d);
  }));
}

TEST(Exact, IsShort) {
  EXPECT_EQ(exact(0.1F), "0.1");
  EXPECT_EQ(exact(1e-3), "0.001");
  EXPECT_EQ(exact(1.0), "1");
}

TEST(Utf8, AcceptsWellFormedText) {
  EXPECT_TRUE(is_utf8("plain, \xC3\xBC, \xE2\x82\xAC, \xF0\x9F\x98\x80"));
  EXPECT_TRUE(is_utf8(""));
}

TEST(Utf8, RejectsWhatTheStandardForbids) {
  EXPECT_FALSE(is_utf8("\x80")) << "continuation without lead";
  EXPECT_FALSE(is_utf8("\xC0\xAF")) << "overlong";
  EXPECT_FALSE(is_utf8("\xE0\x80\x80")) << "overlong";
  EXPECT_FALSE(is_utf8("\xED\xA0\x80")) << "surrogate";
  EXPECT_FALSE(is_utf8("\xF4\x90\x80\x80")) << "above U+10FFFF";
  EXPECT_FALSE(is_utf8("\xE2\x82")) << "cut off";
}

TEST(Utf8, PrefixEndsAtTheFirstBadByte) {
  EXPECT_EQ(utf8_prefix("ab\xC3\xBC\xFFzz"), 4U);
  EXPECT_EQ(utf8_prefix("abc"), 3U);
}

TEST(Printable, ReplacesWhatWouldHarmATerminal) {
  EXPECT_EQ(printable("a\x1b[2J\n\xFF\xC3\xBC"), "a?[2J?\xEF\xBF\xBD\xC3\xBC");
}

TEST(Printable, ReplacesWhatWouldSteerTheTextAfterIt) {
  for (const char* steering : {"\u0080", "\u009B", "\u009F", "\u061C", "\u200E", "\u200F", "\u2028",
                               "\u2029", "\u202A", "\u202E", "\u2066", "\u2069", "\uFEFF"}) {
    EXPECT_EQ(printable(fmt::format("a{}b", steering)), "a?b") << steering;
  }
  const std::string harmless = "\u00A0\u200D\u2026\u2030\u2065\u206A\uFEFE\U0001F600";
  EXPECT_EQ(printable(harmless), harmless);
}

TEST(Printable, CutsLongText) {
  EXPECT_EQ(printable("abcdef", 3), "abc…");
  EXPECT_EQ(printable("abc", 3), "abc");
}

TEST(Printable, AlwaysGivesUtf8) {
  EXPECT_TRUE(
      rc::check([](const std::string& bytes) { RC_ASSERT(is_utf8(printable(bytes, 20))); }));
}

}  // namespace
}  // namespace moestro
