#include "moestro/core/toml_text.h"

#include <algorithm>

#include "moestro/core/text.h"

namespace moestro {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // no character of the first line

std::string_view line_of(std::string_view text, std::size_t line) {
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
    text.remove_prefix(kByteOrderMark.size());
  }
  for (; line > 1; --line) {
    const std::size_t newline = text.find('\n');
    if (newline == std::string_view::npos) return {};
    text.remove_prefix(newline + 1);
  }
  return text.substr(0, text.find('\n'));
}

/// Bytes before a column of a line.
std::size_t offset_of(std::string_view line, std::size_t column) {
  constexpr unsigned char kContinuation = 0x80, kContinuationMask = 0xC0;
  std::size_t offset = 0;
  for (; column > 1 && offset < line.size(); --column) {
    ++offset;
    while (offset < line.size() &&
           (static_cast<unsigned char>(line[offset]) & kContinuationMask) == kContinuation) {
      ++offset;
    }
  }
  return offset;
}

}  // namespace

std::string_view text_between(std::string_view text, TextPlace begin, TextPlace end) {
  if (begin.line == 0 || begin.column == 0) return {};
  const std::string_view line = line_of(text, begin.line);
  const std::size_t first = offset_of(line, begin.column);
  const std::size_t last = end.line == begin.line ? offset_of(line, end.column) : line.size();
  return trim(line.substr(first, std::max(last, first) - first));
}

}  // namespace moestro
