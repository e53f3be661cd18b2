#include "moestro/cli/train_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

namespace moestro::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct FinishedRun {
  runtime::RunReport run;
  runtime::TrainResult result;
  RunTotals totals;
};

FinishedRun sample_run() {
  FinishedRun r;
  r.run.model = "tiny";
  r.run.unigram_entropy = 3.125;
  r.run.validation_tokens = 1500;
  r.run.gemm_peak_flops_per_second = 4e11;
  r.result.steps = 2;
  r.result.final_loss = 2.3F;
  r.result.validation_loss = 2.4F;
  r.result.validation_step = 2;
  r.result.peak_rss_bytes = 1024.0 * 1024.0;
  for (const double seconds : {1.0, 3.0}) {
    runtime::StepReport step;
    step.tokens = 1000;
    step.step_seconds = seconds;
    step.flops_per_second = 4e11 / seconds;
    add(r.totals, step);
  }
  return r;
}

TEST(Summary, AveragesOverTimeNotOverSteps) {
  const FinishedRun r = sample_run();
  const Json json = summary_json(r.run, r.result, r.totals);
  EXPECT_DOUBLE_EQ(json["tokens_per_second"].get<double>(), 500.0);
  EXPECT_DOUBLE_EQ(json["flops_per_second"].get<double>(), 2e11);
  EXPECT_DOUBLE_EQ(json["mfu"].get<double>(), 0.5);
  EXPECT_THAT(summary_text(r.run, r.result, r.totals), HasSubstr("500 tokens/s"));
  EXPECT_THAT(summary_text(r.run, r.result, r.totals), HasSubstr("MFU 50.0 %\n"));
}

TEST(Summary, TellsTrainingApartFromValidationAndSaving) {
  FinishedRun r = sample_run();
  EXPECT_THAT(summary_text(r.run, r.result, r.totals), Not(HasSubstr("besides")));
  r.result.validation_seconds = 8.0;
  r.result.checkpoint_seconds = 90.0;
  const std::string text = summary_text(r.run, r.result, r.totals);
  EXPECT_THAT(text, HasSubstr("2,000 tokens in 4.0s: 500 tokens/s"));
  EXPECT_THAT(text, HasSubstr("\nbesides          validation 8.0s, checkpoints 1m30s\n"));
  const Json json = summary_json(r.run, r.result, r.totals);
  EXPECT_EQ(json["training_seconds"], 4.0);
  EXPECT_EQ(json["validation_seconds"], 8.0);
  EXPECT_EQ(json["checkpoint_seconds"], 90.0);
}

TEST(Summary, PutsTheLossBesideTheUnigramEntropy) {
  const FinishedRun r = sample_run();
  EXPECT_THAT(
      summary_text(r.run, r.result, r.totals),
      HasSubstr("validation loss  2.4000 over 1,500 tokens, whose unigram entropy is 3.1250\n"));
}

TEST(Summary, SaysAfterWhichStepAnEarlierValidationWas) {
  FinishedRun r = sample_run();
  r.run.first_step = 101;
  r.result.validation_step = 102;
  EXPECT_THAT(summary_text(r.run, r.result, r.totals), HasSubstr("2.4000 over"));
  r.result.validation_step = 100;
  EXPECT_THAT(summary_text(r.run, r.result, r.totals), HasSubstr("2.4000 after step 100 over"));
  EXPECT_EQ(summary_json(r.run, r.result, r.totals)["validation_step"], 100);
}

TEST(Summary, PrintsLossesAsTheFloatsTheyAre) {
  const FinishedRun r = sample_run();
  EXPECT_EQ(summary_json(r.run, r.result, r.totals)["final_loss"].dump(), "2.3");
}

TEST(Summary, NamesItsFormatFirst) {
  const FinishedRun r = sample_run();
  const Json json = summary_json(r.run, r.result, r.totals);
  EXPECT_EQ(json.begin().key(), "format");
  EXPECT_EQ(json["format"], "moestro.train");
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["peak_rss_bytes"], 1024.0 * 1024.0);
}

TEST(Summary, ClaimsNeitherLossNorMemoryForARunOfNoSteps) {
  FinishedRun r;
  r.result.checkpoint = "run/step-000003";
  const Json json = summary_json(r.run, r.result, r.totals);
  EXPECT_EQ(json["steps"], 0);
  EXPECT_EQ(json["tokens_per_second"], 0.0);
  EXPECT_EQ(json["final_loss"].dump(), "null");
  EXPECT_TRUE(json["validation_loss"].is_null());
  EXPECT_TRUE(json["peak_rss_bytes"].is_null());
  EXPECT_EQ(summary_text(r.run, r.result, r.totals),
            "trained no steps\ncheckpoint       run/step-000003\n");
}

TEST(Summary, WritesNullForALossThatIsNoNumber) {
  FinishedRun r = sample_run();
  r.result.final_loss = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(summary_json(r.run, r.result, r.totals)["final_loss"].dump(), "null");
}

TEST(Summary, KeepsControlCharactersOfTheSampleFromTheTerminal) {
  FinishedRun r = sample_run();
  r.result.sample = "one\ntwo\x1b[2J\xFF";
  EXPECT_THAT(summary_text(r.run, r.result, r.totals), HasSubstr("sample:\n  one\n  two?[2J\xEF"));
}

TEST(Summary, SaysWhenItWasInterrupted) {
  FinishedRun r = sample_run();
  EXPECT_THAT(summary_text(r.run, r.result, r.totals), Not(HasSubstr("interrupted")));
  r.result.interrupted = true;
  EXPECT_THAT(summary_text(r.run, r.result, r.totals), HasSubstr("interrupted after 2 steps"));
  r.result.steps = 0;
  EXPECT_THAT(summary_text(r.run, r.result, r.totals), HasSubstr("interrupted after 0 steps\n"));
}

}  // namespace
}  // namespace moestro::cli
