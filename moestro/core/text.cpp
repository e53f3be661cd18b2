#include "moestro/core/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <utility>

namespace moestro {
namespace {

template <class T>
std::string shortest(T value) {
  std::array<char, 64> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return std::string(buffer.data(), result.ptr);
}

/// Length of the well-formed UTF-8 sequence at the start of `s`, or 0.
std::size_t utf8_length(std::string_view s) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t n = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || s.size() < n) return 0;
  for (std::size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  const bool surrogate = lead == 0xED && byte(1) > 0x9F;
  const bool too_large = lead == 0xF4 && byte(1) > 0x8F;
  return overlong || surrogate || too_large ? 0 : n;
}

/// The code point of one well-formed UTF-8 sequence.
char32_t code_point(std::string_view sequence) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(sequence[i]); };
  if (sequence.size() == 1) return byte(0);
  char32_t code = byte(0) & (0x7FU >> sequence.size());
  for (std::size_t i = 1; i < sequence.size(); ++i) code = code << 6U | (byte(i) & 0x3FU);
  return code;
}

/// Control characters, line separators, a byte order mark, and marks that turn the direction of the
/// text after them.
bool steers_terminal(char32_t code) {
  struct Interval {
    char32_t first, last;
  };
  constexpr std::array<Interval, 7> kSteering = {{{0x0, 0x1F},
                                                  {0x7F, 0x9F},
                                                  {0x61C, 0x61C},
                                                  {0x200E, 0x200F},
                                                  {0x2028, 0x202E},
                                                  {0x2066, 0x2069},
                                                  {0xFEFF, 0xFEFF}}};
  return std::any_of(kSteering.begin(), kSteering.end(), [code](const Interval& interval) {
    return interval.first <= code && code <= interval.last;
  });
}

/// The letters of a name, or its digits.
std::string only(std::string_view name, bool digits) {
  std::string kept;
  for (const char c : name) {
    const bool is_digit = c >= '0' && c <= '9';
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (digits ? is_digit : is_letter) kept += c;
  }
  return kept;
}

/// Whether names differ in their digits alone, other than by a digit left out of several.
bool are_different_numbers(std::string_view a, std::string_view b) {
  const std::string x = only(a, true), y = only(b, true);
  return only(a, false) == only(b, false) && x != y &&
         (x.size() == y.size() || x.empty() || y.empty());
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, replace});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, previous);
    std::swap(previous, row);
  }
  return previous[b.size()];
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  std::pair best_rank(std::max<std::size_t>(1, word.size() / 3) + 1, false);
  for (const std::string& candidate : candidates) {
    const std::pair rank(edit_distance(word, candidate), are_different_numbers(word, candidate));
    if (rank < best_rank) {
      best_rank = rank;
      best = candidate;
    }
  }
  return best_rank.second ? "" : best;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end = text.find(separator); end != std::string_view::npos;
       end = text.find(separator, begin)) {
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  parts.emplace_back(text.substr(begin));
  return parts;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (const std::string& part : parts) {
    if (&part != &parts.front()) text += separator;
    text += part;
  }
  return text;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

std::string with_thousands(std::int64_t value) {
  std::string digits = std::to_string(value);
  const std::size_t first = value < 0 ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, 1, ',');
  }
  return digits;
}

std::string exact(float value) {
  return shortest(value);
}
std::string exact(double value) {
  return shortest(value);
}

std::string plain(double value) {
  constexpr double kLargest = 1e15;
  const bool is_whole = std::abs(value) < kLargest && std::floor(value) == value;
  return is_whole ? std::to_string(static_cast<std::int64_t>(value)) : exact(value);
}

std::size_t utf8_prefix(std::string_view bytes) {
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const std::size_t n = utf8_length(rest);
    if (n == 0) break;
    rest.remove_prefix(n);
  }
  return bytes.size() - rest.size();
}

bool is_utf8(std::string_view bytes) {
  return utf8_prefix(bytes) == bytes.size();
}

std::string printable(std::string_view bytes, std::size_t limit) {
  std::string text;
  while (!bytes.empty()) {
    if (text.size() >= limit) return text + "…";
    const std::size_t n = utf8_length(bytes);
    const std::string_view sequence = bytes.substr(0, n);
    if (n == 0) {
      text += "\xEF\xBF\xBD";
    } else if (steers_terminal(code_point(sequence))) {
      text += '?';
    } else {
      text += sequence;
    }
    bytes.remove_prefix(std::max<std::size_t>(n, 1));
  }
  return text;
}

}  // namespace moestro
