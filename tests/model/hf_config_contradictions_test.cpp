// Two places of a file that say different things: an error that names both, never a choice.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/model/model_files.h"

namespace moestro::model {
namespace {

using testing::Change;
using testing::error_of;
using ::testing::HasSubstr;
using testing::model_json;
using testing::parse_model;

constexpr Change kContradictions[] = {
    {"tiny", "layer_types", R"(["full_attention"])",
     "[config.json layer_types] expected one entry per layer (num_hidden_layers = 4), got 1; make "
     "them agree"},
    {"tiny", "layer_types", R"(["full_attention", "mamba", "full_attention", "full_attention"])",
     "[config.json layer_types[1]] expected one of full_attention, sliding_attention, got "
     "\"mamba\"; correct it"},
    {"tiny", "layer_types",
     R"(["full_attention", "full_attention", "full_attention", "sliding_attention"])",
     "[config.json layer_types[3]] expected full_attention, since sliding_window is not in use, "
     "got sliding_attention; make them agree"},
    {"mixtral-8x7b", "layer_types", R"(["full_attention"])", "(num_hidden_layers = 32), got 1"},
    {"deepseek-v3", "layer_types", "[5]", "[config.json layer_types[0]] expected text"},
    {"deepseek-v3", "qk_head_dim", "128",
     "[config.json qk_head_dim] expected qk_nope_head_dim + qk_rope_head_dim (192), got 128; make"},
    {"deepseek-v3", "rope_parameters",
     R"({"rope_type": "yarn", "factor": 32, "rope_theta": 10000})",
     "[config.json rope_parameters."},
    {"deepseek-v3", "rope_parameters", R"({"rope_theta": 10000.0})",
     "expected the same value as rope_scaling."},
    {"phi-3.5-moe", "original_max_position_embeddings", "2048",
     "[config.json rope_scaling.original_max_position_embeddings] expected the same value as "
     "original_max_position_embeddings (2048), got 4096; keep one"},
    {"olmoe-1b-7b", "head_dim", "64",
     "[config.json head_dim] expected hidden_size / num_attention_heads (2048 / 16), since the "
     "norm of the queries spans hidden_size, got 64; make them agree"},
    {"qwen3-next-80b-a3b", "attn_output_gate", "false", "[config.json attn_output_gate]"},
    {"tiny", "architectures", R"(["Unknown", "MixtralForCausalLM"])",
     "[config.json architectures] expected a class of qwen3_moe (model_type), like"},
    {"mixtral-8x7b", "architectures", R"(["Qwen3MoeForCausalLM"])",
     "[config.json architectures] expected a class of mixtral (model_type), like "
     "MixtralForCausalLM, got Qwen3MoeForCausalLM; correct one of the two"},
};

TEST(HfConfigContradictions, NameBothPlacesAndTheRemedy) {
  for (const Change& contradiction : kContradictions) testing::expect_refused(contradiction);
}

TEST(HfConfigContradictions, WhatAgreesIsAccepted) {
  Json tiny = model_json("tiny");
  tiny["layer_types"] = Json(4, "full_attention");
  tiny["architectures"] = {"MyQwenForCausalLM"};  // a derived class
  EXPECT_EQ(testing::parse(tiny, {.strict = true}).model.layers.size(), 4U);
  tiny["layer_types"] = Json(4, "sliding_attention");
  tiny["use_sliding_window"] = true;
  tiny["sliding_window"] = 64;
  EXPECT_EQ(parse_model(tiny).layers[3].window, 64);
  Json v3 = model_json("deepseek-v3");
  v3["qk_head_dim"] = 192;
  v3["rope_parameters"] = v3["rope_scaling"];
  EXPECT_NO_THROW(static_cast<void>(testing::parse(v3, {.strict = true})));
}

TEST(HfConfigContradictions, TheRootOfANestedFileMustAgreeWithItsTextModel) {
  for (const char* name : {"qwen3.5-35b-a3b", "llama-4-scout-17b-16e"}) {
    const Json json = model_json(name);
    for (const auto& [key, value] : json["text_config"].items()) {
      if (!value.is_number() || key.ends_with("token_id")) continue;
      Json copied = json;
      copied[key] = value;
      EXPECT_EQ(parse_model(copied).hidden, parse_model(json).hidden) << key;
      if (key == "attention_dropout") continue;  // means nothing here
      copied[key] = value.get<double>() + 1.0;
      EXPECT_THAT(error_of(copied),
                  HasSubstr(fmt::format("[config.json {0}] expected the same value as "
                                        "text_config.{0} (",
                                        key)));
    }
  }
}

TEST(HfConfigContradictions, KeysOfTheTextModelDoNotCountAtTheRoot) {
  Json json = model_json("qwen3.5-35b-a3b");
  json["text_config"].erase("shared_expert_intermediate_size");
  json["shared_expert_intermediate_size"] = 512;
  EXPECT_THAT(error_of(json), HasSubstr("[config.json text_config.shared_expert_"));
  json = model_json("qwen3.5-35b-a3b");
  json["moe_latent_size"] = 512;
  EXPECT_THAT(error_of(json, {.strict = true}),
              HasSubstr("moe_latent_size (it belongs into text_config)"));
}

TEST(HfConfigContradictions, NoSharedExpertHasNoBias) {
  Json json = model_json("deepseek-v2-lite");
  json["n_shared_experts"] = 0;
  EXPECT_EQ(parse_model(json).moe.shared_width, 0);
  json["mlp_bias"] = true;
  EXPECT_THAT(error_of(json), HasSubstr("[config.json n_shared_experts] expected at least 1 beside "
                                        "mlp_bias = true, got 0; transformers would keep"));
}

TEST(HfConfigContradictions, TyingThatIsOverriddenIsSaid) {
  // transformers itself writes false where it was told nothing; the place that counts is the
  // family's own.
  Json json = model_json("qwen3.5-35b-a3b");
  json["text_config"]["tie_word_embeddings"] = false;
  json["tie_word_embeddings"] = true;
  EXPECT_TRUE(testing::parse(json, {.strict = true}).model.tied_embeddings);
  json["text_config"]["tie_word_embeddings"] = true;
  json["tie_word_embeddings"] = false;
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(parse_model(json).tied_embeddings);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "warning: config.json: tie_word_embeddings = false overrides "
            "text_config.tie_word_embeddings = true\n");
  EXPECT_THAT(error_of(json, {.strict = true}), HasSubstr("make them agree"));
}

/// The two objects of a nested file, and what follows.
struct Tying {
  const char* model;
  const char* root;  // JSON; null pointer: the key is absent
  const char* text;
  bool is_tied;
  const char* said;
};

// What transformers does: the class with the head looks at its own configuration, and nowhere else.
constexpr Tying kTyings[] = {
    {"qwen3.5-35b-a3b", "true", nullptr, true, ""},
    {"qwen3.5-35b-a3b", "false", nullptr, false, ""},
    {"qwen3.5-35b-a3b", nullptr, nullptr, false, "defaults: tie_word_embeddings = false\n"},
    {"qwen3.5-35b-a3b", nullptr, "false", false, "defaults: tie_word_embeddings = false\n"},
    {"qwen3.5-35b-a3b", nullptr, "true", false,
     "tie_word_embeddings = false, though absent, overrides text_config.tie_word_embeddings = "
     "true"},
    {"qwen3.5-35b-a3b", nullptr, "true", false, "defaults: tie_word_embeddings = false\n"},
    {"llama-4-scout-17b-16e", nullptr, nullptr, false, ""},
    {"llama-4-scout-17b-16e", nullptr, "true", true, ""},
    {"llama-4-scout-17b-16e", "false", "true", true, ""},
    {"llama-4-scout-17b-16e", "false", nullptr, false, ""},
    {"llama-4-scout-17b-16e", "true", nullptr, false,
     "text_config.tie_word_embeddings = false, though absent, overrides tie_word_embeddings = "
     "true"},
    {"llama-4-scout-17b-16e", "true", "false", false,
     "text_config.tie_word_embeddings = false overrides tie_word_embeddings = true"},
};

TEST(HfConfigContradictions, OneObjectOfANestedFileDecidesAloneAboutTying) {
  for (const Tying& tying : kTyings) {
    SCOPED_TRACE(fmt::format("{} {} {}", tying.model, tying.root == nullptr ? "-" : tying.root,
                             tying.text == nullptr ? "-" : tying.text));
    Json json = model_json(tying.model);
    const auto set = [](Json& object, const char* value) {
      object.erase("tie_word_embeddings");
      if (value != nullptr) object["tie_word_embeddings"] = Json::parse(value);
    };
    set(json, tying.root);
    set(json["text_config"], tying.text);
    const std::string warnings = testing::warnings_of(json);
    EXPECT_THAT(warnings, HasSubstr(tying.said));
    EXPECT_EQ(warnings.empty(), *tying.said == '\0') << warnings;
    EXPECT_EQ(parse_model(json).tied_embeddings, tying.is_tied);
  }
}

TEST(HfConfigContradictions, RopeLayersOfLlamaAreOnePerLayer) {
  Json json = model_json("llama-4-scout-17b-16e");
  json["text_config"]["no_rope_layers"] = Json(49, 1);
  EXPECT_THAT(error_of(json), HasSubstr("text_config.no_rope_layers] expected one entry per layer "
                                        "(num_hidden_layers = 48), got 49; make them agree"));
}

TEST(HfConfigContradictions, AnOverriddenIntervalIsSaidAndIsAStrictError) {
  Json json = model_json("qwen3-next-80b-a3b");
  json["layer_types"] = Json(48, "full_attention");
  ::testing::internal::CaptureStderr();
  static_cast<void>(parse_model(json));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "warning: config.json: layer_types overrides full_attention_interval = 4\n");
  EXPECT_THAT(error_of(json, {.strict = true}), HasSubstr("make them agree"));
}

}  // namespace
}  // namespace moestro::model
