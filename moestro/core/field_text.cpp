#include "moestro/core/field_text.h"

#include <fmt/core.h>

#include <cmath>

#include "moestro/core/table.h"
#include "moestro/core/text.h"

namespace moestro {
namespace {

std::string in_quotes(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return fmt::format("\"{}\"", escaped);
}

std::string quoted_list(const std::vector<std::string>& texts) {
  std::vector<std::string> parts;
  for (const std::string& text : texts) parts.push_back(in_quotes(text));
  return join(parts, ", ");
}

/// " >= 0 and < 1", or nothing for all numbers.
std::string bounds(const Range& range) {
  std::string text;
  if (std::isfinite(range.low)) {
    text += fmt::format(" {} {}", range.low_open ? ">" : ">=", plain(range.low));
  }
  if (std::isfinite(range.high)) {
    text += fmt::format("{} {} {}", text.empty() ? "" : " and",
                        range.high_open ? "<" : "<=", plain(range.high));
  }
  return text;
}

struct Expectation {
  const Range& range;
  std::string operator()(const bool*) const { return "true or false"; }
  std::string operator()(const std::int64_t*) const {
    return fmt::format("a whole number{}", bounds(range));
  }
  std::string operator()(const double*) const { return fmt::format("a number{}", bounds(range)); }
  std::string operator()(const std::string*) const { return "text in quotes"; }
  std::string operator()(const std::array<double, 2>*) const {
    const std::string each = bounds(range);
    return fmt::format("a list of two numbers{}{}", each.empty() ? "" : " each", each);
  }
  std::string operator()(const std::vector<std::string>*) const { return "a list of texts"; }
  std::string operator()(const PathText& path) const {
    return path.or_name ? "a path or a name in quotes" : "a path in quotes";
  }
  std::string operator()(const PathList&) const { return "a list of paths"; }
  std::string operator()(const Choice& choice) const {
    return fmt::format("one of {}", quoted_list(choice.words));
  }
};

struct AsToml {
  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const std::int64_t* value) const { return std::to_string(*value); }
  std::string operator()(const double* value) const { return exact(*value); }
  std::string operator()(const std::string* value) const { return in_quotes(*value); }
  std::string operator()(const std::array<double, 2>* value) const {
    return fmt::format("[{}, {}]", exact((*value)[0]), exact((*value)[1]));
  }
  std::string operator()(const std::vector<std::string>* value) const {
    return fmt::format("[{}]", quoted_list(*value));
  }
  std::string operator()(const PathText& path) const { return in_quotes(*path.text); }
  std::string operator()(const PathList& list) const {
    return fmt::format("[{}]", quoted_list(*list.texts));
  }
  std::string operator()(const Choice& choice) const {
    return in_quotes(choice.words[choice.get()]);
  }
};

std::string unquoted(const std::string& text) {
  const bool is_quoted = text.size() >= 2 && text.front() == '"' && text.back() == '"';
  return is_quoted ? text.substr(1, text.size() - 2) : text;
}

/// A value that shows the form; the default where it shows something.
std::string example(const Field& field) {
  if (std::holds_alternative<PathList>(field.target) ||
      std::holds_alternative<std::vector<std::string>*>(field.target)) {
    return R"(["a.txt", "b.txt"])";
  }
  const std::string value = value_as_toml(field.target);
  return value == R"("")" ? R"("a/path")" : value;
}

}  // namespace

std::string expectation(const Field& field) {
  return std::visit(Expectation{field.range}, field.target);
}

std::string value_as_toml(const Target& target) {
  return std::visit(AsToml{}, target);
}

std::string remedy(const Field& field, const std::string& got) {
  if (const auto* choice = std::get_if<Choice>(&field.target)) {
    const std::string close = nearest(unquoted(got), choice->words);
    if (!close.empty()) return fmt::format("did you mean {}?", in_quotes(close));
  }
  if (std::holds_alternative<bool*>(field.target)) {
    const std::string close = nearest(lower(unquoted(got)), {"true", "false"});
    if (!close.empty()) return fmt::format("did you mean {}?", close);
  }
  return fmt::format("write e.g. {} = {}", field.name, example(field));
}

std::string fields_to_markdown(const Fields& fields) {
  std::string text;
  for (const FieldSection& section : fields) {
    text += fmt::format("## [{}]\n\n{}\n\n", section.name, section.help);
    Table table({"key", "value", "default", "meaning"},
                {Align::left, Align::left, Align::left, Align::left});
    for (const Field& field : section.fields) {
      table.row({fmt::format("`{}`", field.name), expectation(field),
                 fmt::format("`{}`", value_as_toml(field.target)), field.help});
    }
    text += table.to_markdown() + "\n";
  }
  return text;
}

}  // namespace moestro
