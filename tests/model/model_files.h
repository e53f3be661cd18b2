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

}  // namespace moestro::model::testing
