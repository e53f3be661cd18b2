#pragma once
// Quotes a document: the text between two places, as the TOML parser counts them.

#include <cstddef>
#include <string_view>

namespace moestro {

/// A place in a text, both numbers from 1; columns are characters (code points), not bytes.
struct TextPlace {
  std::size_t line = 0;
  std::size_t column = 0;
};

/// The bytes from `begin` up to `end`, at most to the end of the first line; empty where the text
/// has no such place. Cost: O(|text|).
[[nodiscard]] std::string_view text_between(std::string_view text, TextPlace begin, TextPlace end);

}  // namespace moestro
