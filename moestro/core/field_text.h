#pragma once
// How options are described to people: the words of error messages and of the options page.

#include <string>

#include "moestro/core/fields.h"

namespace moestro {

/// "a whole number >= 1", "one of \"f32\", \"bf16\"".
[[nodiscard]] std::string expectation(const Field& field);

/// The default, as TOML: `100`, `"byte"`, `[0.9, 0.95]`.
[[nodiscard]] std::string value_as_toml(const Target& target);

/// What to do about a rejected value: the nearest choice, or an example.
[[nodiscard]] std::string remedy(const Field& field, const std::string& got);

}  // namespace moestro
