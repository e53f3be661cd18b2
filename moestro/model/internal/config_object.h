#pragma once
// Typed, checked access to one JSON object of a config file. A field may have several spellings;
// two that disagree are an error. What is worth one warning at the end collects in Findings.
//
//   config.size({"num_local_experts", "num_experts"}, kExpertRange)

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "moestro/core/error.h"
#include "moestro/core/json.h"

namespace moestro::model::internal {

/// Bounds of a whole number, both inclusive.
struct Range {
  std::int64_t min = 0;
  std::int64_t max = 0;
};

// Far above every model there is, and low enough that no product of the sizes of one tensor leaves
// 64 bits: experts * 2 * width * hidden < 2^58.
inline constexpr Range kWidthRange{1, std::int64_t{1} << 20};  // hidden and FFN widths, ranks
inline constexpr Range kHeadRange{1, std::int64_t{1} << 16};   // heads, head dims, states, groups
inline constexpr Range kExpertRange{1, std::int64_t{1} << 16};
inline constexpr Range kVocabRange{1, std::int64_t{1} << 28};
inline constexpr Range kLayerRange{1, 2048};
inline constexpr Range kPositionRange{1, std::int64_t{1} << 40};
inline constexpr Range kPredictionRange{0, 64};  // multi-token prediction depths

/// Bounds of a real number, all inclusive: beyond the first two is an error, beyond the others,
/// which no published model comes near, a doubt. A `min` of 0 allows 0, which is never doubtful.
struct Bounds {
  double min = 0.0;
  double max = 0.0;
  double usual_min = 0.0;
  double usual_max = 0.0;
};

// Arithmetic is f32: values beyond the errors' bounds vanish or overflow in a product or two.
inline constexpr Bounds kEpsilonBounds{1e-30, 1.0, 1e-15, 1e-2};  // added to a mean square
inline constexpr Bounds kScaleBounds{1e-6, 1e6, 1e-4, 1e3};       // multipliers, clamps
inline constexpr Bounds kThetaBounds{1.0, 1e12, 100.0, 1e10};     // rope_theta
inline constexpr Bounds kRopeFactorBounds{1e-3, 1e6, 0.1, 1e4};   // rope_scaling
inline constexpr Bounds kDeviationBounds{0.0, 1e3, 1e-6, 1.0};    // of initial weights
inline constexpr Bounds kCoefficientBounds{0.0, 1e6, 0.0, 1e3};   // of a loss
inline constexpr Bounds kNoiseBounds{0.0, 1.0, 0.0, 0.5};         // of a router
inline constexpr Bounds kTimeStepBounds{0.0, 1e6, 0.0, 1e3};      // of Mamba-2

/// What one reading of a file has to say, apart from errors.
struct Findings {
  NumberTexts numbers;  // how the file writes them, for messages
  std::vector<std::string> unknown_keys;
  std::set<std::string> asked_keys;         // all that the family's reader looked for
  std::vector<std::string> ignored_keys;    // known not to matter, to this family or at all
  std::vector<std::string> class_defaults;  // absent keys with the values assumed
  std::vector<std::string> usual_defaults;  // the same, where published files omit the key, too
  std::vector<std::string> overrides;
  std::set<std::string> carried_keys;  // of this family's files, though they mean nothing in them
  std::vector<std::string> doubts;     // possible values that are surely not what was meant
  std::vector<std::string> noise;      // dropout and jitter: "attention_dropout = 0.1"
};

class ConfigObject {
 public:
  /// Spellings of one field, the one to suggest first.
  using Keys = std::initializer_list<std::string_view>;

  /// `object` and `findings` must outlive this. `path` precedes keys in messages: "text_config.".
  /// Errors: input, if `object` is no JSON object.
  ConfigObject(const Json& object, std::string file, std::string path, Findings& findings);

  [[nodiscard]] const Json& json() const { return *object_; }

  /// Whether a spelling is there, null or not.
  [[nodiscard]] bool mentions(Keys keys) const;
  /// The value under one of the spellings; null pointer when all are missing or null.
  /// Errors: input, if two spellings have different values.
  [[nodiscard]] const Json* find(Keys keys) const;

  /// A whole number. Errors: input, if missing, no whole number or out of range.
  [[nodiscard]] std::int64_t size(Keys keys, Range range) const;
  [[nodiscard]] std::int64_t size_or(Keys keys, std::int64_t fallback, Range range) const;
  [[nodiscard]] std::optional<std::int64_t> optional_size(Keys keys, Range range) const;
  /// As size_or, but a missing key is reported as a class default.
  [[nodiscard]] std::int64_t size_or_class(Keys keys, std::int64_t class_default,
                                           Range range) const;

  /// A finite number within bounds. Errors: input, if missing, no number or out of bounds.
  [[nodiscard]] double real(Keys keys, const Bounds& bounds) const;
  [[nodiscard]] double real_or(Keys keys, double fallback, const Bounds& bounds) const;
  [[nodiscard]] std::optional<double> optional_real(Keys keys, const Bounds& bounds) const;
  /// As real_or, but a missing key is reported as a class default.
  [[nodiscard]] double real_or_class(Keys keys, double class_default, const Bounds& bounds) const;

  [[nodiscard]] bool flag(Keys keys) const;
  [[nodiscard]] bool flag_or(Keys keys, bool fallback) const;
  [[nodiscard]] bool flag_or_class(Keys keys, bool class_default) const;

  [[nodiscard]] std::string text(Keys keys) const;
  [[nodiscard]] std::string text_or(Keys keys, std::string_view fallback) const;

  /// Lists; missing, null or empty gives an empty one.
  [[nodiscard]] std::vector<std::string> texts(Keys keys) const;
  [[nodiscard]] std::vector<std::int64_t> whole_numbers(Keys keys, Range range) const;
  [[nodiscard]] std::vector<double> reals(Keys keys, const Bounds& bounds) const;

  /// Reports that `key` is missing and what is assumed in its place: with a warning, or, where
  /// absence is the usual way to say it, in verbose mode only. Fallbacks of *_or are of the latter.
  void note_class_default(std::string_view key, std::string_view value) const;
  void note_usual_default(std::string_view key, std::string_view value) const;

  /// Says that files of this family carry the keys, whatever they are, without any meaning.
  void carries(Keys keys) const;

  /// Notes what is possible but surely a mistake: "key = value: why".
  void note_doubt(std::string_view key, const Json& value, std::string_view why) const;

  /// A nested object, or nothing.
  [[nodiscard]] std::optional<ConfigObject> object(std::string_view key) const;

  /// The error for a key of this object.
  template <class... Args>
  [[nodiscard]] Error error(std::string_view key, fmt::format_string<Args...> format,
                            Args&&... args) const {
    return input_error(where(key), format, std::forward<Args>(args)...);
  }
  [[nodiscard]] std::string where(std::string_view key) const;
  /// A value for a message: as the file has it, short, printable.
  [[nodiscard]] std::string shown(const Json& value) const;
  [[nodiscard]] Findings& findings() const { return *findings_; }
  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  [[nodiscard]] Error missing(Keys keys, std::string_view what) const;
  [[nodiscard]] std::string_view spelling(Keys keys) const;
  void note_fallback(Keys keys, std::string_view value) const;

  const Json* object_;
  std::string file_;
  std::string path_;
  Findings* findings_;
};

}  // namespace moestro::model::internal
