#pragma once
// Small text functions every reader of user input needs: nearest spelling, split, join, number
// formatting that a person can read and a program can read back.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moestro {

/// Number of single-character edits (insert, delete, replace, swap of neighbours) from a to b.
/// Cost: O(|a| * |b|).
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate closest to `word`, or empty when none is near enough to be a misspelling
/// (more than a third of its letters differ) or it differs in its digits alone and is a different
/// thing ("bf16" for "bf17", "llama4" for "llama"; not "bf16" for "bf6").
[[nodiscard]] std::string nearest(std::string_view word,
                                  const std::vector<std::string>& candidates);

/// The parts between separators; always one more than there are separators.
[[nodiscard]] std::vector<std::string> split(std::string_view text, char separator);
/// The parts with the separator between them.
[[nodiscard]] std::string join(const std::vector<std::string>& parts, std::string_view separator);
/// Without spaces, tabs and line ends at both ends.
[[nodiscard]] std::string_view trim(std::string_view text);

/// With a to z for A to Z.
[[nodiscard]] std::string lower(std::string_view text);

/// 671026419200 -> "671,026,419,200".
[[nodiscard]] std::string with_thousands(std::int64_t value);

/// Shortest decimal text that reads back as the same float (or double).
[[nodiscard]] std::string exact(float value);
[[nodiscard]] std::string exact(double value);

/// The same, but whole numbers below 1e15 without an exponent: 1000000, not 1e+06.
[[nodiscard]] std::string plain(double value);

/// Bytes of the longest prefix that is well-formed UTF-8 (no overlong forms, no surrogates).
[[nodiscard]] std::size_t utf8_prefix(std::string_view bytes);

/// Whether all bytes are well-formed UTF-8.
[[nodiscard]] bool is_utf8(std::string_view bytes);

/// Replaces malformed bytes by U+FFFD and what steers a terminal by '?': control characters, line
/// separators, marks of writing direction. So untrusted text can be printed; cuts after `limit`
/// bytes with "…".
[[nodiscard]] std::string printable(std::string_view bytes, std::size_t limit = 120);

}  // namespace moestro
