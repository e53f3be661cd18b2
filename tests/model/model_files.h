#pragma once
// Configs for tests: the built-in files as JSON, with changes.

#include <string>
#include <string_view>

#include "moestro/core/json.h"
#include "moestro/model/hf_config.h"

namespace moestro::model::testing {

/// A file of examples/models, by name.
[[nodiscard]] Json model_json(std::string_view name);

/// Reads a changed config; messages call it "config.json".
[[nodiscard]] HfConfig parse(const Json& json, const HfConfigOptions& options = {});
[[nodiscard]] ModelConfig parse_model(const Json& json);

/// The message of the Error(input) that reading throws; a test failure if it does not.
[[nodiscard]] std::string error_of(const Json& json, const HfConfigOptions& options = {});

/// What reading says on standard error.
[[nodiscard]] std::string warnings_of(const Json& json);

/// A change to a built-in model, and a part of what is then said.
struct Change {
  const char* model;
  const char* key;    // of the text model
  const char* value;  // JSON; null pointer: the key is erased
  const char* expected;
};
[[nodiscard]] Json changed(const Change& change);

/// Expects an error of one line with a remedy.
void expect_refused(const Change& change);
/// Expects a warning, which is an error with `strict`.
void expect_warning(const Change& change);
/// Expects neither, strictly read; `expected` is unused.
void expect_silence(const Change& change);

}  // namespace moestro::model::testing
