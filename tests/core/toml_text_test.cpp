#include "moestro/core/toml_text.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

TEST(TextBetween, CountsCharactersNotBytes) {
  constexpr std::string_view kText = "a = 1\n\u00e9\u20ac = 2.50 # x\r\nlast";
  EXPECT_EQ(text_between(kText, {1, 5}, {1, 6}), "1");
  EXPECT_EQ(text_between(kText, {2, 6}, {2, 10}), "2.50");
  EXPECT_EQ(text_between(kText, {2, 6}, {3, 2}), "2.50 # x");  // to the end of the first line
  EXPECT_EQ(text_between(kText, {3, 1}, {3, 99}), "last");
}

TEST(TextBetween, SkipsAByteOrderMark) {
  EXPECT_EQ(text_between("\xEF\xBB\xBF"
                         "ab",
                         {1, 2}, {1, 3}),
            "b");
}

TEST(TextBetween, IsEmptyWhereThereIsNoText) {
  EXPECT_EQ(text_between("", {1, 1}, {1, 2}), "");
  EXPECT_EQ(text_between("ab", {0, 0}, {0, 0}), "");
  EXPECT_EQ(text_between("ab", {5, 1}, {5, 2}), "");
  EXPECT_EQ(text_between("ab", {1, 9}, {1, 12}), "");
  EXPECT_EQ(text_between("ab", {1, 2}, {1, 1}), "");
}

}  // namespace
}  // namespace moestro
