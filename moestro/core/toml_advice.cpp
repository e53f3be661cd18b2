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

bool is_key(std::string_view text) {
  return text.size() <= kShownBytes && std::all_of(text.begin(), text.end(), [](char c) {
           return is_letter(c) || mentions("0123456789_-.", {&c, 1});
         });
}

/// The key of a line `key = value`, or empty.
std::string_view key_of_line(std::string_view line) {
  const std::size_t equals = line.find('=');
  if (equals == std::string_view::npos) return {};
  const std::string_view key = trim(line.substr(0, equals));
  return is_key(key) ? key : std::string_view();
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

/// Without the quotes of a word processor at its ends.
std::string_view without_quotes(std::string_view text) {
  constexpr std::array<std::string_view, 5> kQuotes = {"“", "”", "„", "‘", "’"};
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

/// `key = "text"`; empty where it would be cut, or might not be what was meant: several texts, or
/// a comment of another language.
std::string example(std::string_view key, std::string_view text) {
  for (const std::string_view part : {"\"", ",", ";", "//"}) {
    if (mentions(text, part)) return "";
  }
  const bool has_backslash = mentions(text, "\\");
  if (shown(text) != text || (has_backslash && mentions(text, "'"))) return "";
  const char quote = has_backslash ? '\'' : '"';
  return fmt::format(": {}{}{}{}{}", key, key.empty() ? "" : " = ", quote, without_quotes(text),
                     quote);
}

/// Whether a word in lower case might mean true or false.
bool is_like_truth(const std::string& word) {
  constexpr std::array<std::string_view, 4> kWords = {"yes", "no", "on", "off"};
  return std::find(kWords.begin(), kWords.end(), word) != kWords.end() ||
         !nearest(word, {"true", "false"}).empty();
}

std::string advice_on_bare_text(std::string_view line, std::string_view text) {
  std::string_view key = key_of_line(line);
  const std::string_view value = value_of_line(line);
  if (!value.starts_with(text)) {
    key = {};  // one text of a list
  } else if (!key.empty()) {
    text = trim(value.substr(0, value.find(" #")));
  }
  const std::string word = lower(text);
  if (word == "true" || word == "false") {
    return fmt::format("expected true or false, got {}; write {}", text, word);
  }
  return fmt::format("expected a number, true, false or text in quotes, got {}; {}", shown(text),
                     is_like_truth(word) ? "write true or false, or put text in quotes"
                                         : "put text in quotes" + example(key, text));
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
  if (value.substr(value.starts_with('-')).find_first_not_of(kDigits) != std::string_view::npos) {
    return fmt::format("expected a number of at most 64 bits, got {}; write a smaller one",
                       shown(value));
  }
  const std::string bound = value.starts_with('-') ? fmt::format(">= {}", Limits::min())
                                                   : fmt::format("<= {}", Limits::max());
  return fmt::format("expected a whole number {}, got {}; write one within it", bound,
                     shown(value));
}

bool is_value(std::string_view what) {
  return what == "value" || what == "boolean" || what == "floating-point";
}

/// Whether a line is part of a list that begins above it, though it looks like none: `key = value`
/// or `[section]`. `rest` is the line from the error on.
bool is_in_list_above(std::string_view line, std::string_view rest) {
  const std::string_view text = trim(line.substr(0, line.find('#')));
  const bool is_header = text.size() > 2 && text.front() == '[' && text.back() == ']' &&
                         is_key(text.substr(1, text.size() - 2));
  const std::size_t equals = line.find('=');
  return is_header || (equals != std::string_view::npos && rest.size() >= line.size() - equals);
}

/// Empty where the parser says it best.
std::string advice(std::string_view line, std::string_view what, std::string_view description) {
  if (mentions(description, "not representable in 64 bits")) return advice_on_large_number(line);
  if (is_value(what)) {
    const std::string_view text = bare_text(value_of_line(line));
    return text.empty() ? "" : advice_on_bare_text(line, text);
  }
  const bool is_text =
      what == "string" || what == "literal string" || what == "unicode scalar sequence";
  return is_text ? advice_on_quoted_text(line, description) : "";
}

}  // namespace

TomlAdvice toml_advice(std::string_view line, std::string_view rest, std::string_view description) {
  constexpr std::string_view kParsing = "Error while parsing ";
  const std::string_view what =
      description.starts_with(kParsing)
          ? description.substr(kParsing.size(), description.find(':') - kParsing.size())
          : "";
  if ((is_value(what) || what == "array") && is_in_list_above(line, rest)) {
    return {{},
            fmt::format("expected an entry of a list, got {}; close the list above with ], or put "
                        "text in quotes",
                        shown(line))};
  }
  const std::string_view key = key_of_line(line);
  std::string better = advice(line, what, description);
  if (!better.empty()) return {key, better};
  const std::string parser = fmt::format("expected TOML: {}; ", printable(description, 200));
  if (mentions(description, "end-of-file") && what != "key-value pair") {
    return {{}, parser + "close what is open, a quote or a list"};
  }
  return {key, parser + "correct this line"};
}

}  // namespace moestro
