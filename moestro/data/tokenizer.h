#pragma once
// Text to token ids and back. A tokenizer is plain data; encode and decode are free functions.
//
//   const Tokenizer tokenizer = make_tokenizer("byte", "run.toml data.tokenizer");
//   std::vector<Token> ids = encode(tokenizer, "text");   // {116, 101, 120, 116}

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moestro::data {

/// A token id.
using Token = std::int32_t;

enum class TokenizerKind {
  byte,  ///< one token per byte: ids 0..255
};

struct Tokenizer {
  TokenizerKind kind = TokenizerKind::byte;
  std::string name = "byte";      // as the run file spells it
  std::int64_t vocab_size = 256;  // ids are 0 .. vocab_size - 1
};

/// The tokenizer of that name. Errors: input at `where`, listing the choices.
[[nodiscard]] Tokenizer make_tokenizer(std::string_view name,
                                       std::string_view where = "data.tokenizer");

/// Ids of a text; any bytes are accepted.
[[nodiscard]] std::vector<Token> encode(const Tokenizer& tokenizer, std::string_view text);

/// The same, appended to a stream.
void append_encoded(const Tokenizer& tokenizer, std::string_view text, std::vector<Token>& stream);

/// The text of ids: decode(encode(text)) == text. An id that the tokenizer does not have becomes
/// U+FFFD, since a model may have a larger vocabulary than its tokenizer and choose such an id.
[[nodiscard]] std::string decode(const Tokenizer& tokenizer, std::span<const Token> ids);

}  // namespace moestro::data
