#include "moestro/data/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "moestro/core/error.h"

namespace moestro::data {
namespace {

TEST(ByteTokenizer, EncodesEveryByteAsItsValue) {
  const Tokenizer tokenizer = make_tokenizer("byte");
  EXPECT_EQ(tokenizer.vocab_size, 256);
  EXPECT_EQ(tokenizer.name, "byte");
  EXPECT_THAT(encode(tokenizer, "aé\n"), testing::ElementsAre(97, 0xC3, 0xA9, 10));
  EXPECT_TRUE(encode(tokenizer, "").empty());
}

TEST(ByteTokenizer, DecodeUndoesEncode) {
  const bool holds = rc::check("decode(encode(text)) == text", [](const std::string& text) {
    const Tokenizer tokenizer = make_tokenizer("byte");
    RC_ASSERT(decode(tokenizer, encode(tokenizer, text)) == text);
  });
  EXPECT_TRUE(holds);
}

TEST(ByteTokenizer, ShowsIdsItDoesNotHaveAsReplacementCharacters) {
  const std::vector<Token> ids = {'a', 256, -1, 'b'};
  EXPECT_EQ(decode(make_tokenizer("byte"), ids),
            "a\xEF\xBF\xBD\xEF\xBF\xBD"
            "b");
}

TEST(MakeTokenizer, ListsTheChoicesForAnUnknownName) {
  try {
    (void)make_tokenizer("bpe", "run.toml data.tokenizer");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    EXPECT_STREQ(error.what(),
                 "[run.toml data.tokenizer] expected a tokenizer, got \"bpe\"; the choices are: "
                 "\"byte\"");
  }
}

}  // namespace
}  // namespace moestro::data
