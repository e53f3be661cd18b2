#pragma once
// Reading and writing JSON files. The library itself (nlohmann) is seen by .cpp files only.

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace moestro {

/// Objects keep the order of the file.
using Json = nlohmann::ordered_json;

/// Parses a document. Accepts what Python writes for non-finite numbers (NaN, Infinity, -Infinity)
/// and {"__float__": "Infinity"} (transformers v5), which become floating-point values.
/// Cost: n log n in the text; finding a key by name takes linear time, so walk large objects.
/// Errors: input, with line and column, for malformed text, duplicate keys, or nesting over 128.
[[nodiscard]] Json parse_json(std::string_view text, std::string_view where);

/// How a document writes its numbers that are no 64-bit integers: value -> text.
using NumberTexts = std::map<double, std::string>;

/// The same, and adds to `numbers`, so that messages can quote "1e5" or "99999999999999999999".
[[nodiscard]] Json parse_json(std::string_view text, std::string_view where, NumberTexts& numbers);

/// A value on one line as `numbers` writes it, non-finite numbers as Python does; for messages:
/// printable, cut after `limit` bytes with "…".
[[nodiscard]] std::string shown(const Json& value, const NumberTexts& numbers, std::size_t limit);

/// Reads and parses a file. Errors: as read_file and parse_json.
[[nodiscard]] Json read_json_file(const std::filesystem::path& path);

/// Writes atomically with two-space indentation and a final newline. Errors: io.
void write_json_file(const std::filesystem::path& path, const Json& json);

}  // namespace moestro
