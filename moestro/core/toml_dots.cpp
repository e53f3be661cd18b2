#include "moestro/core/toml_dots.h"

#include <algorithm>

namespace moestro {
namespace {

bool has_triple(std::string_view toml, std::size_t at, char quote) {
  return toml.size() - at >= 3 && toml[at] == quote && toml[at + 1] == quote &&
         toml[at + 2] == quote;
}

/// The position after a string of one line that starts at `at`; it ends at the line's end at most.
std::size_t after_string(std::string_view toml, std::size_t at) {
  const char quote = toml[at];
  for (++at; at < toml.size() && toml[at] != '\n'; ++at) {
    if (toml[at] == quote) return at + 1;
    if (toml[at] == '\\' && quote == '"') ++at;
  }
  return std::min(at, toml.size());
}

/// The position after a string in triple quotes that starts at `at`. Its text may end in one or two
/// quotes of the same kind.
std::size_t after_long_string(std::string_view toml, std::size_t at) {
  const char quote = toml[at];
  for (at += 3; at < toml.size(); ++at) {
    if (has_triple(toml, at, quote)) {
      std::size_t end = at + 3;
      while (end < toml.size() && end < at + 5 && toml[end] == quote) ++end;
      return end;
    }
    if (toml[at] == '\\' && quote == '"') ++at;
  }
  return toml.size();
}

}  // namespace

std::size_t dots_outside_quotes(std::string_view toml) {
  std::size_t dots = 0;
  for (std::size_t at = 0; at < toml.size();) {
    const char c = toml[at];
    if (c == '#') {
      at = std::min(toml.find('\n', at), toml.size());
    } else if (c == '"' || c == '\'') {
      at = has_triple(toml, at, c) ? after_long_string(toml, at) : after_string(toml, at);
    } else {
      dots += c == '.' ? 1 : 0;
      ++at;
    }
  }
  return dots;
}

}  // namespace moestro
