// Real numbers that f32 arithmetic cannot use are errors; those that no model has are doubted.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/model/model_files.h"

namespace moestro::model {
namespace {

using testing::Change;

struct RealKey {
  const char* model;
  const char* key;
};

/// Every real number that scales, divides or is added.
constexpr RealKey kPositive[] = {
    {"tiny", "rms_norm_eps"},
    {"tiny", "rope_theta"},
    {"nemotron-3-nano-30b-a3b", "routed_scaling_factor"},
    {"deepseek-v2-lite", "routed_scaling_factor"},
    {"deepseek-v3", "routed_scaling_factor"},
    {"deepseek-v3", "rms_norm_eps"},
    {"granite-3.0-1b-a400m", "embedding_multiplier"},
    {"granite-3.0-1b-a400m", "logits_scaling"},
    {"granite-3.0-1b-a400m", "residual_multiplier"},
    {"granite-3.0-1b-a400m", "attention_multiplier"},
    {"gpt-oss-20b", "swiglu_limit"},
    {"gpt-oss-20b", "swiglu_alpha"},
    {"olmoe-1b-7b", "clip_qkv"},
    {"olmoe-1b-7b", "rms_norm_eps"},
    {"llama-4-scout-17b-16e", "attn_scale"},
    {"phi-3.5-moe", "rms_norm_eps"},
    {"qwen3-next-80b-a3b", "rms_norm_eps"},
};

constexpr RealKey kNotNegative[] = {
    {"tiny", "initializer_range"},
    {"tiny", "router_aux_loss_coef"},
    {"deepseek-v3", "aux_loss_alpha"},
    {"phi-3.5-moe", "router_jitter_noise"},
};

TEST(HfConfigBounds, NumbersThatOverflowOrVanishAreErrors) {
  for (const RealKey& real : kPositive) {
    for (const char* bad : {"1e30", "1e300", "1e-40"}) {
      testing::expect_refused({real.model, real.key, bad, "expected a number from"});
    }
    for (const char* bad : {"0", "-1", "-0.0", "\"1\"", "[1]", "true"}) {
      testing::expect_refused({real.model, real.key, bad, "expected a number > 0, got"});
    }
  }
}

TEST(HfConfigBounds, NumbersThatMayBeZeroHaveAnUpperBound) {
  for (const RealKey& real : kNotNegative) {
    testing::expect_refused({real.model, real.key, "1e30", "expected a number from 0 to"});
    testing::expect_refused({real.model, real.key, "-0.1", "expected a number >= 0, got -0.1;"});
    testing::expect_silence({real.model, real.key, "0", ""});
  }
}

constexpr Change kDoubtful[] = {
    {"tiny", "rms_norm_eps", "0.5",
     "warning: config.json: surely not what is meant: rms_norm_eps = 0.5: models have 1e-15 to "
     "0.01"},
    {"tiny", "rope_theta", "5", "rope_theta = 5: models have 100 to 10000000000"},
    {"tiny", "initializer_range", "1e2", "initializer_range = 100.0: models have 1e-06 to 1"},
    {"granite-3.0-1b-a400m", "embedding_multiplier", "1e5",
     "embedding_multiplier = 100000.0: models"},
    {"granite-3.0-1b-a400m", "residual_multiplier", "1e-5",
     "residual_multiplier = 1e-05: models have"},
};

TEST(HfConfigBounds, UnlikelyNumbersWarn) {
  for (const Change& change : kDoubtful) {
    const std::string warning = testing::warnings_of(testing::changed(change));
    EXPECT_NE(warning.find(change.expected), std::string::npos) << warning;
  }
  EXPECT_NE(testing::error_of(testing::changed(kDoubtful[0]), {.strict = true})
                .find("expected values as models have them, got rms_norm_eps = 0.5"),
            std::string::npos);
}

TEST(HfConfigBounds, ScaledRotationIsBounded) {
  const Change bad[] = {
      {"tiny", "rope_scaling", R"({"type": "linear", "factor": 1e30})",
       "[config.json rope_scaling.factor] expected a number from 0.001 to 1000000, got 1e+30;"},
      {"tiny", "rope_scaling", R"({"type": "yarn", "factor": 2, "attention_factor": 1e9})",
       "[config.json rope_scaling.attention_factor]"},
      {"tiny", "rope_scaling", R"({"type": "yarn", "factor": 2, "beta_fast": 1, "beta_slow": 32})",
       "[config.json rope_scaling.beta_fast] expected at least beta_slow (32), got 1; exchange"},
      {"tiny", "rope_scaling", R"({"type": "yarn", "factor": 2, "mscale": 1e9})",
       "[config.json rope_scaling.mscale] expected a number from 0 to 1000, got 1000000000.0;"},
      {"tiny", "rope_scaling",
       R"({"type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1})",
       "[config.json rope_scaling.high_freq_factor] expected at least low_freq_factor (4), got 1;"},
  };
  for (const Change& change : bad) testing::expect_refused(change);
}

}  // namespace
}  // namespace moestro::model
