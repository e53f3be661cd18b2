#include "moestro/model/ledger.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "moestro/core/error.h"
#include "moestro/model/hf_config.h"
#include "tests/model/model_files.h"

namespace moestro::model {
namespace {

/// Computed from the published dimensions, and checked against published counts.
struct CountRow {
  const char* name;
  std::int64_t total;
  std::int64_t active;
  std::int64_t active_without_embedding;
};

constexpr CountRow kCounts[] = {
    {"deepseek-v2-lite", 15'706'484'224, 2'661'150'208, 2'451'435'008},
    {"deepseek-moe-16b", 16'375'728'128, 2'828'650'496, 2'618'935'296},
    {"deepseek-v2-236b", 235'741'434'880, 21'375'800'320, 20'851'512'320},
    {"deepseek-v3", 671'026'419'200, 37'552'297'472, 36'625'618'432},
    {"deepseek-r1", 671'026'419'200, 37'552'297'472, 36'625'618'432},
    {"kimi-k2", 1'026'408'232'448, 32'861'500'928, 31'687'095'808},
    {"qwen3-30b-a3b", 30'532'122'624, 3'353'032'704, 3'041'867'776},
    {"qwen3-235b-a22b", 235'093'634'560, 22'190'763'520, 21'568'433'664},
    {"qwen3.5-35b-a3b", 34'660'610'688, 3'454'988'928, 2'946'429'568},
    {"qwen3-next-80b-a3b", 79'674'391'296, 3'874'929'408, 3'563'764'480},
    {"nemotron-3-nano-30b-a3b", 31'577'940'288, 3'580'076'352, 3'227'754'816},
    {"gpt-oss-120b", 116'829'156'672, 5'711'982'912, 5'132'849'472},
    {"gpt-oss-20b", 20'914'757'184, 4'187'440'704, 3'608'307'264},
    {"mixtral-8x7b", 46'702'792'704, 12'879'925'248, 12'748'853'248},
    {"mixtral-8x22b", 140'620'634'112, 39'152'031'744, 38'955'423'744},
    {"llama-4-scout-17b-16e", 107'769'861'120, 17'172'894'720, 16'138'408'960},
    {"llama-4-maverick-17b-128e", 400'711'848'960, 17'184'691'200, 16'150'205'440},
    {"olmoe-1b-7b", 6'919'161'856, 1'282'017'280, 1'178'994'688},
    {"granite-3.0-1b-a400m", 1'334'625'280, 428'655'616, 378'323'968},
    {"granite-3.0-3b-a800m", 3'298'788'864, 882'869'760, 807'372'288},
    {"phi-3.5-moe", 41'873'153'344, 6'640'999'744, 6'509'665'600},
};

Ledger ledger_of(std::string_view name, std::int64_t seq = 4096, bool with_mtp = true) {
  return make_ledger(resolve_model(name).model, seq, {.with_mtp = with_mtp});
}

double gigaflops(std::string_view name, std::int64_t seq, bool with_mtp = true) {
  return ledger_of(name, seq, with_mtp).flops.value() / 1e9;
}

std::int64_t total_of(const Ledger& ledger, Component component) {
  for (const ComponentParameters& part : ledger.params.by_component) {
    if (part.component == component) return part.count.total;
  }
  return -1;
}

TEST(Ledger, CountsOfPublishedModelsAreExact) {
  for (const CountRow& row : kCounts) {
    const ParameterLedger params = ledger_of(row.name).params;
    EXPECT_EQ(params.total, row.total) << row.name;
    EXPECT_EQ(params.active, row.active) << row.name;
    EXPECT_EQ(params.active_without_embedding, row.active_without_embedding) << row.name;
  }
}

TEST(Ledger, PredictionLayersAreApart) {
  const Ledger deepseek = ledger_of("deepseek-v3");
  EXPECT_EQ(deepseek.params.mtp, 11'610'068'224);
  EXPECT_EQ(deepseek.params.total + deepseek.params.mtp + deepseek.params.mtp_copies,
            684'489'845'504);
  EXPECT_EQ(total_of(deepseek, Component::mtp), 11'610'068'224);
  EXPECT_EQ(ledger_of("qwen3.5-35b-a3b").params.mtp, 844'640'768);
  EXPECT_EQ(ledger_of("kimi-k2").params.mtp, 0);
}

TEST(Ledger, PerLayerSizesMatchTheirFormulas) {
  const auto layer = [](std::string_view model, std::string_view kind) {
    for (const LayerKind& candidate : ledger_of(model).layer_kinds) {
      if (candidate.name == kind) return candidate.per_layer.total;
    }
    return std::int64_t{-1};
  };
  const std::int64_t hidden = 2688;  // of the norm before each Nemotron block
  EXPECT_EQ(layer("nemotron-3-nano-30b-a3b", "mamba2"), 38'742'208 + hidden);
  const std::int64_t next_moe = layer("qwen3-next-80b-a3b", "attention + moe") - 27'263'488;
  EXPECT_EQ(layer("qwen3-next-80b-a3b", "gated_delta_net + moe") - next_moe, 33'718'464);
}

TEST(Ledger, ComponentsSumToTheTotal) {
  for (const std::string& name : built_in_models()) {
    const Ledger ledger = ledger_of(name);
    std::int64_t total = 0, active = 0;
    for (const ComponentParameters& part : ledger.params.by_component) {
      if (part.component == Component::mtp) continue;
      total += part.count.total;
      active += part.count.active;
    }
    EXPECT_EQ(total, ledger.params.total) << name;
    EXPECT_EQ(active, ledger.params.active) << name;
  }
}

TEST(Ledger, LayersSumToTheTotal) {
  for (const std::string& name : built_in_models()) {
    const ModelConfig model = resolve_model(name).model;
    const Ledger ledger = make_ledger(model, 4096, {.with_mtp = false});
    std::int64_t layers = 0, params = 0;
    double flops = 6.0 * static_cast<double>(model.vocab) * static_cast<double>(model.hidden);
    for (const LayerKind& kind : ledger.layer_kinds) {
      layers += kind.layers;
      params += kind.layers * kind.per_layer.total;
      flops += static_cast<double>(kind.layers) * kind.flops_per_layer.value();
    }
    EXPECT_EQ(layers, static_cast<std::int64_t>(model.layers.size())) << name;
    const std::int64_t final_norm = model.hidden * (model.norm == NormKind::layer_norm ? 2 : 1);
    EXPECT_EQ(params + total_of(ledger, Component::embedding) +
                  total_of(ledger, Component::lm_head) + final_norm,
              ledger.params.total)
        << name;
    EXPECT_NEAR(flops / ledger.flops.value(), 1.0, 1e-12) << name;
  }
}

TEST(Ledger, FlopsMatchPublishedAccounts) {
  constexpr double kRounding = 0.005;  // the sources give two decimals
  EXPECT_NEAR(gigaflops("deepseek-v3", 4096), 259.99, kRounding);
  EXPECT_NEAR(gigaflops("deepseek-v3", 4096, false), 249.81, kRounding);
  EXPECT_NEAR(gigaflops("qwen3-30b-a3b", 4096), 23.01, kRounding);
  EXPECT_NEAR(gigaflops("qwen3-235b-a22b", 4096), 148.03, kRounding);
  EXPECT_NEAR(gigaflops("gpt-oss-120b", 4096), 32.63, kRounding);
  EXPECT_NEAR(gigaflops("mixtral-8x7b", 2048), 78.10, kRounding);
}

TEST(Ledger, FlopsOfDeepSeekV3FollowFromItsDimensions) {
  // Written out from the dimensions, independently of the tensor list.
  const double h = 7168, heads = 128, rank = 512, seq = 8192, vocab = 129280;
  const double attention =
      h * 1536 + 1536 * heads * 192 + h * (rank + 64) + rank * heads * 256 + heads * 128 * h;
  const double moe = 3 * h * 2048 * (8 + 1), dense = 3 * h * 18432;
  const double core = heads * (192 + 128) * seq / 2;
  const double per_token = 61 * (attention + core) + 58 * moe + 3 * dense + vocab * h;
  const double mtp = attention + core + moe + 2 * h * h + vocab * h;
  EXPECT_NEAR(gigaflops("deepseek-v3", 8192), 6 * (per_token + mtp) / 1e9, 1e-6);
}

double term_of(const Ledger& ledger, std::string_view name) {
  for (const FlopTerm& term : ledger.flop_terms) {
    if (term.name == name) return term.flops.value();
  }
  return -1.0;
}

TEST(Ledger, LatentAttentionCountsItsValuesByTheirOwnDimension) {
  ModelConfig model = resolve_model("deepseek-v3").model;
  const double before = term_of(make_ledger(model, 4096), "attention_core");
  model.mla.v_head_dim += 64;
  const double after = term_of(make_ledger(model, 4096), "attention_core");
  EXPECT_NEAR((after - before) / (61.0 * 6.0 * 128.0 * 64.0 * 2048.0), 1.0, 1e-12);
}

TEST(Ledger, EveryPredictionDepthCosts) {
  // Those of Qwen3.5 share one projection, which each runs through.
  for (const char* name : {"deepseek-v3", "qwen3.5-35b-a3b"}) {
    ModelConfig model = resolve_model(name).model;
    const double one = term_of(make_ledger(model, 4096), "mtp");
    model.mtp.layers = 2;
    EXPECT_NEAR(term_of(make_ledger(model, 4096), "mtp") / one, 2.0, 1e-12) << name;
  }
}

TEST(Ledger, SharedProjectionsOfPredictionDepthsAreParametersOnce) {
  ModelConfig model = resolve_model("qwen3.5-35b-a3b").model;
  const std::int64_t one = make_ledger(model, 4096).params.mtp;
  model.mtp.layers = 2;
  const std::int64_t shared = 2 * 2048 * 2048 + 3 * 2048;  // with three norms
  EXPECT_EQ(make_ledger(model, 4096).params.mtp - one, one - shared);
}

TEST(Ledger, DeltaNetsCountTheirRecurrenceAndConvolution) {
  // 36 layers of 16 key and 32 value heads of 128, convolutions over 4 tokens.
  const double channels = 2 * 16 * 128 + 32 * 128;
  const double per_layer = 3.0 * (7.0 * 128 * 128 * 32 + 2.0 * 4 * channels);
  EXPECT_NEAR(term_of(ledger_of("qwen3-next-80b-a3b", 4096), "mixer_core") / (36 * per_layer), 1.0,
              1e-12);
}

TEST(Ledger, MegatronsCountOfNemotronIsReproduced) {
  const Ledger ledger = ledger_of("nemotron-3-nano-30b-a3b", 8192);
  ASSERT_EQ(ledger.megatron_differences.size(), 2U);
  double total = ledger.flops.value();
  for (const FlopTerm& term : ledger.megatron_differences) total += term.flops.value();
  EXPECT_NEAR(ledger.flops.value() / 1e9, 20.706, 5e-4);
  EXPECT_NEAR(total / 1e9, 22.3, 0.05);
  EXPECT_TRUE(ledger_of("qwen3-30b-a3b").megatron_differences.empty());
}

TEST(Ledger, TermsSumToTheFlops) {
  for (const std::string& name : built_in_models()) {
    const Ledger ledger = ledger_of(name);
    const double sum = std::accumulate(
        ledger.flop_terms.begin(), ledger.flop_terms.end(), 0.0,
        [](double total, const FlopTerm& term) { return total + term.flops.value(); });
    EXPECT_NEAR(sum / ledger.flops.value(), 1.0, 1e-12) << name;
  }
}

TEST(Ledger, TiedHeadCostsFlopsButNoParameters) {
  Json json = testing::model_json("tiny");
  const Ledger apart = make_ledger(testing::parse_model(json), 64);
  json["tie_word_embeddings"] = true;
  const Ledger tied = make_ledger(testing::parse_model(json), 64);
  EXPECT_EQ(apart.params.total - tied.params.total, 256 * 128);
  EXPECT_EQ(apart.flops.value(), tied.flops.value());
}

TEST(Ledger, RejectsEmptySequences) {
  EXPECT_THROW(static_cast<void>(ledger_of("tiny", 0)), Error);
}

/// Mean of min(i + 1, window) over a sequence, less the half key by which the convention that full
/// attention sees seq / 2 differs from the exact (seq + 1) / 2.
double counted_keys(const LayerConfig& layer, std::int64_t seq) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < seq; ++i) {
    const std::int64_t reach = layer.window > 0  ? std::min(i + 1, layer.window)
                               : layer.chunk > 0 ? i % layer.chunk + 1
                                                 : i + 1;
    sum += static_cast<double>(reach);
  }
  return sum / static_cast<double>(seq);
}

TEST(MeanKeys, IsTheMeanOfWhatAQuerySees) {
  for (const std::int64_t width : {0, 1, 7, 64, 100, 1000}) {
    for (const std::int64_t seq : {1, 5, 64, 100, 333}) {
      LayerConfig window, chunk;
      window.window = width;
      chunk.chunk = width;
      EXPECT_NEAR(mean_keys(window, seq), counted_keys(window, seq), 0.5 + 1e-9);
      EXPECT_NEAR(mean_keys(chunk, seq), counted_keys(chunk, seq), 0.5 + 1e-9);
    }
  }
}

TEST(MeanKeys, WideWindowsAndChunksAreFullAttention) {
  LayerConfig full, window, chunk;
  window.window = 512;
  chunk.chunk = 512;
  EXPECT_EQ(mean_keys(full, 512), 256.0);
  EXPECT_EQ(mean_keys(window, 512), 256.0);
  EXPECT_EQ(mean_keys(chunk, 512), 256.0);
}

}  // namespace
}  // namespace moestro::model
