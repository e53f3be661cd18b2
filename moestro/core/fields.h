#pragma once
// The options of a configuration, each declared once: name, target, help and what it may hold. From
// the declaration come reading TOML, `--set a.b=c`, and the options page.
//
//   Fields fields(Settings& s) {
//     return {{"train", "How long.", {{"steps", &s.steps, "optimizer steps", at_least(1)},
//                                     {"dtype", choice(s.dtype, kWords), "compute type"}}}};
//   }
//   const Origins origins = read_fields("run.toml", {"train.steps=5"}, fields(settings));
//
// Errors read "[run.toml:7 train.steps] expected a whole number >= 1, got 0; write e.g. steps =
// 100".

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace moestro {

/// The numbers an option accepts: from low to high, each end included unless open. Never NaN.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  bool high_open = false;
};
[[nodiscard]] Range at_least(double low);
[[nodiscard]] Range more_than(double low);
/// Both ends included.
[[nodiscard]] Range between(double low, double high);
/// low <= x < high.
[[nodiscard]] Range from_below(double low, double high);

/// An enumeration, seen through the words a user writes for its values.
struct Choice {
  std::vector<std::string> words;
  std::function<void(std::size_t)> set;  // by index of the word
  std::function<std::size_t()> get;
};

/// Binds an enumeration to its words; every value of it needs one.
template <class E>
[[nodiscard]] Choice choice(E& value, const std::vector<std::pair<std::string, E>>& words) {
  Choice result;
  for (const auto& [word, meaning] : words) result.words.push_back(word);
  result.set = [&value, words](std::size_t i) { value = words[i].second; };
  result.get = [&value, words] {
    std::size_t i = 0;
    while (i + 1 < words.size() && words[i].second != value) ++i;
    return i;
  };
  return result;
}

/// Text that names a file or folder: relative ones in a file are meant from that file's folder.
struct PathText {
  std::string* text = nullptr;
  bool or_name = false;  // a word without '/' that is no existing file stays as it is
};
[[nodiscard]] PathText path(std::string& text);
[[nodiscard]] PathText path_or_name(std::string& text);

/// A list of paths (PathText).
struct PathList {
  std::vector<std::string>* texts = nullptr;
};
[[nodiscard]] PathList paths(std::vector<std::string>& texts);

/// Where an option is stored, which also says its type. Targets must outlive the Fields.
using Target = std::variant<bool*, std::int64_t*, double*, std::string*, std::array<double, 2>*,
                            std::vector<std::string>*, PathText, PathList, Choice>;

/// One option.
struct Field {
  std::string name;
  Target target;
  std::string help;  // one phrase, no full stop
  Range range = {};  // of numbers, and of each entry of a pair
};

/// One table of the file.
struct FieldSection {
  std::string name;
  std::string help;
  std::vector<Field> fields;
};
using Fields = std::vector<FieldSection>;

/// Who set an option, and how it was written there: {"run.toml:7", "1e5"}.
struct Origin {
  std::string place;  // file and line, or "--set"
  std::string text;   // short and printable
};
/// By section.name. Defaults have no entry.
using Origins = std::map<std::string, Origin>;

/// Sets what the TOML text says; `file` is named in errors and anchors relative paths.
/// Errors: input, for the first line that is wrong: syntax, an unknown or repeated key, a value of
/// the wrong type or out of range.
void parse_fields(std::string_view toml, const std::filesystem::path& file, const Fields& fields,
                  Origins& origins);

/// Sets one option from "section.key=value" (TOML syntax; a bare word is text). Errors: as above.
void apply_override(std::string_view text, const Fields& fields, Origins& origins);

/// Reads a file, then applies the overrides in order. Errors: as above, and as read_file.
[[nodiscard]] Origins read_fields(const std::filesystem::path& file,
                                  const std::vector<std::string>& overrides, const Fields& fields);

/// "run.toml:7 train.steps": what an error about an option starts with; the file may be empty.
[[nodiscard]] std::string where(const Origins& origins, const std::filesystem::path& file,
                                std::string_view key);

/// The value of an option as it was written; a default as text of the same kind.
[[nodiscard]] std::string written(const Origins& origins, std::string_view key, double value);

/// What the targets hold now, by "section.name", as TOML: `100`, `"byte"`, `[0.9, 0.95]`.
[[nodiscard]] std::map<std::string, std::string> field_values(const Fields& fields);

/// One Markdown section per table of the file: key, type, default (what the targets hold now),
/// help.
[[nodiscard]] std::string fields_to_markdown(const Fields& fields);

}  // namespace moestro
