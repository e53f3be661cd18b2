// What a decoder computes as a whole: properties that hold whatever the kernels do inside.

#include "moestro/runtime/decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "moestro/kernels/gemm.h"
#include "moestro/layers/torch_setup.h"
#include "moestro/model/hf_config.h"
#include "moestro/runtime/generate.h"

namespace moestro::runtime {
namespace {

using Tokens = std::vector<std::int64_t>;

constexpr const char* kQwen = R"({"model_type": "qwen3_moe", "vocab_size": 19, "hidden_size": 12,
  "intermediate_size": 20, "moe_intermediate_size": 6, "num_hidden_layers": 1,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "num_experts": 4,
  "num_experts_per_tok": 2, "mlp_only_layers": [], "attention_bias": true, "rms_norm_eps": 1e-6,
  "norm_topk_prob": true, "decoder_sparse_step": 1, "rope_theta": 10000.0, "hidden_act": "silu",
  "max_position_embeddings": 64, "tie_word_embeddings": false, "use_sliding_window": false,
  "initializer_range": 0.5})";
constexpr const char* kGranite = R"({"model_type": "granitemoe", "vocab_size": 19,
  "hidden_size": 16, "intermediate_size": 6, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2,
  "attention_multiplier": 0.5, "embedding_multiplier": 2.0, "residual_multiplier": 0.5,
  "logits_scaling": 4.0, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
  "max_position_embeddings": 64, "tie_word_embeddings": true, "attention_bias": false,
  "initializer_range": 0.5})";
constexpr const char* kGlm = R"({"model_type": "glm4_moe", "vocab_size": 19, "hidden_size": 12,
  "intermediate_size": 20, "moe_intermediate_size": 6, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "n_routed_experts": 4,
  "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1,
  "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.5, "use_qk_norm": true,
  "attention_bias": true, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
  "partial_rotary_factor": 0.5, "max_position_embeddings": 64, "tie_word_embeddings": false,
  "num_nextn_predict_layers": 0, "initializer_range": 0.5})";

model::ModelConfig config_of(const char* json) {
  return model::parse_hf_config(json, "test").model;
}

class DecoderTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernels::has_gemm()) GTEST_SKIP() << "this build has no oneDNN";
    layers::set_up_torch();
  }
  static Decoder decoder_of(model::ModelConfig config) {
    Decoder decoder = make_decoder(std::move(config));
    layers::initialise(decoder.config, 3, decoder.weights);
    prepare_for_training(decoder, at::kFloat);
    return decoder;
  }
  static layers::Context context_of(const Tokens& tokens) {
    layers::Context context;
    context.batch = 1;
    context.seq = static_cast<std::int64_t>(tokens.size());
    return context;
  }
  /// Logits after the last token.
  static at::Tensor last_logits(Decoder& decoder, const Tokens& tokens) {
    return logits(decoder, context_of(tokens), at::tensor(tokens, at::kLong), {})[-1].clone();
  }
  static double largest_change(Decoder& decoder, const Tokens& a, const Tokens& b) {
    return (last_logits(decoder, a) - last_logits(decoder, b)).abs().max().item<double>();
  }
};

constexpr double kRounding = 1e-5;
constexpr double kReal = 1e-3;

TEST_F(DecoderTest, AShorterSequenceAfterALongerOneIsWhatItIsAlone) {
  const Tokens shorter = {3, 1, 4, 1, 5}, longer = {2, 7, 1, 8, 2, 8, 1, 8};
  model::ModelConfig longrope = config_of(kQwen);
  longrope.rope.kind = model::RopeKind::longrope;
  longrope.rope.original_max_positions = 6;
  longrope.rope.short_factor = {1.0, 2.0, 3.0};
  longrope.rope.long_factor = {4.0, 5.0, 6.0};
  for (const model::ModelConfig& config : {config_of(kQwen), longrope}) {
    for (const bool use_aten : {false, true}) {
      Decoder decoder = decoder_of(config);
      const auto last = [&](const Tokens& tokens) {
        layers::Context context = context_of(tokens);
        context.use_aten = use_aten;
        return logits(decoder, context, at::tensor(tokens, at::kLong), {})[-1].clone();
      };
      const at::Tensor alone = last(shorter);
      const at::Tensor of_longer = last(longer);
      EXPECT_TRUE(last(shorter).equal(alone));
      EXPECT_TRUE(last(longer).equal(of_longer));
    }
  }
}

TEST_F(DecoderTest, LongropeTurnsByTheLengthOfTheSequence) {
  model::ModelConfig config = config_of(kQwen);
  config.rope.kind = model::RopeKind::longrope;
  config.rope.original_max_positions = 4;
  config.rope.short_factor = {1.0, 1.0, 1.0};
  config.rope.long_factor = {4.0, 4.0, 4.0};
  Decoder longrope = decoder_of(config), plain = decoder_of(config_of(kQwen));
  const auto difference = [&](const Tokens& tokens) {
    return (last_logits(longrope, tokens) - last_logits(plain, tokens)).abs().max().item<double>();
  };
  EXPECT_EQ(difference({3, 1, 4, 1}), 0.0);
  EXPECT_GT(difference({3, 1, 4, 1, 5}), kReal);
}

TEST_F(DecoderTest, AWindowEndsWhereItSays) {
  model::ModelConfig config = config_of(kQwen);
  config.layers[0].window = 3;
  Decoder decoder = decoder_of(config);
  EXPECT_EQ(largest_change(decoder, {1, 2, 3, 4, 5, 6}, {1, 2, 9, 4, 5, 6}), 0.0);
  EXPECT_GT(largest_change(decoder, {1, 2, 3, 4, 5, 6}, {1, 2, 3, 9, 5, 6}), kReal);
}

TEST_F(DecoderTest, ALayerWithoutRopeSeesNoOrder) {
  model::ModelConfig config = config_of(kQwen);
  Decoder decoder = decoder_of(config);
  EXPECT_GT(largest_change(decoder, {1, 2, 3, 4, 5}, {3, 1, 2, 4, 5}), kReal);
  config.layers[0].has_rope = false;
  Decoder without = decoder_of(config);
  EXPECT_LT(largest_change(without, {1, 2, 3, 4, 5}, {3, 1, 2, 4, 5}), kRounding);
}

TEST_F(DecoderTest, ClippingReachesTheLayers) {
  model::ModelConfig config = config_of(kQwen);
  config.attention.clip_qkv = 1e-9;  // leaves nothing of the values
  Decoder decoder = decoder_of(config);
  EXPECT_LT(largest_change(decoder, {1, 2, 3, 4, 5}, {6, 7, 8, 9, 5}), kRounding);
}

TEST_F(DecoderTest, EpsilonReachesTheNormsOfQueriesAndKeys) {
  model::ModelConfig config = config_of(kQwen);
  config.norm_epsilon = 100.0;  // leaves next to nothing of the scores: attention is a mean
  Decoder decoder = decoder_of(config);
  EXPECT_LT(largest_change(decoder, {1, 2, 3, 4, 5}, {3, 1, 2, 4, 5}), 1e-4);
}

TEST_F(DecoderTest, LongerSequencesMayFollowShorterOnes) {
  Decoder fresh = decoder_of(config_of(kQwen));
  Decoder used = decoder_of(config_of(kQwen));
  static_cast<void>(last_logits(used, {1, 2}));
  const Tokens tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  EXPECT_TRUE(last_logits(used, tokens).equal(last_logits(fresh, tokens)));
}

TEST_F(DecoderTest, TrainingEvaluationAndLogitsHaveOneLoss) {
  for (const char* json : {kQwen, kGranite, kGlm}) {
    Decoder decoder = decoder_of(config_of(json));
    const Tokens tokens = {1, 2, 3, 4, 5, 6};
    const at::Tensor ids = at::tensor(tokens, at::kLong);
    const at::Tensor labels = at::tensor(Tokens{2, 3, 4, 5, 6, 7}, at::kLong);
    const at::Tensor scores = logits(decoder, context_of(tokens), ids, {}).to(at::kDouble);
    double expected = 0.0;
    for (std::int64_t t = 0; t < 6; ++t) {
      const double norm = std::log(scores[t].exp().sum().item<double>());
      expected += norm - scores[t][t + 2].item<double>();
    }
    EXPECT_NEAR(evaluate(decoder, context_of(tokens), ids, labels, 1.0), expected, 1e-4);
    EXPECT_NEAR(forward_backward(decoder, context_of(tokens), ids, labels, 1.0, Recompute::none),
                expected, 1e-4);
  }
}

/// d loss / d parameter along the gradient's own direction is the gradient's length.
TEST_F(DecoderTest, GradientOfEveryParameterIsTheSlopeOfTheLoss) {
  for (const char* json : {kQwen, kGranite, kGlm}) {
    Decoder decoder = decoder_of(config_of(json));
    const Tokens tokens = {1, 2, 3, 4, 5, 6, 2, 9};
    const at::Tensor ids = at::tensor(tokens, at::kLong);
    const at::Tensor labels = at::tensor(Tokens{2, 3, 4, 5, 6, 2, 9, 1}, at::kLong);
    const auto loss = [&] { return evaluate(decoder, context_of(tokens), ids, labels, 1.0); };
    for (layers::Parameter* p : layers::parameters(decoder.weights)) layers::begin_gradient(*p);
    forward_backward(decoder, context_of(tokens), ids, labels, 1.0, Recompute::none);
    for (layers::Parameter* p : layers::parameters(decoder.weights)) {
      layers::finish_gradient(*p);
      const double length = p->grad.norm().item<double>();
      ASSERT_GT(length, 1e-3) << p->name;
      constexpr double kStep = 2e-3;  // short: no token may choose another expert
      const at::Tensor value = p->value.clone();
      p->value.copy_(value + p->grad * (kStep / length));
      const double above = loss();
      p->value.copy_(value - p->grad * (kStep / length));
      const double below = loss();
      p->value.copy_(value);
      EXPECT_NEAR((above - below) / (2.0 * kStep) / length, 1.0, 0.05) << p->name;
    }
  }
}

TEST_F(DecoderTest, PaddingTokenLearnsNothing) {
  model::ModelConfig config = config_of(kQwen);
  config.padding_token = 3;
  Decoder decoder = decoder_of(config);
  layers::Parameter& table = decoder.weights.embedding;
  layers::begin_gradient(table);
  const Tokens tokens = {1, 3, 5};
  forward_backward(decoder, context_of(tokens), at::tensor(tokens, at::kLong),
                   at::tensor(Tokens{3, 5, 1}, at::kLong), 1.0, Recompute::none);
  EXPECT_EQ(table.grad[3].abs().sum().item<float>(), 0.0F);
  EXPECT_GT(table.grad[5].abs().sum().item<float>(), 0.0F);
}

TEST_F(DecoderTest, RecomputationCountsNoTokenTwice) {
  Decoder decoder = decoder_of(config_of(kQwen));
  const Tokens tokens = {1, 2, 3, 4};
  std::vector<layers::RoutingRecord> records;
  layers::Context context = context_of(tokens);
  context.routing = &records;
  forward_backward(decoder, context, at::tensor(tokens, at::kLong),
                   at::tensor(Tokens{2, 3, 4, 5}, at::kLong), 1.0, Recompute::layer);
  EXPECT_EQ(records.size(), decoder.config.layers.size());
}

TEST_F(DecoderTest, GenerationTakesTheLikeliestTokenAfterTheLast) {
  Decoder decoder = decoder_of(config_of(kQwen));
  for (const double temperature : {0.0, 1e-4}) {
    const auto text = generate(decoder, at::kFloat, {4, 11, 7},
                               {.tokens = 6, .context_length = 5, .temperature = temperature});
    ASSERT_EQ(text.size(), 9U);
    for (std::size_t i = 3; i < text.size(); ++i) {
      const std::size_t first = i > 5 ? i - 5 : 0;
      const Tokens seen(text.begin() + static_cast<std::ptrdiff_t>(first),
                        text.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_EQ(text[i], last_logits(decoder, seen).argmax().item<std::int64_t>()) << i;
    }
  }
}

}  // namespace
}  // namespace moestro::runtime
