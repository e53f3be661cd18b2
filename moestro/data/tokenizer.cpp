#include "moestro/data/tokenizer.h"

#include "moestro/core/error.h"
#include "moestro/core/text.h"

namespace moestro::data {

Tokenizer make_tokenizer(std::string_view name, std::string_view where) {
  if (name == "byte") return {};
  throw input_error(where, "expected a tokenizer, got \"{}\"; the choices are: \"byte\"",
                    printable(name));
}

std::vector<Token> encode(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<Token> ids;
  ids.reserve(text.size());
  append_encoded(tokenizer, text, ids);
  return ids;
}

void append_encoded(const Tokenizer& /*only one kind*/, std::string_view text,
                    std::vector<Token>& stream) {
  for (const char c : text) stream.push_back(static_cast<unsigned char>(c));
}

std::string decode(const Tokenizer& tokenizer, std::span<const Token> ids) {
  std::string text;
  text.reserve(ids.size());
  for (const Token id : ids) {
    if (id >= 0 && id < tokenizer.vocab_size) {
      text += static_cast<char>(id);
    } else {
      text += "\xEF\xBF\xBD";
    }
  }
  return text;
}

}  // namespace moestro::data
