#pragma once
// Reading and writing JSON files. The library itself (nlohmann) is seen by .cpp files only.

#include <filesystem>
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

/// Reads and parses a file. Errors: as read_file and parse_json.
[[nodiscard]] Json read_json_file(const std::filesystem::path& path);

/// Writes atomically with two-space indentation and a final newline. Errors: io.
void write_json_file(const std::filesystem::path& path, const Json& json);

}  // namespace moestro
