#include "moestro/core/fields.h"

#include <fmt/core.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "moestro/core/error.h"
#include "moestro/core/field_text.h"
#include "moestro/core/file.h"
#include "moestro/core/text.h"
#include "moestro/core/toml_advice.h"
#include "moestro/core/toml_dots.h"
#include "moestro/core/toml_text.h"

namespace moestro {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;  // a configuration is written by hand
constexpr std::size_t kMaxDots = 1000;                   // so many nested tables fit the stack
constexpr std::size_t kShownBytes = 60;                  // of a value in a message

/// One value on its way into an option.
struct Assignment {
  const Field& field;
  const toml::node& value;
  std::string_view document;     // that the value was parsed from; empty if it was not
  std::string origin;            // file and line, or "--set"
  std::string key;               // section.name
  std::filesystem::path folder;  // what relative paths are relative to; empty: leave them
};

TextPlace place_of(const toml::source_position& position) {
  return {position.line, position.column};
}

/// What the user wrote, short enough for an error line. Numbers are quoted from the document: 2.0
/// and 1e5 would not come back from a double.
std::string shown(const toml::node& value, std::string_view document) {
  if (const auto* text = value.as_string()) {
    return fmt::format("\"{}\"", printable(text->get(), kShownBytes));
  }
  if (const auto* truth = value.as_boolean()) return truth->get() ? "true" : "false";
  if (const auto* list = value.as_array()) return fmt::format("a list of {}", list->size());
  if (value.is_table()) return "a table";
  if (!value.is_number()) return "a date or time";
  const toml::source_region& source = value.source();
  return printable(text_between(document, place_of(source.begin), place_of(source.end)),
                   kShownBytes);
}
std::string shown(const Assignment& a) {
  return shown(a.value, a.document);
}

[[noreturn]] void reject(const Assignment& a, const std::string& got) {
  throw input_error(a.origin + " " + a.key, "expected {}, got {}; {}", expectation(a.field), got,
                    remedy(a.field, got));
}
[[noreturn]] void reject(const Assignment& a) {
  reject(a, shown(a));
}

bool accepts(const Range& range, double x) {
  const bool above = range.low_open ? x > range.low : x >= range.low;
  const bool below = range.high_open ? x < range.high : x <= range.high;
  return std::isfinite(x) && above && below;
}

std::optional<double> number(const toml::node& value) {
  if (const auto* whole = value.as_integer()) return static_cast<double>(whole->get());
  if (const auto* real = value.as_floating_point()) return real->get();
  return std::nullopt;
}

/// With the home folder for a leading ~: a shell leaves it alone in a file and within quotes.
std::string without_tilde(const Assignment& a, const std::string& text) {
  if (!text.starts_with('~')) return text;
  const std::string place = a.origin + " " + a.key;
  if (text.size() > 1 && text[1] != '/') {
    throw input_error(
        place,
        "expected / after ~, got \"{}\"; write the folder in full, or ./ before a name "
        "that begins with ~",
        printable(text, kShownBytes));
  }
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home != '/') {
    throw input_error(place,
                      "expected ~ to be the folder in HOME, but that names none; write the "
                      "folder in full");
  }
  return home + text.substr(1);
}

std::string anchored(const Assignment& a, const std::string& written, bool or_name) {
  std::string text = without_tilde(a, written);
  if (text.empty() || a.folder.empty() || std::filesystem::path(text).is_absolute()) return text;
  const std::filesystem::path joined = (a.folder / text).lexically_normal();
  std::error_code code;
  const bool is_name =
      or_name && text.find('/') == std::string::npos && !std::filesystem::exists(joined, code);
  return is_name ? text : joined.string();
}

std::string text_of(const Assignment& a, const toml::node& value) {
  const auto* text = value.as_string();
  if (text == nullptr) reject(a);
  if (text->get().find('\0') != std::string::npos) reject(a, "text with a zero byte");
  return text->get();
}

std::vector<std::string> texts_of(const Assignment& a) {
  if (a.value.is_string()) return {text_of(a, a.value)};
  const toml::array* list = a.value.as_array();
  if (list == nullptr) reject(a);
  std::vector<std::string> texts;
  for (const toml::node& entry : *list) {
    if (!entry.is_string())
      reject(a, fmt::format("a list that holds {}", shown(entry, a.document)));
    texts.push_back(text_of(a, entry));
  }
  return texts;
}

/// Stores a checked value; one overload per type of option.
struct Store {
  const Assignment& a;

  void operator()(bool* target) const {
    if (!a.value.is_boolean()) reject(a);
    *target = a.value.as_boolean()->get();
  }
  void operator()(std::int64_t* target) const {
    if (!a.value.is_integer() || !accepts(a.field.range, *number(a.value))) reject(a);
    *target = a.value.as_integer()->get();
  }
  void operator()(double* target) const {
    const auto x = number(a.value);
    if (!x || !accepts(a.field.range, *x)) reject(a);
    *target = *x;
  }
  void operator()(std::string* target) const { *target = text_of(a, a.value); }
  void operator()(std::array<double, 2>* target) const {
    const toml::array* list = a.value.as_array();
    if (list == nullptr || list->size() != 2) reject(a);
    std::array<double, 2> pair{};
    for (std::size_t i = 0; i < 2; ++i) {
      const auto x = number((*list)[i]);
      if (!x || !accepts(a.field.range, *x))
        reject(a, "a list with " + shown((*list)[i], a.document));
      pair[i] = *x;
    }
    *target = pair;
  }
  void operator()(std::vector<std::string>* target) const { *target = texts_of(a); }
  void operator()(const PathText& target) const {
    *target.text = anchored(a, text_of(a, a.value), target.or_name);
  }
  void operator()(const PathList& target) const {
    std::vector<std::string> list = texts_of(a);
    for (std::string& text : list) {
      if (text.empty()) reject(a, "an empty path");
      text = anchored(a, text, false);
    }
    *target.texts = std::move(list);
  }
  void operator()(const Choice& target) const {
    const auto* text = a.value.as_string();
    const auto word = text == nullptr
                          ? target.words.end()
                          : std::find(target.words.begin(), target.words.end(), text->get());
    if (word == target.words.end()) reject(a);
    target.set(static_cast<std::size_t>(word - target.words.begin()));
  }
};

void assign(const Assignment& assignment, Origins& origins) {
  std::visit(Store{assignment}, assignment.field.target);
  origins[assignment.key] = {assignment.origin, shown(assignment)};
}

/// The entry called `name`, or an error that suggests the nearest.
template <class Named>
const Named& find(const std::vector<Named>& all, std::string_view name, const std::string& origin,
                  std::string_view expected) {
  std::vector<std::string> names;
  for (const Named& one : all) {
    if (one.name == name) return one;
    names.push_back(one.name);
  }
  const std::string close = nearest(name, names);
  throw input_error(origin, "expected {}, got \"{}\"; {}", expected, printable(name, 60),
                    close.empty() ? "there are: " + join(names, ", ")
                                  : fmt::format("did you mean \"{}\"?", close));
}

/// A table's entries in the order of the file, so that the first error is the topmost.
std::vector<std::pair<const toml::key*, const toml::node*>> in_file_order(
    const toml::table& table) {
  std::vector<std::pair<const toml::key*, const toml::node*>> entries;
  for (const auto& [key, node] : table) entries.emplace_back(&key, &node);
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.first->source().begin < b.first->source().begin;
  });
  return entries;
}

std::string at_line(const std::string& file, const toml::source_region& source) {
  return fmt::format("{}:{}", file, source.begin.line);
}

toml::table parse_toml(std::string_view text, const std::string& file) {
  if (text.size() > kMaxBytes) {
    throw input_error(file, "expected at most {} bytes, got {}; name a configuration file",
                      kMaxBytes, text.size());
  }
  if (!is_utf8(text)) throw input_error(file, "expected UTF-8 text; save the file as UTF-8");
  const std::size_t dots = dots_outside_quotes(text);
  if (dots > kMaxDots) {
    throw input_error(file, "expected keys of one dot at most, got {} dots; write [sections]",
                      dots);
  }
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    const auto [line, column] = place_of(error.source().begin);
    const TextPlace end{line + 1, 1};
    const auto [key, advice] =
        toml_advice(text_between(text, {line, 1}, end), text_between(text, {line, column}, end),
                    error.description());
    throw input_error(fmt::format("{}:{}{}{}", file, line, key.empty() ? "" : " ", key), "{}",
                      advice);
  }
}

/// A TOML file.
struct Document {
  std::string file;
  std::string_view text;
};

void read_section(const FieldSection& section, const toml::table& table, const Document& document,
                  Origins& origins) {
  const std::filesystem::path parent = std::filesystem::path(document.file).parent_path();
  for (const auto& [key, node] : in_file_order(table)) {
    const std::string origin = at_line(document.file, key->source());
    const Field& field =
        find(section.fields, key->str(), origin, fmt::format("a key of [{}]", section.name));
    assign({field, *node, document.text, origin, section.name + "." + field.name,
            parent.empty() ? std::filesystem::path(".") : parent},
           origins);
  }
}

/// An override on its way into an option.
struct Override {
  const Field& field;
  std::string origin;     // "--set"
  std::string key;        // section.name
  std::string_view text;  // of the value
  std::string document;   // the TOML `name = text`
};

bool wants_text(const Override& o) {
  return std::holds_alternative<std::string*>(o.field.target) ||
         std::holds_alternative<PathText>(o.field.target);
}

/// Whether an override that is no TOML was meant to be: text in quotes, a list, or a whole number
/// too large.
bool is_meant_as_toml(const Override& o, std::string_view description) {
  const Target& target = o.field.target;
  if (std::holds_alternative<std::int64_t*>(target)) {
    return description.find("64 bits") != std::string_view::npos;
  }
  const bool begins_quote = o.text.starts_with('"') || o.text.starts_with('\'');
  if (wants_text(o)) {
    return begins_quote && o.text.size() > 1 && o.text.front() == o.text.back();
  }
  const bool takes_list = std::holds_alternative<std::vector<std::string>*>(target) ||
                          std::holds_alternative<PathList>(target);
  return takes_list ? begins_quote || o.text.starts_with('[')
                    : begins_quote && std::holds_alternative<Choice>(target);
}

/// The document as a table, if the text is one TOML value.
std::optional<toml::table> one_value(const Override& o) {
  if (dots_outside_quotes(o.document) > kMaxDots) return std::nullopt;
  try {
    toml::table parsed = toml::parse(o.document);
    if (parsed.size() == 1 && parsed.contains(o.field.name)) return parsed;
  } catch (const toml::parse_error& error) {
    if (is_meant_as_toml(o, error.description())) {
      throw input_error(o.origin + " " + o.key, "{}",
                        toml_advice(o.document, o.text, error.description()).text);
    }
    // A bare word, which the option's own check accepts or rejects.
  }
  return std::nullopt;
}

/// The value of an override: TOML where it parses as one value, else the bare text.
toml::table override_value(const Override& o) {
  std::optional<toml::table> parsed = one_value(o);
  if (parsed && (!wants_text(o) || (*parsed)[o.field.name].is_string())) return *std::move(parsed);
  toml::table bare;
  bare.insert(o.field.name, o.text);
  return bare;
}

}  // namespace

Range at_least(double low) {
  return {.low = low};
}
Range more_than(double low) {
  return {.low = low, .low_open = true};
}
Range between(double low, double high) {
  return {.low = low, .high = high};
}
Range from_below(double low, double high) {
  return {.low = low, .high = high, .high_open = true};
}

PathText path(std::string& text) {
  return {&text, false};
}
PathText path_or_name(std::string& text) {
  return {&text, true};
}
PathList paths(std::vector<std::string>& texts) {
  return {&texts};
}

void parse_fields(std::string_view toml, const std::filesystem::path& file, const Fields& fields,
                  Origins& origins) {
  const Document document{file.string(), toml};
  const toml::table root = parse_toml(toml, document.file);
  for (const auto& [key, node] : in_file_order(root)) {
    const std::string origin = at_line(document.file, key->source());
    const FieldSection& section = find(fields, key->str(), origin, "a section");
    const toml::table* table = node->as_table();
    if (table == nullptr) {
      throw input_error(origin + " " + section.name, "expected a section, got {}; write [{}]",
                        shown(*node, toml), section.name);
    }
    read_section(section, *table, document, origins);
  }
}

void apply_override(std::string_view text, const Fields& fields, Origins& origins) {
  const std::string origin = "--set";
  const std::size_t equals = text.find('=');
  const std::string_view key = trim(text.substr(0, equals));
  const std::size_t dot = key.find('.');
  if (equals == std::string_view::npos || dot == std::string_view::npos || !is_utf8(text)) {
    throw input_error(origin, "expected section.key=value, got \"{}\"; write e.g. {}",
                      printable(text, 60), "--set train.steps=100");
  }
  const FieldSection& section = find(fields, key.substr(0, dot), origin, "a section");
  const Field& field =
      find(section.fields, key.substr(dot + 1), origin, fmt::format("a key of [{}]", section.name));
  const std::string_view value_text = trim(text.substr(equals + 1));
  const Override o{field, origin, section.name + "." + field.name, value_text,
                   fmt::format("{} = {}", field.name, value_text)};
  const toml::table table = override_value(o);
  assign({field, *table.get(field.name), o.document, o.origin, o.key, {}}, origins);
}

Origins read_fields(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                    const Fields& fields) {
  Origins origins;
  parse_fields(read_file(file, kMaxBytes), file, fields, origins);
  for (const std::string& text : overrides) apply_override(text, fields, origins);
  return origins;
}

std::map<std::string, std::string> field_values(const Fields& fields) {
  std::map<std::string, std::string> values;
  for (const FieldSection& section : fields) {
    for (const Field& field : section.fields) {
      values[section.name + "." + field.name] = value_as_toml(field.target);
    }
  }
  return values;
}

std::string where(const Origins& origins, const std::filesystem::path& file, std::string_view key) {
  const auto origin = origins.find(std::string(key));
  const std::string place = origin == origins.end() ? file.string() : origin->second.place;
  return place.empty() ? std::string(key) : fmt::format("{} {}", place, key);
}

std::string written(const Origins& origins, std::string_view key, double value) {
  const auto origin = origins.find(std::string(key));
  return origin == origins.end() ? plain(value) : origin->second.text;
}

}  // namespace moestro
