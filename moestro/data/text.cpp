#include "moestro/data/text.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "moestro/core/error.h"
#include "moestro/core/file.h"
#include "moestro/core/text.h"

namespace moestro::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

void require_utf8(const std::string& text, const std::string& file) {
  const std::size_t offset = utf8_prefix(text);
  if (offset == text.size()) return;
  const auto line =
      1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(offset), '\n');
  const bool is_utf16 = text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF");
  const bool is_binary = !is_utf16 && text.find('\0') != std::string::npos;
  throw input_error(fmt::format("{}:{}", file, line),
                    "expected UTF-8 text, got byte 0x{:02X} at byte {} of the file; {}",
                    static_cast<unsigned char>(text[offset]), offset,
                    is_binary ? "it holds bytes of 0, as no text does: name another file"
                              : fmt::format("convert it, e.g. `iconv -f {} -t UTF-8`",
                                            is_utf16 ? "UTF-16" : "ISO-8859-1"));
}

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

/// The line start nearest to `target` that leaves both parts non-empty, or npos.
std::size_t nearest_line_start(std::string_view text, std::size_t target) {
  constexpr std::size_t npos = std::string_view::npos;
  const std::size_t before = target > 0 ? text.rfind('\n', target - 1) : npos;
  const std::size_t after = text.find('\n', target);
  const bool has_after = after != npos && after + 1 < text.size();
  if (before == npos) return has_after ? after + 1 : npos;
  const bool after_is_nearer = has_after && after + 1 - target < target - (before + 1);
  return after_is_nearer ? after + 1 : before + 1;
}

std::int64_t total(std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

}  // namespace

std::string read_text(const std::filesystem::path& path) {
  std::string text = read_file(path);
  require_utf8(text, path.string());
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  if (text.empty()) {
    throw input_error(path.string(),
                      "expected text, got an empty file; name a file with text in it");
  }
  return text;
}

TextSplit split_held_out(std::string_view text, double fraction, std::string_view where) {
  if (!(fraction >= 0.0 && fraction < 1.0)) {
    throw input_error(where, "expected a fraction from 0 to below 1, got {}; write e.g. 0.05",
                      fraction);
  }
  const auto wanted =
      static_cast<std::size_t>(std::llround(fraction * static_cast<double>(text.size())));
  if (wanted == 0) return {text, {}};
  std::size_t cut = nearest_line_start(text, text.size() - wanted);
  const std::size_t held_out = cut == std::string_view::npos ? 0 : text.size() - cut;
  if (held_out < wanted - wanted / 2 || held_out / 2 > wanted) {
    cut = text.size() - wanted;
    while (cut < text.size() && is_continuation(text[cut])) ++cut;
  }
  return {text.substr(0, cut), text.substr(cut)};
}

std::vector<std::int64_t> token_counts(std::span<const Token> tokens, std::int64_t vocab_size) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(vocab_size));
  for (const Token token : tokens) {
    MOESTRO_CHECK(token >= 0 && token < vocab_size, "token {} of a vocabulary of {}", token,
                  vocab_size);
    ++counts[static_cast<std::size_t>(token)];
  }
  return counts;
}

double unigram_entropy(std::span<const std::int64_t> counts) {
  const auto sum = static_cast<double>(total(counts));
  double entropy = 0.0;
  for (const std::int64_t count : counts) {
    if (count == 0) continue;
    const double p = static_cast<double>(count) / sum;
    entropy -= p * std::log(p);
  }
  return entropy;
}

}  // namespace moestro::data
