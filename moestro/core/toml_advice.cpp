#include "moestro/core/toml_advice.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "moestro/core/text.h"

namespace moestro {
namespace {

constexpr std::size_t kShownBytes = 60;  // of a value in a message
constexpr std::string_view kDigits = "0123456789";

std::string shown(std::string_view text) {
  return printable(text, kShownBytes);
}

bool mentions(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// What stands right of the equals sign; the whole line in a list of several lines.
std::string_view value_of_line(std::string_view line) {
  return trim(key_of_line(line).empty() ? line : line.substr(line.find('=') + 1));
}

/// Bytes of the quoted text that `text` begins with; npos if it is not closed.
std::size_t quoted_length(std::string_view text) {
  const char quote = text.front();
  for (std::size_t at = 1; at < text.size(); ++at) {
    if (text[at] == quote) return at + 1;
    if (text[at] == '\\' && quote == '"') ++at;
  }
  return std::string_view::npos;
}

/// From the quote that nothing closes on; empty if there is none.
std::string_view open_quote(std::string_view text) {
  while (true) {
    text.remove_prefix(std::min(text.find_first_of("\"'#"), text.size()));
    if (text.empty() || text.front() == '#') return {};
    const std::size_t length = quoted_length(text);
    if (length == std::string_view::npos) return text;
    text.remove_prefix(length);
  }
}

/// Whether a value that begins so was meant as text: no number, no list, no table.
bool begins_like_text(std::string_view value) {
  const char first = value.front();
  const bool is_fraction = first == '.' && value.substr(1).find_first_of(kDigits) == 0;
  return !is_fraction && (is_letter(first) || static_cast<unsigned char>(first) >= 0x80 ||
                          mentions("/._~\\$", value.substr(0, 1)));
}

/// The first value of a line, or of a list in it, that is text without quotes; empty if there is
/// none.
std::string_view bare_text(std::string_view values) {
  constexpr std::array<std::string_view, 4> kWords = {"true", "false", "inf", "nan"};
  for (values = trim(values); !values.empty() && values.front() != '#'; values = trim(values)) {
    std::size_t length = 1;
    if (values.front() == '"' || values.front() == '\'') {
      length = std::min(quoted_length(values), values.size());
    } else if (!mentions("[],", values.substr(0, 1))) {
      length = std::min(values.find_first_of(",]#"), values.size());
      const std::string_view value = trim(values.substr(0, length));
      const bool is_word = std::find(kWords.begin(), kWords.end(), value) != kWords.end();
      if (!is_word && begins_like_text(value)) return value;
    }
    values.remove_prefix(length);
  }
  return {};
}

/// Without quotes at its ends, be they such as a word processor makes.
std::string_view without_quotes(std::string_view text) {
  constexpr std::array<std::string_view, 7> kQuotes = {"\"", "'", "“", "”", "„", "‘", "’"};
  const auto strip = [&text](std::string_view quote) {
    const bool is_first = text.starts_with(quote);
    const bool is_last = !is_first && text.ends_with(quote);
    if (is_first) text.remove_prefix(quote.size());
    if (is_last) text.remove_suffix(quote.size());
    return is_first || is_last;
  };
  while (std::any_of(kQuotes.begin(), kQuotes.end(), strip)) continue;
  return text;
}

std::string in_quotes(std::string_view text) {
  const char quote = mentions(text, "\\") || mentions(text, "\"") ? '\'' : '"';
  return fmt::format("{}{}{}", quote, shown(text), quote);
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

std::string advice_on_bare_text(std::string_view line, std::string_view text) {
  const std::string word = lower(text);
  if (word == "true" || word == "false") {
    return fmt::format("expected true or false, got {}; write {}", text, word);
  }
  const std::string_view key = key_of_line(line);
  const bool is_alone = !key.empty() && value_of_line(line).starts_with(text);
  return fmt::format(
      "expected a number, true, false or text in quotes, got {}; put text in quotes: {}{}",
      shown(text), is_alone ? fmt::format("{} = ", shown(key)) : "",
      in_quotes(without_quotes(text)));
}

std::string advice_on_quoted_text(std::string_view line, std::string_view description) {
  if (mentions(description, "escape sequence") || mentions(description, "unicode scalar")) {
    return fmt::format("expected no \\ in double quotes, got {}; use / or single quotes",
                       shown(value_of_line(line)));
  }
  const std::string_view open = open_quote(line);
  if (open.empty()) return "";
  return fmt::format("expected text in quotes, got {}; close the quote", shown(open));
}

std::string advice_on_large_number(std::string_view line) {
  using Limits = std::numeric_limits<std::int64_t>;
  const std::string_view value = value_of_line(line);
  const std::string bound = value.starts_with('-') ? fmt::format(">= {}", Limits::min())
                                                   : fmt::format("<= {}", Limits::max());
  return fmt::format("expected a whole number {}, got {}; write one within it", bound,
                     shown(value));
}

std::string advice(std::string_view line, std::string_view description) {
  constexpr std::string_view kParsing = "Error while parsing ";
  if (!description.starts_with(kParsing)) return "";
  const std::string_view what =
      description.substr(kParsing.size(), description.find(':') - kParsing.size());
  if (mentions(description, "not representable in 64 bits")) return advice_on_large_number(line);
  if (what == "value" || what == "boolean" || what == "floating-point") {
    const std::string_view text = bare_text(value_of_line(line));
    return text.empty() ? "" : advice_on_bare_text(line, text);
  }
  const bool is_text =
      what == "string" || what == "literal string" || what == "unicode scalar sequence";
  return is_text ? advice_on_quoted_text(line, description) : "";
}

}  // namespace

std::string_view key_of_line(std::string_view line) {
  const std::size_t equals = line.find('=');
  if (equals == std::string_view::npos) return {};
  const std::string_view key = trim(line.substr(0, equals));
  const bool is_key = key.size() <= kShownBytes && std::all_of(key.begin(), key.end(), [](char c) {
                        return is_letter(c) || mentions("0123456789_-.", {&c, 1});
                      });
  return is_key ? key : std::string_view();
}

std::string toml_advice(std::string_view line, std::string_view description) {
  std::string better = advice(line, description);
  if (!better.empty()) return better;
  return fmt::format("expected TOML: {}; {}", printable(description, 200),
                     mentions(description, "end-of-file") ? "close what is open, a quote or a list"
                                                          : "correct this line");
}

}  // namespace moestro
