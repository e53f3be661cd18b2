#include "moestro/core/json.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "moestro/core/error.h"
#include "moestro/core/file.h"
#include "moestro/core/text.h"

namespace moestro {
namespace {

constexpr std::size_t kMaxDepth = 128;  // deeper documents are attacks on the stack, not configs

/// Line and column (from 1) of a byte offset.
std::string position(std::string_view text, std::size_t offset) {
  offset = std::min(offset, text.size());
  std::size_t line = 1, column = 1;
  for (std::size_t i = 0; i < offset; ++i) {
    ++column;
    if (text[i] == '\n') {
      ++line;
      column = 1;
    }
  }
  return fmt::format("line {}, column {}", line, column);
}

/// Rewrites the bare words NaN, Infinity and -Infinity, which Python writes and JSON lacks, to the
/// object transformers v5 uses for them; text inside strings is left alone.
std::string quote_non_finite(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      out += c;
      if (c == '\\' && i + 1 < text.size())
        out += text[++i];
      else if (c == '"')
        in_string = false;
      continue;
    }
    bool replaced = false;
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
      if (text.substr(i, word.size()) == word) {
        out += fmt::format(R"({{"__float__":"{}"}})", word);
        i += word.size() - 1;
        replaced = true;
        break;
      }
    }
    if (replaced) continue;
    in_string = c == '"';
    out += c;
  }
  return out;
}

template <class AnyJson>
std::optional<double> non_finite(const AnyJson& value) {
  if (!value.is_object() || value.size() != 1 || !value.contains("__float__")) return std::nullopt;
  const AnyJson& word = value["__float__"];
  if (word == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (word == "Infinity") return std::numeric_limits<double>::infinity();
  if (word == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

template <class AnyJson>
void restore_non_finite(AnyJson& value) {
  if (const auto number = non_finite(value)) {
    value = *number;
  } else if (value.is_structured()) {
    for (AnyJson& child : value) restore_non_finite(child);
  }
}

template <class AnyJson>
AnyJson parse(std::string_view text, std::string_view where) {
  std::vector<std::set<std::string>> keys;
  const auto guard = [&](int depth, typename AnyJson::parse_event_t event, AnyJson& parsed) {
    if (static_cast<std::size_t>(depth) > kMaxDepth) {
      throw input_error(where, "expected JSON nested at most {} deep; this file is deeper",
                        kMaxDepth);
    }
    if (event == AnyJson::parse_event_t::object_start) keys.emplace_back();
    if (event == AnyJson::parse_event_t::object_end) keys.pop_back();
    if (event == AnyJson::parse_event_t::key &&
        !keys.back().insert(parsed.template get<std::string>()).second) {
      throw input_error(where, "key \"{}\" occurs twice in one object; remove one of them",
                        printable(parsed.template get<std::string>()));
    }
    return true;
  };
  const bool may_be_non_finite =
      text.find("NaN") != std::string_view::npos || text.find("Infinity") != std::string_view::npos;
  const std::string source = may_be_non_finite ? quote_non_finite(text) : std::string(text);
  try {
    AnyJson json = AnyJson::parse(source, guard);
    if (may_be_non_finite) restore_non_finite(json);
    return json;
  } catch (const typename AnyJson::parse_error& error) {
    const std::size_t offset = error.byte > 0 ? error.byte - 1 : 0;
    throw input_error(where, "expected JSON; it breaks off at {}; fix or re-download the file",
                      position(source, offset));
  } catch (const typename AnyJson::exception& error) {
    throw input_error(where, "expected JSON: {}", printable(error.what()));
  }
}

}  // namespace

Json parse_json(std::string_view text, std::string_view where) {
  return parse<Json>(text, where);
}

SortedJson parse_sorted_json(std::string_view text, std::string_view where) {
  return parse<SortedJson>(text, where);
}

Json read_json_file(const std::filesystem::path& path) {
  return parse_json(read_file(path), path.string());
}

void write_json_file(const std::filesystem::path& path, const Json& json) {
  write_file_atomically(path, json.dump(2) + "\n");
}

}  // namespace moestro
