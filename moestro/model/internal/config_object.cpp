#include "moestro/model/internal/config_object.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "moestro/core/text.h"
#include "moestro/model/internal/known_keys.h"

namespace moestro::model::internal {
namespace {

std::int64_t whole_number(const ConfigObject& config, std::string_view key, const Json& value,
                          Range range) {
  const bool is_whole = value.is_number_integer() &&
                        !(value.is_number_unsigned() &&
                          value.get<std::uint64_t>() >
                              static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
  if (is_whole) {
    const auto number = value.get<std::int64_t>();
    if (number >= range.min && number <= range.max) return number;
  }
  throw config.error(key, "expected a whole number from {} to {}, got {}; correct the value",
                     range.min, range.max, config.shown(value));
}

/// What a number within bounds is called: a sign that is wrong needs no bounds to be seen.
std::string bounds_text(const Bounds& bounds, bool has_right_sign) {
  if (!has_right_sign) return bounds.min > 0.0 ? "a number > 0" : "a number >= 0";
  return fmt::format("a number from {} to {}", plain(bounds.min), plain(bounds.max));
}

double real_number(const ConfigObject& config, std::string_view key, const Json& value,
                   const Bounds& bounds) {
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  const bool is_within = number >= bounds.min && number <= bounds.max;  // not if NaN
  if (!is_within) {
    const bool has_right_sign = number > 0.0 || (bounds.min == 0.0 && number == 0.0);
    throw config.error(key, "expected {}, got {}; correct the value",
                       bounds_text(bounds, has_right_sign), config.shown(value));
  }
  const bool is_usual = number == 0.0 || (number >= bounds.usual_min && number <= bounds.usual_max);
  if (!is_usual) {
    config.note_doubt(
        key, value,
        fmt::format("models have {} to {}", plain(bounds.usual_min), plain(bounds.usual_max)));
  }
  return number;
}

bool boolean(const ConfigObject& config, std::string_view key, const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  throw config.error(key, "expected true or false, got {}; correct the value", config.shown(value));
}

std::string string(const ConfigObject& config, std::string_view key, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  throw config.error(key, "expected text in quotes, got {}; correct the value",
                     config.shown(value));
}

/// Applies `read` to every element of a list; element errors name the index.
template <class T, class Read>
std::vector<T> list(const ConfigObject& config, std::string_view key, const Json* value,
                    Read&& read) {
  std::vector<T> result;
  if (value == nullptr) return result;
  if (!value->is_array()) {
    throw config.error(key, "expected a list, got {}; correct the value", config.shown(*value));
  }
  result.reserve(value->size());
  for (std::size_t i = 0; i < value->size(); ++i) {
    result.push_back(read(fmt::format("{}[{}]", key, i), (*value)[i]));
  }
  return result;
}

}  // namespace

ConfigObject::ConfigObject(const Json& object, std::string file, std::string path,
                           Findings& findings)
    : object_(&object), file_(std::move(file)), path_(std::move(path)), findings_(&findings) {
  if (!object.is_object()) {
    const std::string key = path_.substr(0, path_.size() - (path_.empty() ? 0 : 1));
    throw input_error(key.empty() ? file_ : fmt::format("{} {}", file_, key),
                      "expected a JSON object {{...}}, got {}; is this a config.json?",
                      shown(object));
  }
}

std::string ConfigObject::where(std::string_view key) const {
  return fmt::format("{} {}{}", file_, path_, key);
}

std::string ConfigObject::shown(const Json& value) const {
  constexpr std::size_t kShownBytes = 60;
  return moestro::shown(value, findings_->numbers, kShownBytes);
}

bool ConfigObject::mentions(Keys keys) const {
  for (const std::string_view key : keys) {
    if (object_->contains(key)) return true;
  }
  return false;
}

const Json* ConfigObject::find(Keys keys) const {
  const Json* found = nullptr;
  std::string_view found_key;
  for (const std::string_view key : keys) {
    findings_->asked_keys.insert(fmt::format("{}{}", path_, key));
    const auto entry = object_->find(key);
    if (entry == object_->end() || entry->is_null()) continue;
    if (found == nullptr) {
      found = &*entry;
      found_key = key;
    } else if (*found != *entry) {
      throw error(key, "expected the same value as {} ({}), got {}; they spell one field: keep one",
                  found_key, shown(*found), shown(*entry));
    }
  }
  return found;
}

std::string_view ConfigObject::spelling(Keys keys) const {
  for (const std::string_view key : keys) {
    const auto entry = object_->find(key);
    if (entry != object_->end() && !entry->is_null()) return key;
  }
  return *keys.begin();
}

Error ConfigObject::missing(Keys keys, std::string_view what) const {
  std::vector<std::string> others(keys.begin() + 1, keys.end());
  const std::string also =
      others.empty() ? "" : fmt::format(" (other spellings: {})", join(others, ", "));
  const std::string misspelt =
      mentions(keys) ? "" : unknown_key_near(*this, {keys.begin(), keys.end()});
  return error(*keys.begin(), "expected {}, but the key is {}; {}{}", what,
               mentions(keys) ? "null" : "missing",
               misspelt.empty() ? "add it" : fmt::format("is \"{}\" meant?", misspelt), also);
}

void ConfigObject::note_class_default(std::string_view key, std::string_view value) const {
  findings_->class_defaults.push_back(fmt::format("{}{} = {}", path_, key, value));
}

void ConfigObject::note_usual_default(std::string_view key, std::string_view value) const {
  const std::string note = fmt::format("{}{} = {}", path_, key, value);
  auto& notes = findings_->usual_defaults;
  if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
}

void ConfigObject::note_fallback(Keys keys, std::string_view value) const {
  if (!mentions(keys)) note_usual_default(*keys.begin(), value);
}

std::int64_t ConfigObject::size(Keys keys, Range range) const {
  const Json* value = find(keys);
  if (value == nullptr) throw missing(keys, "a whole number");
  return whole_number(*this, spelling(keys), *value, range);
}

std::int64_t ConfigObject::size_or(Keys keys, std::int64_t fallback, Range range) const {
  const auto value = optional_size(keys, range);
  if (!value) note_fallback(keys, std::to_string(fallback));
  return value.value_or(fallback);
}

std::optional<std::int64_t> ConfigObject::optional_size(Keys keys, Range range) const {
  const Json* value = find(keys);
  if (value == nullptr) return std::nullopt;
  return whole_number(*this, spelling(keys), *value, range);
}

std::int64_t ConfigObject::size_or_class(Keys keys, std::int64_t class_default, Range range) const {
  const auto value = optional_size(keys, range);
  if (!value) note_class_default(*keys.begin(), std::to_string(class_default));
  return value.value_or(class_default);
}

double ConfigObject::real(Keys keys, const Bounds& bounds) const {
  const auto value = optional_real(keys, bounds);
  if (!value) throw missing(keys, bounds_text(bounds, false));
  return *value;
}

double ConfigObject::real_or(Keys keys, double fallback, const Bounds& bounds) const {
  const auto value = optional_real(keys, bounds);
  if (!value) note_fallback(keys, exact(fallback));
  return value.value_or(fallback);
}

std::optional<double> ConfigObject::optional_real(Keys keys, const Bounds& bounds) const {
  const Json* value = find(keys);
  if (value == nullptr) return std::nullopt;
  return real_number(*this, spelling(keys), *value, bounds);
}

double ConfigObject::real_or_class(Keys keys, double class_default, const Bounds& bounds) const {
  const auto value = optional_real(keys, bounds);
  if (!value) note_class_default(*keys.begin(), exact(class_default));
  return value.value_or(class_default);
}

bool ConfigObject::flag(Keys keys) const {
  const Json* value = find(keys);
  if (value == nullptr) throw missing(keys, "true or false");
  return boolean(*this, spelling(keys), *value);
}

bool ConfigObject::flag_or(Keys keys, bool fallback) const {
  const Json* value = find(keys);
  if (value == nullptr) note_fallback(keys, fallback ? "true" : "false");
  return value == nullptr ? fallback : boolean(*this, spelling(keys), *value);
}

bool ConfigObject::flag_or_class(Keys keys, bool class_default) const {
  const Json* value = find(keys);
  if (value == nullptr) note_class_default(*keys.begin(), class_default ? "true" : "false");
  return value == nullptr ? class_default : boolean(*this, spelling(keys), *value);
}

std::string ConfigObject::text(Keys keys) const {
  const Json* value = find(keys);
  if (value == nullptr) throw missing(keys, "text");
  return string(*this, spelling(keys), *value);
}

std::string ConfigObject::text_or(Keys keys, std::string_view fallback) const {
  const Json* value = find(keys);
  if (value == nullptr) note_fallback(keys, fallback);
  return value == nullptr ? std::string(fallback) : string(*this, spelling(keys), *value);
}

std::vector<std::string> ConfigObject::texts(Keys keys) const {
  return list<std::string>(
      *this, spelling(keys), find(keys),
      [&](const std::string& key, const Json& value) { return string(*this, key, value); });
}

std::vector<std::int64_t> ConfigObject::whole_numbers(Keys keys, Range range) const {
  return list<std::int64_t>(*this, spelling(keys), find(keys),
                            [&](const std::string& key, const Json& value) {
                              return whole_number(*this, key, value, range);
                            });
}

std::vector<double> ConfigObject::reals(Keys keys, const Bounds& bounds) const {
  return list<double>(*this, spelling(keys), find(keys),
                      [&](const std::string& key, const Json& value) {
                        return real_number(*this, key, value, bounds);
                      });
}

void ConfigObject::carries(Keys keys) const {
  for (const std::string_view key : keys) {
    findings_->carried_keys.insert(fmt::format("{}{}", path_, key));
  }
}

void ConfigObject::note_doubt(std::string_view key, const Json& value, std::string_view why) const {
  const std::string note = fmt::format("{}{} = {}: {}", path_, key, shown(value), why);
  auto& doubts = findings_->doubts;
  if (std::find(doubts.begin(), doubts.end(), note) == doubts.end()) doubts.push_back(note);
}

std::optional<ConfigObject> ConfigObject::object(std::string_view key) const {
  const Json* value = find({key});
  if (value == nullptr) return std::nullopt;
  return ConfigObject(*value, file_, fmt::format("{}{}.", path_, key), *findings_);
}

}  // namespace moestro::model::internal
