// Thousands of damaged configs through the fuzz target's entry point: no crash, no other error than
// Error(input), positive totals. The target aborts when that is broken.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "moestro/core/log.h"
#include "moestro/core/rng.h"
#include "tests/model/model_files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace moestro::model {
namespace {

#ifdef MOESTRO_SANITIZED
constexpr int kRounds = 500;  // everything costs several times as much
#else
constexpr int kRounds = 3000;
#endif

constexpr std::int64_t kMillion = 1'000'000;

void feed(const std::string& text) {
  const std::vector<std::uint8_t> bytes(text.begin(),
                                        text.end());  // exact size: reads past it show
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

/// At most 16 experts, so that listing the tensors takes no time.
void shrink(Json& object) {
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (object.contains(key))
      object[key] = std::min<std::int64_t>(object[key].get<std::int64_t>(), 16);
  }
}

std::vector<Json> all_configs() {
  std::vector<Json> configs;
  for (const std::string& name : built_in_models()) {
    Json json = testing::model_json(name);
    shrink(json);
    if (json.contains("text_config")) shrink(json["text_config"]);
    configs.push_back(std::move(json));
  }
  return configs;
}

/// Values that are wrong for most keys.
const std::vector<std::string>& hostile_values() {
  static const std::vector<std::string> values = {"null",
                                                  "true",
                                                  "false",
                                                  "0",
                                                  "1",
                                                  "2",
                                                  "3",
                                                  "-1",
                                                  "-9223372036854775808",
                                                  "9223372036854775807",
                                                  "18446744073709551615",
                                                  "65536",
                                                  "1048576",
                                                  "1e308",
                                                  "-0.0",
                                                  "0.5",
                                                  "NaN",
                                                  "-Infinity",
                                                  R"({"__float__": "Infinity"})",
                                                  "\"\"",
                                                  "\"silu\"",
                                                  "\"yarn\"",
                                                  "\"full_attention\"",
                                                  "\"M\"",
                                                  "\"\\u0000\"",
                                                  "[]",
                                                  "[0]",
                                                  "[-1]",
                                                  "[2048]",
                                                  "[\"moe\", \"mlp\"]",
                                                  "[[[[]]]]",
                                                  "{}",
                                                  R"({"type": "yarn", "factor": 2})"};
  return values;
}

/// A random object of the document: the root, or one inside it.
Json& random_object(Json& json, Rng& rng) {
  Json* object = &json;
  for (auto& [key, value] : json.items()) {
    if (value.is_object() && !value.empty() && rng.below(3) == 0) object = &value;
  }
  return *object;
}

/// Erases a key, changes its value, or copies another key's value to it.
void damage(Json& json, Rng& rng) {
  Json& object = random_object(json, rng);
  if (object.empty()) return;
  const auto key_at = [&](std::uint64_t i) {
    return std::next(object.begin(), static_cast<std::ptrdiff_t>(i)).key();
  };
  const std::string key = key_at(rng.below(object.size()));
  switch (rng.below(5)) {
    case 0:
      object.erase(key);
      break;
    case 1:
      object[key] = Json(object[key_at(rng.below(object.size()))]);
      break;
    case 2:
      if (object[key].is_number_integer()) {
        const auto number =
            std::clamp<std::int64_t>(object[key].get<std::int64_t>(), -kMillion, kMillion);
        object[key] = number + static_cast<std::int64_t>(rng.below(7)) - 3;
        break;
      }
      [[fallthrough]];
    default: {
      const auto& values = hostile_values();
      const std::string& value = values[rng.below(values.size())];
      object[key] = parse_json(value, "value");
    }
  }
}

TEST(HfConfigFuzz, DamagedValuesNeverCrash) {
  const LogLevel level = log_level();
  const std::vector<Json> configs = all_configs();
  Rng rng(1, "damaged values");
  for (int i = 0; i < kRounds; ++i) {
    Json json = configs[rng.below(configs.size())];
    for (std::uint64_t n = 1 + rng.below(3); n > 0; --n) damage(json, rng);
    // Dumped, so that non-finite numbers become null, as in a file.
    feed(json.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  set_log_level(level);
}

TEST(HfConfigFuzz, DamagedBytesNeverCrash) {
  const LogLevel level = log_level();
  std::vector<std::string> texts;
  for (const Json& json : all_configs()) texts.push_back(json.dump());
  Rng rng(2, "damaged bytes");
  for (int i = 0; i < kRounds; ++i) {
    std::string text = texts[rng.below(texts.size())];
    for (std::uint64_t n = 1 + rng.below(4); n > 0; --n) {
      const std::size_t at = rng.below(text.size());
      switch (rng.below(4)) {
        case 0:
          text[at] = static_cast<char>(rng.below(256));
          break;
        case 1:
          text.erase(at, 1 + rng.below(8));
          break;
        case 2:
          text.insert(at, std::to_string(rng.next()));
          break;
        default:
          text.resize(at + 1);
      }
      if (text.empty()) text.push_back('{');
    }
    feed(text);
  }
  set_log_level(level);
}

TEST(HfConfigFuzz, DigitsOfSizesNeverCrash) {
  // Sizes stay plausible here, so that many variants are accepted and counted.
  const LogLevel level = log_level();
  const std::vector<Json> configs = all_configs();
  Rng rng(3, "digits");
  for (int i = 0; i < kRounds; ++i) {
    std::string text = configs[rng.below(configs.size())].dump();
    for (int n = 0; n < 2; ++n) {
      const std::size_t at = text.find_first_of("123456789", rng.below(text.size()));
      if (at != std::string::npos) text[at] = static_cast<char>('1' + rng.below(9));
    }
    feed(text);
  }
  set_log_level(level);
}

}  // namespace
}  // namespace moestro::model
