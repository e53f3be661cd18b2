#include "moestro/core/json.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "moestro/core/error.h"
#include "moestro/core/file.h"
#include "moestro/core/text.h"

namespace moestro {
namespace {

constexpr std::size_t kShownToken = 60;
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

std::optional<double> non_finite(const Json& value) {
  if (!value.is_object() || value.size() != 1 || !value.contains("__float__")) return std::nullopt;
  const Json& word = value["__float__"];
  if (word == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (word == "Infinity") return std::numeric_limits<double>::infinity();
  if (word == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

void restore_non_finite(Json& value) {
  if (const auto number = non_finite(value)) {
    value = *number;
  } else if (value.is_structured()) {
    for (Json& child : value) restore_non_finite(child);
  }
}

/// Builds a document from parser events. Unlike the library's own builder it knows whether a key is
/// new before it appends, so that an object of n keys takes n log n steps, not n^2.
class DocumentBuilder final : public nlohmann::json_sax<Json> {
 public:
  DocumentBuilder(std::string_view source, std::string_view where, NumberTexts* numbers)
      : source_(source), where_(where), numbers_(numbers) {}
  [[nodiscard]] Json& document() { return document_; }

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_integer(std::int64_t value) override { return scalar(value); }
  bool number_unsigned(std::uint64_t value) override { return scalar(value); }
  bool number_float(double value, const std::string& text) override {
    if (numbers_ != nullptr) numbers_->emplace(value, text);
    return scalar(value);
  }
  bool string(std::string& value) override { return scalar(std::move(value)); }
  bool binary(Json::binary_t& /*not in JSON text*/) override { return false; }
  bool start_object(std::size_t /*unknown*/) override {
    keys_.emplace_back();
    return open(Json::object());
  }
  bool end_object() override {
    keys_.pop_back();
    return close();
  }
  bool start_array(std::size_t /*unknown*/) override { return open(Json::array()); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    if (!keys_.back().insert(name).second) {
      throw input_error(where_, "key \"{}\" occurs twice in one object; remove one of them",
                        printable(name));
    }
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t byte, const std::string& token,
                   const nlohmann::detail::exception& error) override {
    const std::string at = position(source_, byte > 0 ? byte - 1 : 0);
    if (dynamic_cast<const Json::out_of_range*>(&error) != nullptr) {
      throw input_error(where_, "expected numbers up to 1.7e308, got {} before {}; correct it",
                        printable(token, kShownToken), at);
    }
    throw input_error(where_,
                      "expected JSON, which this is not from {} on; correct it (a comma too many?) "
                      "or download it again",
                      at);
  }

 private:
  /// Puts a value where the innermost open array or object wants it.
  Json& add(Json value) {
    if (open_.empty()) return document_ = std::move(value);
    Json& parent = *open_.back();
    if (parent.is_array()) return parent.emplace_back(std::move(value));
    auto& members = parent.get_ref<Json::object_t&>();
    members.Container::emplace_back(std::move(key_), std::move(value));  // without a search
    return members.back().second;
  }
  bool scalar(Json value) {
    add(std::move(value));
    return true;
  }
  bool open(Json empty) {
    if (open_.size() > kMaxDepth) {
      throw input_error(where_, "expected JSON nested at most {} deep; this file is deeper",
                        kMaxDepth);
    }
    open_.push_back(&add(std::move(empty)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view source_, where_;
  NumberTexts* numbers_;  // null: nobody wants to quote them
  Json document_;
  std::vector<Json*> open_;  // from the document to the innermost; parents do not grow meanwhile
  std::vector<std::set<std::string>> keys_;  // of every open object
  std::string key_;
};

/// What is no JSON at all, and why: the parser would only say where it breaks off.
void require_text(std::string_view text, std::string_view where) {
  if (trim(text).empty()) {
    throw input_error(where, "expected JSON, got an empty file; write or re-download it");
  }
  const std::size_t readable = utf8_prefix(text);
  if (readable < text.size()) {
    throw input_error(where, "expected JSON in UTF-8, got other bytes at {}; save it as UTF-8",
                      position(text, readable));
  }
}

Json parse(std::string_view text, std::string_view where, NumberTexts* numbers) {
  require_text(text, where);
  const bool may_be_non_finite =
      text.find("NaN") != std::string_view::npos || text.find("Infinity") != std::string_view::npos;
  const std::string source = may_be_non_finite ? quote_non_finite(text) : std::string(text);
  DocumentBuilder builder(source, where, numbers);
  Json::sax_parse(source, &builder);
  if (may_be_non_finite) restore_non_finite(builder.document());
  return std::move(builder.document());
}

std::string number_text(double value, const NumberTexts& numbers) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0.0 ? "Infinity" : "-Infinity";
  const auto found = numbers.find(value);
  return found != numbers.end() ? found->second : Json(value).dump();
}

/// Appends a value until `out` is longer than `limit`.
void append_text(const Json& value, const NumberTexts& numbers, std::size_t limit,
                 std::string& out) {
  if (value.is_number_float()) {
    out += number_text(value.get<double>(), numbers);
  } else if (value.is_structured()) {
    out += value.is_array() ? "[" : "{";
    const std::size_t first = out.size();
    for (const auto& [key, child] : value.items()) {
      if (out.size() > limit) return;
      if (out.size() > first) out += ",";
      if (value.is_object())
        out += Json(key).dump(-1, ' ', false, Json::error_handler_t::replace) + ":";
      append_text(child, numbers, limit, out);
    }
    out += value.is_array() ? "]" : "}";
  } else {
    out += value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

}  // namespace

std::string shown(const Json& value, const NumberTexts& numbers, std::size_t limit) {
  std::string text;
  append_text(value, numbers, limit, text);
  return printable(text, limit);
}

Json parse_json(std::string_view text, std::string_view where) {
  return parse(text, where, nullptr);
}

Json parse_json(std::string_view text, std::string_view where, NumberTexts& numbers) {
  return parse(text, where, &numbers);
}

Json read_json_file(const std::filesystem::path& path) {
  return parse_json(read_file(path), path.string());
}

void write_json_file(const std::filesystem::path& path, const Json& json) {
  write_file_atomically(path, json.dump(2) + "\n");
}

}  // namespace moestro
