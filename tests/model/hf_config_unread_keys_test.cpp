// Keys that a family does not look at: silent where no value of theirs changes a number, a warning
// or an error where one does in another family or program.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "moestro/model/ledger.h"
#include "tests/model/model_files.h"

namespace moestro::model {
namespace {

using testing::Change;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::model_json;
using testing::parse;

TEST(HfConfigUnreadKeys, BiasesThatAFamilyLacksAreRefused) {
  constexpr const char* kRemedy =
      "] expected false, got true; models of this family have no such biases: correct it or remove";
  for (const char* model : {"tiny", "mixtral-8x7b", "olmoe-1b-7b", "granite-3.0-1b-a400m",
                            "phi-3.5-moe", "gpt-oss-20b", "deepseek-moe-16b", "deepseek-v3",
                            "qwen3-next-80b-a3b", "qwen3.5-35b-a3b", "llama-4-scout-17b-16e"}) {
    testing::expect_refused({model, "mlp_bias", "true", kRemedy});
    testing::expect_silence({model, "mlp_bias", "false", ""});
    testing::expect_silence({model, "mlp_bias", "null", ""});
  }
  for (const char* model : {"mixtral-8x7b", "nemotron-3-nano-30b-a3b"}) {
    testing::expect_warning(
        {model, "attention_bias", "true", "transformers gives this family none"});
    testing::expect_silence({model, "attention_bias", "false", ""});
  }
  testing::expect_refused({"tiny", "lm_head_bias", "true", kRemedy});
  testing::expect_refused({"deepseek-v3", "qkv_bias", "true", kRemedy});
  testing::expect_refused({"nemotron-3-nano-30b-a3b", "mamba_proj_bias", "true", kRemedy});
  testing::expect_refused({"tiny", "qkv_bias", "true", "[config.json qkv_bias] expected false"});
  testing::expect_silence({"tiny", "qkv_bias", "false", ""});
}

TEST(HfConfigUnreadKeys, BiasesThatAFamilyHasAreCounted) {
  const auto total = [](const Json& json) {
    return make_ledger(testing::parse_model(json), 16).params.total;
  };
  const Json v2 = model_json("deepseek-v2-lite");
  const Json v2_biased = testing::changed({"deepseek-v2-lite", "mlp_bias", "true", ""});
  // One dense layer of width 10944, 26 shared experts of width 2 * 1408: gate, up, down.
  EXPECT_EQ(total(v2_biased) - total(v2), (2 * 10944 + 2048) + 26 * (2 * 2 * 1408 + 2048));
  const Json nemotron = model_json("nemotron-3-nano-30b-a3b");
  const Json biased = testing::changed({"nemotron-3-nano-30b-a3b", "mlp_bias", "true", ""});
  EXPECT_EQ(total(biased) - total(nemotron), 23 * (3712 + 2688));
}

/// Keys that another family would follow.
constexpr Change kForeign[] = {
    {"mixtral-8x7b", "routed_scaling_factor", "2.5", "routed_scaling_factor (a key of other"},
    {"mixtral-8x7b", "embedding_multiplier", "12.0", "embedding_multiplier (a key of other"},
    {"tiny", "clip_qkv", "8.0", "clip_qkv (a key of other families)"},
    {"tiny", "n_group", "2", "n_group (a key of other families)"},
    {"tiny", "scoring_func", "\"sigmoid\"", "scoring_func (a key of other families)"},
    {"tiny", "n_shared_experts", "1", "n_shared_experts (a key of other families)"},
    {"tiny", "attention_chunk_size", "8", "attention_chunk_size (a key of other families)"},
    {"olmoe-1b-7b", "sliding_window", "64", "sliding_window (a key of other families)"},
    {"gpt-oss-20b", "q_lora_rank", "64", "q_lora_rank (a key of other families)"},
    {"qwen3.5-35b-a3b", "mlp_only_layers", "[3]", "text_config.mlp_only_layers (a key of other"},
    {"nemotron-3-nano-30b-a3b", "sliding_window", "64", "sliding_window (a key of other families)"},
    {"tiny", "add_cross_attention", "true", "add_cross_attention (no part of a decoder)"},
    {"tiny", "pruned_heads", R"({"0": [1]})", "pruned_heads (no part of a decoder)"},
};

TEST(HfConfigUnreadKeys, KeysOfOtherFamiliesWarn) {
  for (const Change& change : kForeign) testing::expect_warning(change);
}

/// What the family does whatever the key says.
constexpr Change kFixed[] = {
    {"mixtral-8x7b", "norm_topk_prob", "false",
     "norm_topk_prob = false: this family always renormalises"},
    {"deepseek-v2-lite", "norm_topk_prob", "true",
     "norm_topk_prob = true: transformers never renormalises in this family"},
    {"nemotron-3-nano-30b-a3b", "time_step_limit", "[0.0, 0.1]", "transformers does not follow it"},
    {"phi-3.5-moe", "num_experts_per_tok", "3", "the sparsemixer of transformers always chooses 2"},
    {"tiny", "decoder_sparse_step", "5", "none of the 4 layers has any of the 8 experts"},
    {"tiny", "mlp_only_layers", "[0, 1, 2, 3]", "none of the 4 layers has any of the 8 experts"},
    {"deepseek-v3", "first_k_dense_replace", "61", "none of the 61 layers has any of the 256"},
    {"llama-4-scout-17b-16e", "moe_layers", "[]", "none of the 48 layers has any of the 16"},
    {"deepseek-v3", "moe_layer_freq", "2", "transformers takes it for 1"},
    {"deepseek-v3", "num_key_value_heads", "8", "num_key_value_heads = 8: latent attention has as"},
    {"tiny", "pad_token_id", "256", "pad_token_id = 256: vocab_size is 256"},
    {"tiny", "pad_token_id", "-1", "pad_token_id = -1: transformers takes it for the last token"},
    {"tiny", "use_qk_norm", "false", "use_qk_norm = false: this family always has q/k norms"},
    {"gpt-oss-20b", "initial_context_length", "8192",
     "initial_context_length = 8192: original_max_position_embeddings = 4096 counts"},
    {"nemotron-3-nano-30b-a3b", "n_shared_experts", "2", "n_shared_experts = 2: one shared expert"},
    {"tiny", "architectures", R"(["Qwen3MoeForSequenceClassification"])",
     "the head of a language model is counted"},
    {"nemotron-3-nano-30b-a3b", "tie_word_embeddings", "true",
     "tie_word_embeddings = true: counted with a head of its own, which transformers keeps"},
    {"tiny", "head_dim", "33", "dims of a head that rotate = 33: no even number"},
    {"qwen3-next-80b-a3b", "head_dim", "20", "dims of a head that rotate = 5: no even number"},
    {"mixtral-8x7b", "architectures", R"(["MixtralModel"])", "the head of a language model"},
};

TEST(HfConfigUnreadKeys, WhatAFamilyDoesOtherwiseWarns) {
  for (const Change& change : kFixed) testing::expect_warning(change);
  testing::expect_silence({"mixtral-8x7b", "norm_topk_prob", "true", ""});
  testing::expect_silence(
      {"nemotron-3-nano-30b-a3b", "time_step_limit", R"([0.0, {"__float__": "Infinity"}])", ""});
  testing::expect_silence({"tiny", "use_qk_norm", "true", ""});
}

TEST(HfConfigUnreadKeys, TheFirstLayersOfAWindowWarn) {
  Json json = model_json("tiny");
  json["use_sliding_window"] = true;
  json["sliding_window"] = 64;
  json["max_window_layers"] = 2;
  EXPECT_THAT(testing::warnings_of(json), HasSubstr("max_window_layers = 2: transformers windows"));
  json["max_window_layers"] = 0;
  EXPECT_EQ(testing::warnings_of(json), "");
  json["max_window_layers"] = 2;
  json["use_sliding_window"] = false;
  EXPECT_EQ(testing::warnings_of(json), "");
}

TEST(HfConfigUnreadKeys, ModelsThatAreNotCausalAreRefused) {
  testing::expect_refused({"tiny", "is_causal", "false", "[config.json is_causal] expected true"});
  testing::expect_silence({"tiny", "is_causal", "true", ""});
}

TEST(HfConfigUnreadKeys, DropoutIsSilentButRemembered) {
  Json json = model_json("tiny");
  json["attention_dropout"] = 0.1;
  json["resid_pdrop"] = 0.0;
  json["embd_pdrop"] = nullptr;
  json["router_jitter_noise"] = 0.01;
  const HfConfig config = parse(json, {.strict = true});
  EXPECT_THAT(config.noise, ElementsAre("attention_dropout = 0.1", "router_jitter_noise = 0.01"));
  EXPECT_TRUE(parse(model_json("tiny")).noise.empty());
  // Here it is no noise but a threshold.
  EXPECT_THAT(parse(model_json("phi-3.5-moe")).noise, ElementsAre("input_jitter_noise = 0.01"));
  const Json nested = testing::changed({"qwen3.5-35b-a3b", "attention_dropout", "0.5", ""});
  EXPECT_THAT(parse(nested).noise, ElementsAre("text_config.attention_dropout = 0.5"));
}

TEST(HfConfigUnreadKeys, QuantisationIsRemembered) {
  EXPECT_EQ(parse(model_json("deepseek-v3")).quantization, "fp8");
  EXPECT_EQ(parse(model_json("gpt-oss-20b")).quantization, "mxfp4");
  EXPECT_EQ(parse(model_json("tiny")).quantization, "");
  const auto quantization = [](const char* value) {
    return parse(testing::changed({"tiny", "quantization_config", value, ""})).quantization;
  };
  EXPECT_EQ(quantization("null"), "");
  EXPECT_EQ(quantization("{}"), "");
  EXPECT_EQ(quantization(R"({"bits": 4})"), "another type");
  EXPECT_EQ(quantization("{\"quant_method\": \"x\\u001b[31m\"}").find('\x1b'), std::string::npos);
  testing::expect_refused({"tiny", "quantization_config", "\"fp8\"", "expected a JSON object"});
}

TEST(HfConfigUnreadKeys, PicturesAreLeftOut) {
  EXPECT_THAT(parse(model_json("qwen3.5-35b-a3b")).left_out, ElementsAre("vision_config"));
  EXPECT_TRUE(parse(model_json("tiny")).left_out.empty());
}

}  // namespace
}  // namespace moestro::model
