#include "moestro/model/hf_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "moestro/core/error.h"
#include "moestro/core/file.h"
#include "tests/model/model_files.h"

namespace moestro::model {
namespace {

using testing::model_json;
using testing::parse_model;

std::string pattern_of(const ModelConfig& model) {
  std::string pattern;
  for (const LayerConfig& layer : model.layers) {
    switch (layer.mixer) {
      case MixerKind::none:
        break;
      case MixerKind::attention:
        pattern += layer.window > 0 ? 'w' : layer.chunk > 0 ? 'c' : 'a';
        break;
      case MixerKind::mla:
        pattern += 'l';
        break;
      case MixerKind::mamba2:
        pattern += 'm';
        break;
      case MixerKind::gated_delta_net:
        pattern += 'g';
        break;
    }
    if (layer.ffn == FfnKind::moe) pattern += 'E';
    if (layer.ffn == FfnKind::dense) pattern += 'D';
  }
  return pattern;
}

TEST(HfConfig, PublishedFilesGiveNoFindings) {
  // strict makes an error of every unknown key and every class default.
  for (const std::string& name : built_in_models()) {
    EXPECT_NO_THROW(static_cast<void>(resolve_model(name, {.strict = true}))) << name;
  }
}

TEST(HfConfig, ReadsDeepSeekV3) {
  const ModelConfig m = resolve_model("deepseek-v3").model;
  EXPECT_EQ(m.family, Family::deepseek_v3);
  EXPECT_EQ(m.architecture, "DeepseekV3ForCausalLM");
  EXPECT_EQ(pattern_of(m).substr(0, 10), "lDlDlDlElE");
  EXPECT_EQ(m.mla.q_lora_rank, 1536);
  EXPECT_EQ(m.moe.router.score, ScoreKind::sigmoid);
  EXPECT_TRUE(m.moe.router.has_selection_bias);
  EXPECT_EQ(m.moe.router.groups, 8);
  EXPECT_EQ(m.moe.router.topk_groups, 4);
  EXPECT_EQ(m.moe.router.scaling_factor, 2.5);
  EXPECT_EQ(m.rope.kind, RopeKind::yarn);
  EXPECT_TRUE(m.rope.interleaved);
  EXPECT_EQ(m.rope.rotary_dim, 64);
  const double mscale = 0.1 * std::log(40.0) + 1.0;
  EXPECT_NEAR(m.mla.scale, mscale * mscale / std::sqrt(192.0), 1e-15);
  EXPECT_EQ(m.mtp.layers, 1);
}

TEST(HfConfig, ReadsLayerPatterns) {
  EXPECT_EQ(pattern_of(resolve_model("nemotron-3-nano-30b-a3b").model).substr(0, 14),
            "mEmEmaEmEmEmaE");
  EXPECT_EQ(pattern_of(resolve_model("qwen3-next-80b-a3b").model).substr(0, 10), "gEgEgEaEgE");
  EXPECT_EQ(pattern_of(resolve_model("gpt-oss-20b").model).substr(0, 8), "wEaEwEaE");
  EXPECT_EQ(pattern_of(resolve_model("llama-4-maverick-17b-128e").model).substr(0, 8), "cDcEcDaE");
  EXPECT_EQ(pattern_of(resolve_model("phi-3.5-moe").model).substr(0, 4), "wEwE");
}

TEST(HfConfig, QwenMoeLayersFollowListAndStep) {
  Json json = model_json("tiny");
  json["num_hidden_layers"] = 6;
  json["decoder_sparse_step"] = 2;
  json["mlp_only_layers"] = {3};
  EXPECT_EQ(pattern_of(parse_model(json)), "aDaEaDaDaDaE");
}

TEST(HfConfig, LlamaMoeLayersOverrideTheStep) {
  Json json = model_json("llama-4-maverick-17b-128e");
  json["text_config"]["num_hidden_layers"] = 4;
  json["text_config"]["moe_layers"] = {0};
  EXPECT_EQ(pattern_of(parse_model(json)), "cEcDcDaD");
}

TEST(HfConfig, LlamaRopeLayersAndChunksAreIndependent) {
  Json json = model_json("llama-4-scout-17b-16e");
  Json& text = json["text_config"];
  text["num_hidden_layers"] = 2;
  text["no_rope_layers"] = {0, 1};
  text["layer_types"] = {"chunked_attention", "full_attention"};
  const ModelConfig m = parse_model(json);
  EXPECT_EQ(pattern_of(m), "cEaE");
  EXPECT_FALSE(m.layers[0].has_rope);
  EXPECT_TRUE(m.layers[1].has_rope);
}

TEST(HfConfig, WindowsFollowTheFamilysRule) {
  Json mixtral = model_json("mixtral-8x7b");
  mixtral["sliding_window"] = 4096;
  EXPECT_EQ(parse_model(mixtral).layers.back().window, 4096);
  Json qwen = model_json("tiny");
  qwen["sliding_window"] = 64;
  EXPECT_EQ(parse_model(qwen).layers[0].window, 0);
  qwen["use_sliding_window"] = true;
  EXPECT_EQ(parse_model(qwen).layers[0].window, 64);
  Json nemotron = model_json("nemotron-3-nano-30b-a3b");
  nemotron["sliding_window"] = 64;
  EXPECT_EQ(parse_model(nemotron).layers[5].window, 0);
}

TEST(HfConfig, BiasesFollowTheFamilysRule) {
  const auto with_bias = [](const char* name) {
    Json json = model_json(name);
    json["attention_bias"] = true;
    return parse_model(json);
  };
  EXPECT_TRUE(with_bias("tiny").attention.qkv_bias);
  EXPECT_TRUE(with_bias("tiny").attention.output_bias);
  EXPECT_TRUE(with_bias("deepseek-v3").mla.has_bias);
  EXPECT_FALSE(with_bias("mixtral-8x7b").attention.qkv_bias);
  EXPECT_FALSE(with_bias("nemotron-3-nano-30b-a3b").attention.qkv_bias);
  Json oss = model_json("gpt-oss-20b");
  oss.erase("attention_bias");
  EXPECT_TRUE(parse_model(oss).attention.qkv_bias);
}

TEST(HfConfig, DocumentedDefaultsStandInForMissingKeys) {
  Json v3 = model_json("deepseek-v3");
  for (const char* key : {"q_lora_rank", "n_shared_experts", "first_k_dense_replace",
                          "moe_layer_freq", "topk_method", "scoring_func"}) {
    v3.erase(key);
  }
  const ModelConfig m = parse_model(v3);
  EXPECT_EQ(m.mla.q_lora_rank, 1536);
  EXPECT_EQ(m.moe.shared_width, 2048);
  EXPECT_EQ(m.layers[2].ffn, FfnKind::dense);
  Json v2 = model_json("deepseek-v2-236b");
  for (const char* key : {"n_shared_experts", "first_k_dense_replace"}) v2.erase(key);
  EXPECT_EQ(parse_model(v2).moe.shared_width, 2 * 1536);
  EXPECT_EQ(parse_model(v2).layers[0].ffn, FfnKind::moe);
  Json next = model_json("qwen3-next-80b-a3b");
  for (const char* key : {"head_dim", "full_attention_interval", "partial_rotary_factor"}) {
    next.erase(key);
  }
  EXPECT_EQ(parse_model(next).attention.head_dim, 256);
  EXPECT_EQ(parse_model(next).rope.rotary_dim, 64);
  Json oss = model_json("gpt-oss-20b");
  oss.erase("head_dim");
  oss.erase("layer_types");
  EXPECT_EQ(parse_model(oss).attention.head_dim, 64);
  EXPECT_EQ(pattern_of(parse_model(oss)).substr(0, 4), "wEaE");
  Json nemotron = model_json("nemotron-3-nano-30b-a3b");
  nemotron.erase("head_dim");
  EXPECT_EQ(parse_model(nemotron).attention.head_dim, 128);
}

TEST(HfConfig, MissingHeadDimIsHiddenByHeads) {
  EXPECT_EQ(resolve_model("mixtral-8x7b").model.attention.head_dim, 128);
  Json json = model_json("tiny");
  json["head_dim"] = nullptr;
  json["hidden_size"] = 64;
  EXPECT_EQ(parse_model(json).attention.head_dim, 16);
}

TEST(HfConfig, TiedEmbeddingsAreReadWhereTheFamilyKeepsThem) {
  EXPECT_TRUE(resolve_model("granite-3.0-1b-a400m").model.tied_embeddings);
  Json llama = model_json("llama-4-scout-17b-16e");
  llama["tie_word_embeddings"] = true;
  llama["text_config"]["tie_word_embeddings"] = false;
  EXPECT_FALSE(parse_model(llama).tied_embeddings);
  Json qwen = model_json("qwen3.5-35b-a3b");
  qwen["tie_word_embeddings"] = true;
  qwen["text_config"]["tie_word_embeddings"] = false;
  EXPECT_TRUE(parse_model(qwen).tied_embeddings);
}

TEST(HfConfig, PaddingIsWhatTheEmbeddingOfTransformersLeavesUntrained) {
  const auto padding = [](Json json, const char* value) {
    Json& text = json.contains("text_config") ? json["text_config"] : json;
    text.erase("pad_token_id");
    if (value != nullptr) text["pad_token_id"] = Json::parse(value);
    return parse_model(json).padding_token;
  };
  for (const std::string& name : built_in_models()) {
    SCOPED_TRACE(name);
    const Json json = model_json(name);
    const ModelConfig model = resolve_model(name).model;
    const bool has_padding = model.family != Family::nemotron_h;
    using Token = std::optional<std::int64_t>;
    EXPECT_EQ(padding(json, "3"), has_padding ? Token(3) : Token());
    EXPECT_EQ(padding(json, "0"), has_padding ? Token(0) : Token());
    EXPECT_EQ(padding(json, "-1"), has_padding ? Token(model.vocab - 1) : Token());
    EXPECT_EQ(padding(json, "null"), Token());
    EXPECT_EQ(padding(json, nullptr), model.family == Family::olmoe ? Token(1) : Token());
  }
}

TEST(HfConfig, PaddingOfANestedFileIsThatOfTheTextModel) {
  for (const char* name : {"llama-4-scout-17b-16e", "qwen3.5-35b-a3b"}) {
    Json json = model_json(name);
    json["pad_token_id"] = 5;
    EXPECT_FALSE(parse_model(json).padding_token) << name;
    json["text_config"]["pad_token_id"] = 3;
    EXPECT_EQ(parse_model(json).padding_token, 3) << name;
  }
}

TEST(HfConfig, GroupsNeedTheGroupLimitedMethod) {
  EXPECT_EQ(resolve_model("deepseek-v2-lite").model.moe.router.groups, 1);
  const RouterConfig v2 = resolve_model("deepseek-v2-236b").model.moe.router;
  EXPECT_EQ(v2.groups, 8);
  EXPECT_EQ(v2.topk_groups, 3);
  EXPECT_EQ(v2.group_score, GroupScore::max);
  EXPECT_EQ(v2.scaling_factor, 16.0);
}

TEST(HfConfig, KeepsTheFileForWritingItBack) {
  const std::string text = model_json("tiny").dump(1);
  EXPECT_EQ(parse_hf_config(text, "x").json, text);
}

class ResolveModel : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / "moestro_resolve_model";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    write_file_atomically(folder_ / "config.json", model_json("tiny").dump());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(ResolveModel, TakesFilesFoldersAndNames) {
  EXPECT_EQ(resolve_model((folder_ / "config.json").string()).model.hidden, 128);
  EXPECT_EQ(resolve_model(folder_.string()).model.hidden, 128);
  EXPECT_EQ(resolve_model("tiny").model.hidden, 128);
}

TEST_F(ResolveModel, UnknownNamesListTheBuiltInOnes) {
  try {
    static_cast<void>(resolve_model("deepsek-v3"));
    FAIL();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("did you mean deepseek-v3?"), std::string::npos) << message;
    EXPECT_NE(message.find("qwen3-30b-a3b"), std::string::npos) << message;
  }
}

TEST_F(ResolveModel, FoldersWithoutConfigAreAnError) {
  std::filesystem::remove(folder_ / "config.json");
  EXPECT_THROW(static_cast<void>(resolve_model(folder_.string())), Error);
}

}  // namespace
}  // namespace moestro::model
