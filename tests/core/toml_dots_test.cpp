#include "moestro/core/toml_dots.h"

#include <gtest/gtest.h>

#include <string>

namespace moestro {
namespace {

TEST(TomlDots, CountsKeysAndNumbers) {
  EXPECT_EQ(dots_outside_quotes(""), 0U);
  EXPECT_EQ(dots_outside_quotes("[a.b]\nc . d = 1.5\n\"x\".'y' = 1"), 4U);
}

TEST(TomlDots, SkipsStrings) {
  EXPECT_EQ(dots_outside_quotes(R"(a = ["x.txt", 'y.txt', "q\".txt", 'z\'].b = 1)"), 1U);
  EXPECT_EQ(dots_outside_quotes("a = \"\"\nb.c = ''"), 1U);
}

TEST(TomlDots, SkipsLongStrings) {
  EXPECT_EQ(dots_outside_quotes("a = \"\"\"x.y\n\".\\\"\"\".\"\"\"\nb.c = 1"), 1U);
  EXPECT_EQ(dots_outside_quotes("a = '''x.y\n'.\\'''\nb.c = 1"), 1U);
  EXPECT_EQ(dots_outside_quotes("a = \"\"\"x.\"\"\"\"\"\nb.c = 1"), 1U) << "five quotes";
}

TEST(TomlDots, SkipsComments) {
  EXPECT_EQ(dots_outside_quotes("# a.b \" '\nb.c = 1 # d."), 1U);
}

TEST(TomlDots, EndsBrokenStringsAtTheLine) {
  EXPECT_EQ(dots_outside_quotes("a = \"x.\nb.c = 1"), 1U);
  EXPECT_EQ(dots_outside_quotes("a = \"x.\\"), 0U);
  EXPECT_EQ(dots_outside_quotes("a = '''x."), 0U);
}

}  // namespace
}  // namespace moestro
