#include "moestro/layers/weights.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "moestro/core/error.h"
#include "moestro/kernels/parallel.h"
#include "moestro/model/hf_config.h"

namespace moestro::layers {
namespace {

constexpr const char* kQwen = R"({"model_type": "qwen3_moe", "vocab_size": 19, "hidden_size": 12,
  "intermediate_size": 20, "moe_intermediate_size": 6, "num_hidden_layers": 3,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "num_experts": 4,
  "num_experts_per_tok": 2, "mlp_only_layers": [1], "attention_bias": true, "rms_norm_eps": 1e-6,
  "norm_topk_prob": true, "decoder_sparse_step": 1, "rope_theta": 10000.0, "hidden_act": "silu",
  "max_position_embeddings": 64, "tie_word_embeddings": false, "use_sliding_window": false})";
constexpr const char* kGranite = R"({"model_type": "granitemoe", "vocab_size": 19,
  "hidden_size": 16, "intermediate_size": 6, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2,
  "attention_multiplier": 0.5, "embedding_multiplier": 2.0, "residual_multiplier": 0.5,
  "logits_scaling": 4.0, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
  "max_position_embeddings": 64, "tie_word_embeddings": true, "attention_bias": false})";

model::ModelConfig config_of(const char* json) {
  return model::parse_hf_config(json, "test").model;
}

class Weights : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, Weights, testing::Values(kQwen, kGranite));

TEST_P(Weights, BindingsCoverEveryParameterElementOnce) {
  const model::ModelConfig config = config_of(GetParam());
  ModelWeights weights = make_weights(config);
  for (Parameter* p : parameters(weights)) p->value.zero_();
  for (const Binding& binding : bindings(config, weights)) {
    for (std::int64_t i = 0; i < binding.spec.elements(); ++i) binding.value()[i] += 1.0F;
  }
  for (const Parameter* p : parameters(weights)) {
    EXPECT_TRUE(p->value.eq(1.0).all().item<bool>()) << p->name;
  }
}

TEST_P(Weights, InitialisationDependsOnSeedAndNameAlone) {
  const model::ModelConfig config = config_of(GetParam());
  std::map<std::string, std::vector<float>> first;
  for (const int threads : {1, 2}) {
    kernels::set_num_threads(threads);
    ModelWeights weights = make_weights(config);
    initialise(config, 7, weights);
    for (const Binding& b : bindings(config, weights)) {
      const std::vector<float> values(b.value(), b.value() + b.spec.elements());
      if (threads == 1) {
        first[b.spec.name] = values;
      } else {
        EXPECT_EQ(first[b.spec.name], values) << b.spec.name;
      }
    }
  }
  ModelWeights other = make_weights(config);
  initialise(config, 8, other);
  EXPECT_NE(
      std::vector<float>(other.embedding.value.data_ptr<float>(),
                         other.embedding.value.data_ptr<float>() + other.embedding.value.numel()),
      first["model.embed_tokens.weight"]);
}

TEST_P(Weights, StartAsTheConfigSays) {
  model::ModelConfig config = config_of(GetParam());
  config.initializer_range = 0.3;
  ModelWeights weights = make_weights(config);
  initialise(config, 7, weights);
  for (const Parameter* p : parameters(weights)) {
    if (!p->decays) {
      const bool is_norm = p->name.find("norm") != std::string::npos;
      EXPECT_TRUE(p->value.eq(is_norm ? 1.0 : 0.0).all().item<bool>()) << p->name;
    } else {
      EXPECT_NEAR(p->value.std().item<double>(), 0.3, 0.08) << p->name;
      EXPECT_NEAR(p->value.mean().item<double>(), 0.0, 0.12) << p->name;
    }
  }
}

TEST(WeightsErrors, NamesWhatCannotBeTrained) {
  for (const char* name : {"deepseek-v3", "gpt-oss-20b", "nemotron-3-nano-30b-a3b",
                           "qwen3-next-80b-a3b", "phi-3.5-moe", "llama-4-scout-17b-16e"}) {
    EXPECT_NE(why_not_trainable(model::resolve_model(name).model), "") << name;
  }
  for (const char* name : {"mixtral-8x7b", "qwen3-30b-a3b", "olmoe-1b-7b", "granite-3.0-1b-a400m",
                           "deepseek-moe-16b", "tiny"}) {
    EXPECT_EQ(why_not_trainable(model::resolve_model(name).model), "") << name;
  }
  EXPECT_THROW(static_cast<void>(make_weights(model::resolve_model("gpt-oss-20b").model)), Error);
}

/// kQwen (three frequencies) with this rope.
model::ModelConfig with_rope(const std::string& rope) {
  std::string json = kQwen;
  json.insert(json.rfind('}'), ", \"rope_scaling\": {" + rope + "}");
  return config_of(json.c_str());
}

constexpr const char* kLongrope =
    R"("rope_type": "longrope", "short_factor": [1, 1, 1], "long_factor": [2, 2, 2])";

TEST(WeightsErrors, NamesWhatALongropeLacks) {
  const auto why = [](const std::string& rope) { return why_not_trainable(with_rope(rope)); };
  const std::string longrope = kLongrope;
  EXPECT_EQ(why(longrope), "");
  EXPECT_EQ(why(longrope + R"(, "original_max_position_embeddings": 16)"), "");
  EXPECT_NE(why(R"("rope_type": "longrope", "short_factor": [1, 1, 1])").find("no long_factor"),
            std::string::npos);
  EXPECT_NE(why(longrope + R"(, "long_mscale": 1.2)").find("phimoe only"), std::string::npos);
  EXPECT_NE(why(longrope + R"(, "original_max_position_embeddings": 1)").find("attention_factor"),
            std::string::npos);
}

TEST(WeightsRope, WhatCannotTrainYetSaysSo) {
  const auto why = [](const std::string& rope) { return why_not_trainable(with_rope(rope)); };
  EXPECT_EQ(why(R"("rope_type": "dynamic", "factor": 2)"), "its rope_type is dynamic");
  EXPECT_EQ(why(R"("rope_type": "proportional")"), "its rope_type is proportional");
  model::ModelConfig odd = model::resolve_model("tiny").model;
  odd.rope.rotary_dim = 5;
  EXPECT_EQ(why_not_trainable(odd), "5 dims of a head rotate, which are no pairs");
}

TEST(WeightsRope, LongropeExtendsByTheQuotientOfPositionsUnlessItSaysOtherwise) {
  const std::string longrope =
      std::string(kLongrope) + R"(, "original_max_position_embeddings": 16)";
  EXPECT_EQ(with_rope(longrope).rope.factor, 4.0);  // of 64 positions
  EXPECT_EQ(with_rope(longrope + R"(, "factor": 3)").rope.factor, 3.0);
  EXPECT_EQ(with_rope(kLongrope).rope.factor, 1.0);
}

}  // namespace
}  // namespace moestro::layers
