#include "moestro/model/describe.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "moestro/core/file.h"

namespace moestro::model {
namespace {

/// Compares with tests/golden/NAME; MOESTRO_UPDATE_GOLDEN=1 rewrites the file instead.
void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = fmt::format("{}/tests/golden/{}", MOESTRO_SOURCE_DIR, name);
  if (std::getenv("MOESTRO_UPDATE_GOLDEN") != nullptr) write_file_atomically(path, text);
  EXPECT_EQ(text, read_file(path)) << name;
}

TEST(Describe, TextIsAsRecorded) {
  for (const char* name : {"deepseek-v3", "nemotron-3-nano-30b-a3b", "tiny"}) {
    const HfConfig config = resolve_model(name);
    const Ledger ledger = make_ledger(config.model, default_sequence_length(config.model));
    expect_golden(fmt::format("describe_{}.txt", name), describe_text(config, ledger));
  }
}

TEST(Describe, JsonHasTheDocumentedKeys) {
  const HfConfig config = resolve_model("deepseek-v3");
  const Json json = describe_json(config, make_ledger(config.model, 4096));
  EXPECT_EQ(json.begin().key(), "format");
  EXPECT_EQ(json["params"]["total"], 671'026'419'200);
  EXPECT_TRUE(json["params"]["total"].is_number_integer());
  EXPECT_EQ(json["params"]["active"], 37'552'297'472);
  for (const char* key : {"embedding", "attention", "mixer", "router", "routed_experts",
                          "shared_experts", "dense_ffn", "norm", "lm_head", "mtp"}) {
    EXPECT_TRUE(json["params"]["by_component"].contains(key)) << key;
  }
  EXPECT_NEAR(json["flops_per_token"]["model"].get<double>(), 259.99e9, 5e6);
  EXPECT_TRUE(json["flops_per_token"]["by_component"].contains("attention_core"));
  EXPECT_EQ(json["model"]["experts"], 256);
  EXPECT_EQ(json["seq"], 4096);
}

/// A model so small that a token costs few FLOPs.
std::string text_of_hidden(int hidden) {
  Json json = Json::parse(resolve_model("tiny").json);
  for (const char* key : {"hidden_size", "moe_intermediate_size", "vocab_size", "head_dim"}) {
    json[key] = hidden;
  }
  for (const char* key : {"num_attention_heads", "num_key_value_heads", "num_hidden_layers",
                          "num_experts", "num_experts_per_tok"}) {
    json[key] = 1;
  }
  const HfConfig config = parse_hf_config(json.dump(), "config.json");
  return describe_text(config, make_ledger(config.model, 16));
}

TEST(Describe, FlopsHaveAUnitThatShowsThem) {
  using ::testing::HasSubstr;
  EXPECT_THAT(text_of_hidden(512), HasSubstr("  MFLOP/token"));
  EXPECT_THAT(text_of_hidden(64), HasSubstr("  kFLOP/token"));
  // 6 x (q, k, v, o, three expert matrices, head: 8 x 2 x 2) + 12 x 2 dims x 8 keys
  EXPECT_THAT(text_of_hidden(2), HasSubstr("  FLOP/token"));
  EXPECT_THAT(text_of_hidden(2), HasSubstr("384.000"));
  EXPECT_EQ(text_of_hidden(2).find(" 0.000"), std::string::npos);
}

TEST(Describe, WhatIsNotCountedIsSaid) {
  using ::testing::HasSubstr;
  const HfConfig v3 = resolve_model("deepseek-v3");
  const Ledger ledger = make_ledger(v3.model, 16);
  EXPECT_THAT(describe_text(v3, ledger),
              HasSubstr("weights: counted as if unquantised; the file's own are stored as fp8\n"));
  EXPECT_EQ(describe_json(v3, ledger)["model"]["quantization"], "fp8");
  const HfConfig qwen = resolve_model("qwen3.5-35b-a3b");
  EXPECT_THAT(describe_text(qwen, ledger), HasSubstr("not counted: vision_config\n"));
  EXPECT_EQ(describe_json(qwen, ledger)["model"]["not_counted"], Json({"vision_config"}));
  const HfConfig tiny = resolve_model("tiny");
  EXPECT_EQ(describe_text(tiny, ledger).find("counted"), std::string::npos);
  EXPECT_TRUE(describe_json(tiny, ledger)["model"]["quantization"].is_null());
}

TEST(Describe, HostileNamesCannotReachTheTerminal) {
  HfConfig config = resolve_model("tiny");
  config.source = "x\x1b[31m";
  const Ledger ledger = make_ledger(config.model, 16);
  EXPECT_EQ(describe_text(config, ledger).find('\x1b'), std::string::npos);
  EXPECT_EQ(describe_json(config, ledger).dump().find("\\u001b"), std::string::npos);
}

}  // namespace
}  // namespace moestro::model
