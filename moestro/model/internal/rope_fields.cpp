// Rotary embeddings: rope_theta + rope_scaling (transformers v4) or rope_parameters (v5).

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "moestro/core/text.h"
#include "moestro/model/internal/common_fields.h"
#include "moestro/model/internal/known_keys.h"

namespace moestro::model::internal {
namespace {

constexpr Bounds kMscaleBounds{0.0, 1e3, 1e-2, 10.0};  // of YaRN
constexpr Bounds kRotatedBounds{1e-6, 1e6, 0.0, 1e6};  // what is possible depends on the family

/// What rope_scaling says beside rope_parameters must be the same.
void check_both_spellings(const ConfigObject& parameters, const ConfigObject& scaling) {
  for (const auto& [key, value] : scaling.json().items()) {
    const bool is_type = key == "type" || key == "rope_type";
    const Json* other = is_type ? parameters.find({"rope_type", "type"}) : parameters.find({key});
    if (value.is_null() || (other != nullptr && *other == value)) continue;
    throw parameters.error(
        printable(key), "expected the same value as {}{} ({}), got {}; keep one of the two objects",
        scaling.path(), printable(key), scaling.shown(value),
        other == nullptr ? "none" : scaling.shown(*other));
  }
}

/// The object that holds the scaling fields, if the file has one.
std::optional<ConfigObject> scaling_object(const ConfigObject& config) {
  auto object = config.object("rope_parameters");
  const auto old = config.object("rope_scaling");
  if (object && old) check_both_spellings(*object, *old);
  if (!object) object = old;
  if (!object) return std::nullopt;
  for (const auto& [key, value] : object->json().items()) {
    if (value.is_object()) {
      throw object->error(printable(key),
                          "expected one set of rope values for all layers, got an object; "
                          "per-layer-type values are not supported");
    }
  }
  find_unknown_rope_keys(*object);
  return object;
}

/// A value that stands beside the rope object, in it, or, when equal, in both.
const Json* find_in_both(const ConfigObject& config, const std::optional<ConfigObject>& scaling,
                         std::string_view key) {
  const Json* outer = config.find({key});
  const Json* inner = scaling ? scaling->find({key}) : nullptr;
  if (outer != nullptr && inner != nullptr && *outer != *inner) {
    throw scaling->error(key, "expected the same value as {}{} ({}), got {}; keep one",
                         config.path(), key, config.shown(*outer), config.shown(*inner));
  }
  return inner != nullptr ? inner : outer;
}

double read_theta(const ConfigObject& config, const std::optional<ConfigObject>& scaling,
                  double class_default) {
  constexpr std::string_view kKey = "rope_theta";
  if (find_in_both(config, scaling, kKey) == nullptr) {
    return config.real_or_class({kKey}, class_default, kThetaBounds);
  }
  const auto inner = scaling ? scaling->optional_real({kKey}, kThetaBounds) : std::nullopt;
  return inner ? *inner : config.real({kKey}, kThetaBounds);
}

/// Without a type nothing is scaled, whatever else the object says.
void note_missing_type(const ConfigObject& scaling) {
  if (scaling.mentions({"rope_type", "type"})) return;
  for (const auto& [key, value] : scaling.json().items()) {
    const bool goes_unscaled = key == "rope_theta" || key == "partial_rotary_factor" ||
                               key.starts_with("mrope_") || value.is_null();
    if (!goes_unscaled) return scaling.note_class_default("rope_type", "default");
  }
}

RopeKind read_kind(const std::optional<ConfigObject>& scaling) {
  if (!scaling) return RopeKind::plain;
  note_missing_type(*scaling);
  const std::string type = scaling->text_or({"rope_type", "type"}, "default");
  if (type == "default") return RopeKind::plain;
  if (type == "linear") return RopeKind::linear;
  if (type == "dynamic") return RopeKind::dynamic;
  if (type == "proportional") return RopeKind::proportional;
  if (type == "yarn") return RopeKind::yarn;
  if (type == "llama3") return RopeKind::llama3;
  if (type == "longrope" || type == "su") return RopeKind::longrope;
  throw scaling->error(
      scaling->find({"rope_type"}) != nullptr ? "rope_type" : "type",
      "expected one of default, linear, dynamic, yarn, llama3, longrope, proportional, got \"{}\"; "
      "no other is known",
      printable(type));
}

std::int64_t read_original_positions(const ConfigObject& config, const ConfigObject& scaling,
                                     std::int64_t max_positions) {
  constexpr std::string_view kKey = "original_max_position_embeddings";
  static_cast<void>(find_in_both(config, scaling, kKey));  // both must agree
  const auto outer = config.optional_size({kKey}, kPositionRange);
  if (outer) return *outer;
  const auto inner = scaling.optional_size({kKey}, kPositionRange);
  if (inner) return *inner;
  scaling.note_class_default(kKey, std::to_string(max_positions));
  return max_positions;
}

void read_yarn(const ConfigObject& scaling, Rope& rope) {
  rope.factor = scaling.real({"factor"}, kRopeFactorBounds);
  rope.beta_fast = scaling.real_or({"beta_fast"}, rope.beta_fast, kRopeFactorBounds);
  rope.beta_slow = scaling.real_or({"beta_slow"}, rope.beta_slow, kRopeFactorBounds);
  if (rope.beta_fast < rope.beta_slow) {
    throw scaling.error("beta_fast", "expected at least beta_slow ({}), got {}; exchange the two",
                        plain(rope.beta_slow), plain(rope.beta_fast));
  }
  rope.truncate = scaling.flag_or({"truncate"}, rope.truncate);
  rope.attention_factor = scaling.optional_real({"attention_factor"}, kRopeFactorBounds);
  const auto mscale = [&](std::string_view key) -> std::optional<double> {
    const double value = scaling.real_or({key}, 0.0, kMscaleBounds);  // 0 means not given
    return value > 0.0 ? std::optional(value) : std::nullopt;
  };
  rope.mscale = mscale("mscale");
  rope.mscale_all_dim = mscale("mscale_all_dim");
}

void read_llama3(const ConfigObject& scaling, Rope& rope) {
  rope.factor = scaling.real({"factor"}, kRopeFactorBounds);
  rope.low_freq_factor = scaling.real({"low_freq_factor"}, kRopeFactorBounds);
  rope.high_freq_factor = scaling.real({"high_freq_factor"}, kRopeFactorBounds);
  if (rope.high_freq_factor < rope.low_freq_factor) {
    throw scaling.error("high_freq_factor",
                        "expected at least low_freq_factor ({}), got {}; exchange the two",
                        plain(rope.low_freq_factor), plain(rope.high_freq_factor));
  }
}

void read_longrope(const ConfigObject& scaling, std::int64_t max_positions, Rope& rope) {
  const auto factor = scaling.optional_real({"factor"}, kRopeFactorBounds);
  rope.factor = factor ? *factor
                       : static_cast<double>(max_positions) /
                             static_cast<double>(rope.original_max_positions);
  rope.attention_factor = scaling.optional_real({"attention_factor"}, kRopeFactorBounds);
  rope.short_mscale = scaling.optional_real({"short_mscale"}, kRopeFactorBounds);
  rope.long_mscale = scaling.optional_real({"long_mscale"}, kRopeFactorBounds);
  rope.short_factor = scaling.reals({"short_factor"}, kRopeFactorBounds);
  rope.long_factor = scaling.reals({"long_factor"}, kRopeFactorBounds);
  const auto expected = static_cast<std::size_t>((rope.rotary_dim + 1) / 2);
  const auto check = [&](std::string_view key, const std::vector<double>& factors) {
    if (!factors.empty() && factors.size() != expected) {
      throw scaling.error(
          key, "expected {} numbers (half of the rotated dims), got {}; correct the list", expected,
          factors.size());
    }
  };
  check("short_factor", rope.short_factor);
  check("long_factor", rope.long_factor);
}

std::int64_t read_rotary_dim(const ConfigObject& config, const std::optional<ConfigObject>& scaling,
                             const RopeRule& rule) {
  static_cast<void>(find_in_both(config, scaling, "partial_rotary_factor"));  // both must agree
  auto partial =
      scaling ? scaling->optional_real({"partial_rotary_factor"}, kRopeFactorBounds) : std::nullopt;
  if (!partial) partial = config.optional_real({"partial_rotary_factor"}, kRopeFactorBounds);
  if (!partial && rule.default_partial) {
    config.note_class_default("partial_rotary_factor", exact(*rule.default_partial));
  }
  const double factor = partial.value_or(rule.default_partial.value_or(1.0));
  const bool is_possible = rule.default_partial ? factor <= 1.0 : factor >= 1.0 && factor <= 1.0;
  if (!is_possible) {
    throw config.error(
        "partial_rotary_factor", "expected {}, got {}; correct the value",
        rule.default_partial ? "a number in (0, 1]" : "1 (this family rotates whole heads)",
        config.shown(Json(factor)));
  }
  const auto dim = static_cast<std::int64_t>(static_cast<double>(rule.head_dim) * factor);
  if (dim < 2 || dim % 2 != 0) {
    config.note_doubt("dims of a head that rotate", Json(dim),
                      "no even number of at least 2, as pairs are");
  }
  return dim;
}

/// Absent keys of the scaling that was read.
void note_published_keys(const ConfigObject& config, const std::optional<ConfigObject>& scaling,
                         const Rope& rope, const RopeRule& rule) {
  const auto note = [&](std::string_view key, std::string_view value) {
    const bool is_published = std::find(rule.published_keys.begin(), rule.published_keys.end(),
                                        key) != rule.published_keys.end();
    const ConfigObject& object = scaling ? *scaling : config;
    if (is_published && !object.mentions({key})) object.note_class_default(key, value);
  };
  if (!scaling && !config.mentions({"rope_parameters"})) note("rope_scaling", "null");
  if (rope.kind == RopeKind::yarn) {
    note("beta_fast", exact(rope.beta_fast));
    note("beta_slow", exact(rope.beta_slow));
    note("truncate", rope.truncate ? "true" : "false");
    note("mscale", "null");
    note("mscale_all_dim", "null");
  }
  if (rope.kind == RopeKind::longrope) {
    note("short_mscale", "null");
    note("long_mscale", "null");
  }
}

}  // namespace

Rope read_rope(const ConfigObject& config, std::int64_t max_positions, const RopeRule& rule) {
  const auto scaling = scaling_object(config);
  config.carries({"original_max_position_embeddings"});  // where nothing is scaled
  Rope rope;
  rope.kind = read_kind(scaling);
  rope.theta = read_theta(config, scaling, rule.default_theta);
  rope.interleaved = rule.interleaved;
  rope.rotary_dim = read_rotary_dim(config, scaling, rule);
  const bool has_original = rope.kind == RopeKind::yarn || rope.kind == RopeKind::llama3 ||
                            rope.kind == RopeKind::longrope;
  if (has_original)
    rope.original_max_positions = read_original_positions(config, *scaling, max_positions);
  if (rope.kind == RopeKind::linear || rope.kind == RopeKind::dynamic)
    rope.factor = scaling->real({"factor"}, kRopeFactorBounds);
  if (rope.kind == RopeKind::yarn) read_yarn(*scaling, rope);
  if (rope.kind == RopeKind::llama3) read_llama3(*scaling, rope);
  if (rope.kind == RopeKind::longrope) read_longrope(*scaling, max_positions, rope);
  note_published_keys(config, scaling, rope, rule);
  return rope;
}

}  // namespace moestro::model::internal
