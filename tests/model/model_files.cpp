#include "tests/model/model_files.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "moestro/core/error.h"

namespace moestro::model::testing {

Json model_json(std::string_view name) {
  return read_json_file(fmt::format("{}/examples/models/{}.json", MOESTRO_SOURCE_DIR, name));
}

HfConfig parse(const Json& json, const HfConfigOptions& options) {
  return parse_hf_config(json.dump(), "config.json", options);
}

ModelConfig parse_model(const Json& json) {
  return parse(json).model;
}

std::string error_of(const Json& json, const HfConfigOptions& options) {
  try {
    static_cast<void>(parse(json, options));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error for " << json.dump();
  return "";
}

}  // namespace moestro::model::testing
