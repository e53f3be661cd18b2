// Every spelling of a field reads the same: transformers v4 and v5 names, synonyms between
// families.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "moestro/model/model_config.h"
#include "tests/model/model_files.h"

namespace moestro::model {
namespace {

using testing::model_json;
using testing::parse_model;

struct Renaming {
  const char* model;
  const char* from;
  const char* to;
};

constexpr Renaming kRenamings[] = {
    {"tiny", "num_experts", "num_local_experts"},
    {"tiny", "num_experts", "n_routed_experts"},
    {"mixtral-8x7b", "num_local_experts", "num_experts"},
    {"deepseek-v3", "n_routed_experts", "num_local_experts"},
    {"deepseek-v2-lite", "n_routed_experts", "num_experts"},
    {"nemotron-3-nano-30b-a3b", "n_routed_experts", "num_local_experts"},
    {"gpt-oss-20b", "num_experts_per_tok", "experts_per_token"},
    {"deepseek-v3", "num_nextn_predict_layers", "num_mtp_layers"},
    {"nemotron-3-nano-30b-a3b", "n_groups", "mamba_n_groups"},
    {"nemotron-3-nano-30b-a3b", "conv_kernel", "mamba_d_conv"},
    {"nemotron-3-nano-30b-a3b", "use_conv_bias", "mamba_conv_bias"},
    {"nemotron-3-nano-30b-a3b", "chunk_size", "mamba_chunk_size"},
    {"nemotron-3-nano-30b-a3b", "time_step_min", "mamba_dt_min"},
};

/// Two spellings of one model say the same but for the names of family and tensors.
void expect_same(ModelConfig a, const ModelConfig& b, const char* what) {
  a.model_type = b.model_type;
  a.architecture = b.architecture;
  a.is_nested = b.is_nested;
  EXPECT_TRUE(a == b) << what;
}

TEST(HfConfigSpelling, SynonymsReadTheSame) {
  for (const Renaming& renaming : kRenamings) {
    const Json json = model_json(renaming.model);
    Json renamed = json;
    renamed[renaming.to] = renamed[renaming.from];
    renamed.erase(renaming.from);
    expect_same(parse_model(json), parse_model(renamed), renaming.to);
  }
}

TEST(HfConfigSpelling, EpsilonOfNemotronHasThree) {
  const Json json = model_json("nemotron-3-nano-30b-a3b");
  for (const char* key : {"layer_norm_epsilon", "norm_eps", "rms_norm_eps"}) {
    Json renamed = json;
    renamed.erase("layer_norm_epsilon");
    renamed.erase("norm_eps");
    renamed[key] = 1e-5;
    expect_same(parse_model(json), parse_model(renamed), key);
  }
}

TEST(HfConfigSpelling, RopeParametersReplaceThetaAndScaling) {
  for (const char* name : {"deepseek-v3", "gpt-oss-20b", "qwen3-next-80b-a3b", "phi-3.5-moe"}) {
    const Json json = model_json(name);
    Json renamed = json;
    Json rope = json["rope_scaling"].is_null() ? Json::object() : json["rope_scaling"];
    if (rope.contains("type")) {
      rope["rope_type"] = rope["type"];
      rope.erase("type");
    }
    rope["rope_theta"] = json["rope_theta"];
    if (json.contains("partial_rotary_factor")) {
      rope["partial_rotary_factor"] = json["partial_rotary_factor"];
      renamed.erase("partial_rotary_factor");
    }
    renamed["rope_parameters"] = rope;
    renamed.erase("rope_theta");
    renamed.erase("rope_scaling");
    expect_same(parse_model(json), parse_model(renamed), name);
  }
}

TEST(HfConfigSpelling, NemotronBlocksByLetterOldAndNewTypes) {
  Json letters = model_json("nemotron-3-nano-30b-a3b");
  letters["hybrid_override_pattern"] = "ME*-";
  letters["num_hidden_layers"] = 4;
  const ModelConfig expected = parse_model(letters);
  for (const char* key : {"layers_block_type", "layer_types"}) {
    for (const bool old : {false, true}) {
      Json types = letters;
      types.erase("hybrid_override_pattern");
      types.erase("num_hidden_layers");
      types[key] = {old ? "mamba" : "linear_attention", "moe", old ? "attention" : "full_attention",
                    "mlp"};
      expect_same(expected, parse_model(types), key);
    }
  }
}

TEST(HfConfigSpelling, LayerTypesReplaceTheInterval) {
  Json interval = model_json("qwen3-next-80b-a3b");
  interval["num_hidden_layers"] = 4;
  Json types = interval;
  types.erase("full_attention_interval");
  types["layer_types"] = {"linear_attention", "linear_attention", "linear_attention",
                          "full_attention"};
  expect_same(parse_model(interval), parse_model(types), "layer_types");
}

TEST(HfConfigSpelling, TextOnlyFilesReadAsTheirNestedPart) {
  for (const char* name : {"llama-4-scout-17b-16e", "qwen3.5-35b-a3b"}) {
    const Json json = model_json(name);
    expect_same(parse_model(json), parse_model(json["text_config"]), name);
  }
}

TEST(HfConfigSpelling, NonFiniteNumbersOfBothWritersAreAccepted) {
  const std::string file = model_json("nemotron-3-nano-30b-a3b").dump();
  for (const char* infinity : {R"({"__float__": "Infinity"})", "Infinity"}) {
    const std::string text =
        file.substr(0, file.size() - 1) + R"(, "time_step_limit": [0.0, )" + infinity + "]}";
    EXPECT_EQ(parse_hf_config(text, "config.json").model.layers.size(), 52U);
  }
}

}  // namespace
}  // namespace moestro::model
