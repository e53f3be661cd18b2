#include "tests/model/model_files.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
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

std::string warnings_of(const Json& json) {
  ::testing::internal::CaptureStderr();
  try {
    static_cast<void>(parse(json));
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
  return ::testing::internal::GetCapturedStderr();
}

Json changed(const Change& change) {
  Json json = model_json(change.model);
  Json& text = json.contains("text_config") ? json["text_config"] : json;
  if (change.value == nullptr) {
    text.erase(change.key);
  } else {
    text[change.key] = Json::parse(change.value);
  }
  return json;
}

void expect_refused(const Change& change) {
  const std::string message = error_of(changed(change));
  EXPECT_THAT(message, ::testing::HasSubstr(change.expected)) << change.model << " " << change.key;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_THAT(message, ::testing::HasSubstr(";")) << "no remedy";
}

void expect_warning(const Change& change) {
  const Json json = changed(change);
  const auto is_expected = ::testing::HasSubstr(change.expected);
  EXPECT_THAT(warnings_of(json), is_expected) << change.model << " " << change.key;
  EXPECT_THAT(error_of(json, {.strict = true}), is_expected) << change.model << " " << change.key;
}

void expect_silence(const Change& change) {
  try {
    static_cast<void>(parse(changed(change), {.strict = true}));
  } catch (const Error& error) {
    ADD_FAILURE() << change.model << " " << change.key << ": " << error.what();
  }
}

}  // namespace moestro::model::testing
