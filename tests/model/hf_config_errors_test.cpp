// Malformed configs: one clear line that names file, key and what to do.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "moestro/core/error.h"
#include "tests/model/model_files.h"

namespace moestro::model {
namespace {

using testing::Change;
using testing::error_of;
using ::testing::HasSubstr;
using testing::model_json;
using testing::parse_model;

constexpr Change kBadValues[] = {
    {"tiny", "hidden_size", nullptr,
     "[config.json hidden_size] expected a whole number, but the key is missing"},
    {"tiny", "hidden_size", "0", "[config.json hidden_size] expected a whole number from 1"},
    {"tiny", "hidden_size", "-128", "got -128"},
    {"tiny", "hidden_size", "1e30", "got 1e+30"},
    {"tiny", "hidden_size", "128.0", "got 128.0"},
    {"tiny", "hidden_size", "18446744073709551615", "got 18446744073709551615"},
    {"tiny", "hidden_size", "\"128\"", "got \"128\""},
    {"tiny", "hidden_size", "true", "got true"},
    {"tiny", "num_hidden_layers", "1000000", "from 1 to 2048"},
    {"tiny", "vocab_size", "[256]", "got [256]"},
    {"tiny", "num_experts", "0", "from 1 to 65536, got 0"},
    {"tiny", "num_experts_per_tok", "9", "expected at most the number of experts (8), got 9"},
    {"tiny", "num_experts_per_tok", nullptr, "experts_per_token"},
    {"tiny", "moe_intermediate_size", nullptr, "[config.json moe_intermediate_size]"},
    {"tiny", "num_key_value_heads", "3", "expected a divisor of num_attention_heads (4), got 3"},
    {"tiny", "num_key_value_heads", nullptr, "[config.json num_key_value_heads]"},
    {"tiny", "rms_norm_eps", "-1", "expected a number > 0, got -1"},
    {"tiny", "rms_norm_eps", "\"small\"", "got \"small\""},
    {"tiny", "norm_topk_prob", "1", "expected true or false, got 1"},
    {"tiny", "hidden_act", "\"gelu\"", "expected silu"},
    {"tiny", "mlp_only_layers", "[4]",
     "[config.json mlp_only_layers[0]] expected a whole number from 0 to 3"},
    {"tiny", "mlp_only_layers", "3", "expected a list"},
    {"tiny", "decoder_sparse_step", "0", "from 1 to"},
    {"tiny", "rope_theta", "0", "expected a number > 0, got 0"},
    {"tiny", "rope_scaling", R"({"type": "dynamik", "factor": 2})",
     "[config.json rope_scaling.type] expected one of default, linear, dynamic, yarn, llama3, "
     "longrope, proportional, got "},
    {"tiny", "rope_scaling", R"({"type": "yarn"})", "[config.json rope_scaling.factor]"},
    {"tiny", "rope_scaling", R"({"type": "yarn", "rope_type": "linear", "factor": 2})",
     "they spell one field"},
    {"tiny", "rope_scaling", "[]", "expected a JSON object"},
    {"tiny", "rope_parameters", R"({"rope_theta": 5})", "expected the same value as rope_theta"},
    {"tiny", "rope_parameters", R"({"full_attention": {"rope_theta": 5}})", "per-layer-type"},
    {"tiny", "partial_rotary_factor", "0.5", "rotates whole heads"},
    {"tiny", "num_local_experts", "16", "expected the same value as num_experts (8), got 16"},
    {"tiny", "model_type", "\"qwen3_mo\"", "perhaps qwen3_moe"},
    {"tiny", "model_type", "\"llama\"", "expected a family of MoE models"},
    {"tiny", "model_type", nullptr,
     "[config.json model_type] expected text, but the key is missing"},
    {"tiny", "text_config", R"({"model_type": "mixtral"})", "expected the text part of qwen3_moe"},
    {"mixtral-8x7b", "num_attention_heads", "30",
     "expected a divisor of hidden_size (4096), got 30"},
    {"deepseek-v3", "n_group", "7", "expected a divisor of the number of experts (256), got 7"},
    {"deepseek-v3", "n_group", "256", "groups of two experts or more"},
    {"deepseek-v3", "topk_group", "9", "expected at most n_group (8), got 9"},
    {"deepseek-v3", "num_experts_per_tok", "200", "of the 4 chosen groups (128), got 200"},
    {"deepseek-v3", "q_lora_rank", "0", "from 1 to"},
    {"deepseek-v3", "kv_lora_rank", nullptr, "[config.json kv_lora_rank]"},
    {"deepseek-v3", "scoring_func", "\"softmax\"", "expected one of sigmoid"},
    {"deepseek-v3", "topk_method", "\"greedy\"", "expected one of noaux_tc"},
    {"deepseek-v2-lite", "topk_method", "\"best\"", "greedy, group_limited_greedy"},
    {"nemotron-3-nano-30b-a3b", "hybrid_override_pattern", "\"MEX\"", "got 'X' at position 3"},
    {"nemotron-3-nano-30b-a3b", "hybrid_override_pattern", "\"ME\"",
     "expected the number of blocks in the pattern (2), got 52"},
    {"nemotron-3-nano-30b-a3b", "hybrid_override_pattern", nullptr, "layers_block_type"},
    {"nemotron-3-nano-30b-a3b", "layers_block_type", R"(["moe"])", "expected the same blocks"},
    {"nemotron-3-nano-30b-a3b", "layers_block_type", R"(["mlp", "lstm"])",
     "[config.json layers_block_type[1]] expected one of"},
    {"nemotron-3-nano-30b-a3b", "n_groups", "7",
     "expected a divisor of mamba_num_heads (64), got 7"},
    {"nemotron-3-nano-30b-a3b", "mlp_hidden_act", "\"silu\"", "expected relu2 or gelu"},
    {"nemotron-3-nano-30b-a3b", "use_conv_bias", nullptr, "[config.json use_conv_bias]"},
    {"nemotron-3-nano-30b-a3b", "norm_eps", "1e-6", "they spell one field"},
    {"qwen3-next-80b-a3b", "layer_types", R"(["full_attention"])",
     "expected one entry per layer (num_hidden_layers = 48), got 1"},
    {"qwen3-next-80b-a3b", "linear_num_key_heads", "5",
     "expected a divisor of linear_num_value_heads (32), got 5"},
    {"qwen3-next-80b-a3b", "partial_rotary_factor", "1.5", "expected a number in (0, 1]"},
    {"gpt-oss-20b", "sliding_window", "null",
     "[config.json sliding_window] expected a whole number, but the key is null"},
    {"gpt-oss-20b", "experts_per_token", "5", "they spell one field"},
    {"phi-3.5-moe", "eos_token_id", "\"end\"", "expected a token id"},
    {"phi-3.5-moe", "eos_token_id", "18446744073709551615", "expected a token id"},
    {"phi-3.5-moe", "eos_token_id", "-2", "expected a token id"},
    {"phi-3.5-moe", "pad_token_id", "[1.0]", "expected a token id or a list of them, got 1.0;"},
    {"olmoe-1b-7b", "clip_qkv", "-8", "expected a number > 0, got -8"},
};

TEST(HfConfigErrors, NameFileKeyAndRemedy) {
  for (const Change& bad : kBadValues) testing::expect_refused(bad);
}

/// The message for tiny with `text` as the value of a key.
std::string error_of_text(std::string_view key, std::string_view text) {
  Json json = model_json("tiny");
  json[key] = "@";
  std::string file = json.dump();
  file.replace(file.find("\"@\""), 3, text);
  try {
    static_cast<void>(parse_hf_config(file, "config.json"));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(HfConfigErrors, ShowValuesAsTheFileWritesThem) {
  for (const char* text : {"2.0", "1E3", "NaN", "-Infinity", "99999999999999999999",
                           "123456789012345678901234567890"}) {
    for (const char* key : {"hidden_size", "norm_topk_prob", "hidden_act", "mlp_only_layers"}) {
      EXPECT_THAT(error_of_text(key, text), HasSubstr(fmt::format(" got {}; ", text))) << key;
    }
  }
  EXPECT_THAT(error_of_text("hidden_size", "[1.50, NaN]"), HasSubstr("got [1.50,NaN];"));
  EXPECT_THAT(error_of_text("hidden_size", R"({"__float__": "NaN"})"), HasSubstr("got NaN;"));
  EXPECT_THAT(error_of_text("num_local_experts", "16.0"), HasSubstr("(8), got 16.0;"));
  EXPECT_THAT(error_of_text("partial_rotary_factor", "0.50"), HasSubstr("got 0.50;"));
  EXPECT_THAT(error_of_text("hidden_size", std::string(500, '9')), HasSubstr("expected numbers"));
  EXPECT_THAT(error_of_text("hidden_size", std::string(300, '9')), HasSubstr("999…; correct"));
  EXPECT_LT(error_of_text("hidden_size", fmt::format("\"{}\"", std::string(500, 'x'))).size(),
            200U);
}

TEST(HfConfigErrors, NestedKeysCarryTheirPath) {
  Json json = model_json("llama-4-scout-17b-16e");
  json["text_config"]["hidden_size"] = -1;
  EXPECT_THAT(error_of(json), HasSubstr("[config.json text_config.hidden_size]"));
  json["text_config"] = 5;
  EXPECT_THAT(error_of(json), HasSubstr("[config.json text_config] expected a JSON object"));
}

TEST(HfConfigErrors, AbsurdModelsAreRejectedBeforeAnyAllocation) {
  Json json = model_json("tiny");
  json["num_experts"] = 65536;
  json["num_hidden_layers"] = 2048;
  EXPECT_THAT(error_of(json), HasSubstr("experts over all layers"));
  json = model_json("tiny");
  json["hidden_size"] = 1 << 20;
  json["moe_intermediate_size"] = 1 << 20;
  json["num_experts"] = 1024;
  EXPECT_THAT(error_of(json), HasSubstr("1e15 parameters"));
}

TEST(HfConfigErrors, RootsThatAreNoObjectsAreRejected) {
  for (const char* text : {"[]", "5", "null", "\"x\"", "", "{", "\xFF"}) {
    EXPECT_THROW(static_cast<void>(parse_hf_config(text, "config.json")), Error) << text;
  }
}

TEST(HfConfigErrors, UnknownKeysWarnOnceWithTheNearest) {
  Json json = model_json("tiny");
  json["num_expert_per_tok"] = 2;
  json["zzz"] = 1;
  ::testing::internal::CaptureStderr();
  static_cast<void>(parse_model(json));
  const std::string warning = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(
      warning,
      "warning: config.json: ignoring keys that mean nothing here: num_expert_per_tok (did you "
      "mean num_experts_per_tok?), zzz\n");
  EXPECT_THAT(error_of(json, {.strict = true}), HasSubstr("num_experts_per_tok"));
}

TEST(HfConfigErrors, KeysThatShapeOtherFamiliesWarn) {
  Json json = model_json("mixtral-8x7b");
  json["n_shared_experts"] = 2;
  json["q_lora_rank"] = nullptr;
  json["moe_layers"] = Json::array();
  json["num_nextn_predict_layers"] = 0;
  json["lm_head_bias"] = false;
  ::testing::internal::CaptureStderr();
  static_cast<void>(parse_model(json));
  EXPECT_EQ(
      ::testing::internal::GetCapturedStderr(),
      "warning: config.json: ignoring keys that mean nothing here: n_shared_experts (a key of "
      "other families)\n");
  EXPECT_THAT(error_of(json, {.strict = true}), HasSubstr("n_shared_experts"));
  Json mamba = model_json("nemotron-3-nano-30b-a3b");
  mamba["hybrid_override_pattern"] = "M*";
  mamba["num_hidden_layers"] = 2;
  EXPECT_NO_THROW(static_cast<void>(testing::parse(mamba, {.strict = true})));
}

TEST(HfConfigErrors, ClassDefaultsWarnOnceAndAreStrictErrors) {
  Json json = model_json("tiny");
  json.erase("rope_theta");
  json.erase("norm_topk_prob");
  ::testing::internal::CaptureStderr();
  const ModelConfig model = parse_model(json);
  EXPECT_EQ(
      ::testing::internal::GetCapturedStderr(),
      "warning: config.json: 2 keys absent, taken from transformers' defaults: rope_theta = 10000, "
      "norm_topk_prob = false\n");
  EXPECT_EQ(model.rope.theta, 10000.0);
  EXPECT_FALSE(model.moe.router.renormalise);
  EXPECT_THAT(error_of(json, {.strict = true}), HasSubstr("rope_theta"));
}

TEST(HfConfigErrors, KnownKeysThatDoNotMatterAreSilent) {
  Json json = model_json("tiny");
  for (const char* key : {"attention_dropout", "use_cache", "id2label", "sep_token_id", "auto_map",
                          "quantization_config", "temperature", "_name_or_path"}) {
    json[key] = Json::object();
  }
  EXPECT_NO_THROW(static_cast<void>(testing::parse(json, {.strict = true})));
}

}  // namespace
}  // namespace moestro::model
