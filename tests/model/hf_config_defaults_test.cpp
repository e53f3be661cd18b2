// Missing keys: what is assumed in their place is said, unless published files leave them out, too.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "moestro/core/error.h"
#include "moestro/core/log.h"
#include "tests/model/model_files.h"

namespace moestro::model {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::model_json;

/// The object that holds the text model.
Json& text_of(Json& json) {
  return json.contains("text_config") ? json["text_config"] : json;
}

/// At most 16 experts, so that listing the tensors takes no time.
Json small_model(std::string_view name) {
  Json json = model_json(name);
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    Json& text = text_of(json);
    if (text.contains(key)) text[key] = std::min<std::int64_t>(text[key].get<std::int64_t>(), 16);
  }
  return json;
}

std::vector<std::string> keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

/// What reading says on standard error, with the model; nothing if reading throws.
std::optional<std::pair<std::string, ModelConfig>> read_aloud(const Json& json) {
  ::testing::internal::CaptureStderr();
  std::optional<ModelConfig> model;
  try {
    model = testing::parse_model(json);
  } catch (const Error&) {
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    return std::nullopt;
  }
  return std::pair(::testing::internal::GetCapturedStderr(), *model);
}

std::string warning_of(const Json& json) {
  const auto read = read_aloud(json);
  EXPECT_TRUE(read);
  return read ? read->first : "";
}

/// What may follow from the absence of a key alone: names, and what moves no number.
ModelConfig without_notes(ModelConfig model) {
  model.model_type.clear();
  model.architecture.clear();
  model.moe.router.aux_loss_coefficient = 0.0;
  return model;
}

/// How many of the keys were removed, and with how many a warning came.
struct Removals {
  int removed = 0, warned = 0;
};

/// Removes one key after the other of an object of the file.
Removals remove_each_key(const Json& json, const Json::json_pointer& object,
                         const std::string& name) {
  Removals count;
  const ModelConfig whole = without_notes(testing::parse_model(json));
  for (const std::string& key : keys_of(json[object])) {
    Json without = json;
    without[object].erase(key);
    const auto read = read_aloud(without);
    ++count.removed;
    if (!read) continue;
    if (key == "mtp_num_hidden_layers") {
      EXPECT_EQ(read->second.mtp.layers, 0);  // as in all files of transformers
    } else if (key == "rope_scaling" && read->second.family == Family::llama4) {
      EXPECT_EQ(read->second.rope.kind, RopeKind::plain);  // as in one of the two published files
    } else if (read->first.empty()) {
      EXPECT_TRUE(without_notes(read->second) == whole)
          << name << " without " << object << "/" << key;
    } else {
      ++count.warned;
    }
  }
  return count;
}

TEST(HfConfigDefaults, NoMissingKeyChangesTheModelSilently) {
  Removals sum;
  for (const std::string& name : built_in_models()) {
    const Json json = small_model(name);
    for (const char* object : {"", "/text_config", "/rope_scaling", "/text_config/rope_scaling",
                               "/text_config/rope_parameters"}) {
      const Json::json_pointer place(object);
      if (!json.contains(place) || !json[place].is_object()) continue;
      const Removals count = remove_each_key(json, place, name);
      sum.removed += count.removed;
      sum.warned += count.warned;
    }
  }
  EXPECT_GT(sum.removed, 500);
  EXPECT_GT(sum.warned, 100);
}

/// A missing key, and what the warning says instead.
struct Absence {
  const char* model;
  const char* key;
  const char* assumed;
};

constexpr Absence kAbsences[] = {
    {"tiny", "head_dim", "head_dim = hidden_size / num_attention_heads = 32"},
    {"tiny", "attention_bias", "attention_bias = false"},
    {"tiny", "tie_word_embeddings", "tie_word_embeddings = false"},
    {"tiny", "decoder_sparse_step", "decoder_sparse_step = 1"},
    {"tiny", "mlp_only_layers", "mlp_only_layers = []"},
    {"tiny", "max_position_embeddings", "max_position_embeddings = 32768"},
    {"mixtral-8x7b", "max_position_embeddings", "max_position_embeddings = 131072"},
    {"deepseek-v3", "max_position_embeddings", "max_position_embeddings = 4096"},
    {"granite-3.0-1b-a400m", "max_position_embeddings", "max_position_embeddings = 2048"},
    {"olmoe-1b-7b", "num_key_value_heads", "num_key_value_heads = num_attention_heads = 16"},
    {"granite-3.0-1b-a400m", "num_key_value_heads", "= num_attention_heads = 16"},
    {"deepseek-moe-16b", "num_key_value_heads", "= num_attention_heads = 16"},
    {"deepseek-v2-lite", "first_k_dense_replace", "first_k_dense_replace = 0"},
    {"deepseek-v2-lite", "q_lora_rank", "q_lora_rank = 1536"},
    {"deepseek-v2-lite", "n_shared_experts", "n_shared_experts = 2"},
    {"deepseek-v2-236b", "topk_method", "topk_method = greedy"},
    {"deepseek-v3", "first_k_dense_replace", "first_k_dense_replace = 3"},
    {"deepseek-v3", "n_shared_experts", "n_shared_experts = 1"},
    {"deepseek-v3", "num_nextn_predict_layers", "num_nextn_predict_layers = 1"},
    {"deepseek-v3", "attention_bias", "attention_bias = false"},
    {"deepseek-v3", "n_group", "n_group = 8"},
    {"kimi-k2", "routed_scaling_factor", "routed_scaling_factor = 2.5"},
    {"qwen3-next-80b-a3b", "head_dim", "head_dim = 256"},
    {"qwen3-next-80b-a3b", "full_attention_interval", "full_attention_interval = 4"},
    {"qwen3-next-80b-a3b", "partial_rotary_factor", "partial_rotary_factor = 0.25"},
    {"nemotron-3-nano-30b-a3b", "head_dim", "head_dim = 128"},
    {"nemotron-3-nano-30b-a3b", "use_bias", "use_bias = false"},
    {"nemotron-3-nano-30b-a3b", "mlp_bias", "mlp_bias = false"},
    {"gpt-oss-20b", "head_dim", "head_dim = 64"},
    {"gpt-oss-20b", "attention_bias", "attention_bias = true"},
    {"gpt-oss-20b", "layer_types", "layer_types = sliding_attention and full_attention by turns"},
    {"phi-3.5-moe", "attention_bias", "attention_bias = false"},
    {"phi-3.5-moe", "lm_head_bias", "lm_head_bias = false"},
    {"phi-3.5-moe", "rope_scaling", "rope_scaling = null"},
    {"deepseek-v3", "rope_scaling", "rope_scaling = null"},
    {"phi-3.5-moe", "sliding_window", "sliding_window = null"},
    {"tiny", "initializer_range", "initializer_range = 0.02"},
    {"olmoe-1b-7b", "pad_token_id", "pad_token_id = 1"},
    {"granite-3.0-1b-a400m", "pad_token_id", "pad_token_id = null"},
    {"gpt-oss-20b", "pad_token_id", "pad_token_id = null"},
};

TEST(HfConfigDefaults, AssumedValuesAreSaidAndAreStrictErrors) {
  for (const Absence& absence : kAbsences) {
    Json json = model_json(absence.model);
    ASSERT_EQ(json.erase(absence.key), 1U) << absence.model << " " << absence.key;
    EXPECT_THAT(warning_of(json),
                HasSubstr("config.json: 1 key absent, taken from transformers' defaults: "));
    EXPECT_THAT(warning_of(json), HasSubstr(absence.assumed)) << absence.model;
    EXPECT_THAT(error_of(json, {.strict = true}), HasSubstr(absence.assumed)) << absence.model;
  }
}

TEST(HfConfigDefaults, ScalingWithoutATypeIsSaidToScaleNothing) {
  Json json = model_json("tiny");
  json["rope_scaling"] = {{"factor", 4.0}};
  EXPECT_THAT(warning_of(json), HasSubstr("rope_scaling.rope_type = default"));
  json.erase("rope_scaling");
  json["rope_parameters"] = {{"rope_theta", json["rope_theta"]}};
  EXPECT_EQ(warning_of(json), "");
}

TEST(HfConfigDefaults, NestedKeysCarryTheirPath) {
  Json json = model_json("qwen3.5-35b-a3b");
  text_of(json).erase("head_dim");
  json.erase("tie_word_embeddings");
  EXPECT_EQ(warning_of(json),
            "warning: config.json: 2 keys absent, taken from transformers' defaults: "
            "text_config.head_dim = 256, tie_word_embeddings = false\n");
  Json llama = model_json("llama-4-scout-17b-16e");
  text_of(llama).erase("interleave_moe_layer_step");
  EXPECT_THAT(warning_of(llama), HasSubstr("text_config.interleave_moe_layer_step = 1"));
}

TEST(HfConfigDefaults, NullSaysWhatAbsenceLeavesOpen) {
  Json json = model_json("tiny");
  json["head_dim"] = nullptr;
  json["num_key_value_heads"] = nullptr;
  json["mlp_only_layers"] = nullptr;
  EXPECT_EQ(warning_of(json), "");
}

TEST(HfConfigDefaults, VerboseModeNamesWhatIsPassedOver) {
  set_log_level(LogLevel::verbose);
  Json foreign = model_json("mixtral-8x7b");
  foreign["no_rope_layer_interval"] = nullptr;  // of Llama 4
  const std::string mixtral = warning_of(foreign);
  const std::string llama = warning_of(model_json("llama-4-scout-17b-16e"));
  set_log_level(LogLevel::quiet);
  Json odd = model_json("tiny");
  odd["zzz"] = 1;
  odd.erase("head_dim");
  EXPECT_EQ(warning_of(odd), "");
  set_log_level(LogLevel::info);
  EXPECT_THAT(mixtral, HasSubstr("config.json: keys that do not matter here: "));
  EXPECT_THAT(mixtral, HasSubstr("output_router_logits"));
  EXPECT_THAT(mixtral, HasSubstr("no_rope_layer_interval\n"));
  EXPECT_EQ(mixtral.find("intermediate_size"), std::string::npos);
  EXPECT_THAT(mixtral, HasSubstr("config.json: keys absent, in their usual meaning: "));
  EXPECT_THAT(mixtral, HasSubstr("head_dim = hidden_size / num_attention_heads = 128"));
  EXPECT_THAT(llama, HasSubstr("text_config.no_rope_layer_interval = 4"));
  EXPECT_THAT(llama, HasSubstr("tie_word_embeddings = false"));
}

TEST(HfConfigDefaults, AnUnusedSwitchNeedsNoWarning) {
  Json json = model_json("tiny");
  json.erase("use_sliding_window");
  json["sliding_window"] = nullptr;
  EXPECT_EQ(warning_of(json), "");
  json["sliding_window"] = 64;
  EXPECT_THAT(warning_of(json), HasSubstr("use_sliding_window = false"));
}

TEST(HfConfigDefaults, GroupLimitedRoutingNeedsItsGroups) {
  for (const char* key : {"n_group", "topk_group"}) {
    Json json = model_json("deepseek-v2-236b");
    json.erase(key);
    EXPECT_THAT(error_of(json), HasSubstr(fmt::format("[config.json {}]", key)));
  }
}

TEST(Defaults, OfPositionsAreWhatScalingBeginsFrom) {
  Json json = model_json("tiny");
  json.erase("max_position_embeddings");
  json["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}};
  EXPECT_EQ(testing::parse_model(json).rope.original_max_positions, 32768);
  EXPECT_THAT(warning_of(json), HasSubstr("max_position_embeddings = 32768"));
  json["rope_scaling"] = {{"rope_type", "longrope"},
                          {"short_factor", std::vector<double>(8, 1.0)},
                          {"long_factor", std::vector<double>(8, 2.0)},
                          {"original_max_position_embeddings", 4096}};
  json["head_dim"] = 16;
  EXPECT_EQ(testing::parse_model(json).rope.factor, 8.0);
}

TEST(Defaults, ASingleExpertOfDeepSeekMoeKeepsItsScore) {
  Json json = model_json("deepseek-moe-16b");
  json["norm_topk_prob"] = true;
  EXPECT_TRUE(testing::parse_model(json).moe.router.renormalise);
  json["num_experts_per_tok"] = 1;
  EXPECT_FALSE(testing::parse_model(json).moe.router.renormalise);
}

TEST(Defaults, OfScalesAndNormalisationAreTheirClasses) {
  Json granite = model_json("granite-3.0-1b-a400m");
  for (const char* key : {"logits_scaling", "residual_multiplier", "embedding_multiplier"}) {
    granite.erase(key);
  }
  const ModelConfig plain = testing::parse_model(granite);
  EXPECT_EQ(plain.logits_divisor, 1.0);
  EXPECT_EQ(plain.residual_multiplier, 1.0);
  EXPECT_EQ(plain.embedding_multiplier, 1.0);
  Json deepseek = small_model("deepseek-v3");
  deepseek.erase("norm_topk_prob");
  EXPECT_TRUE(testing::parse_model(deepseek).moe.router.renormalise);
}

}  // namespace
}  // namespace moestro::model
