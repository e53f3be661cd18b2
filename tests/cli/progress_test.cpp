#include "moestro/cli/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

namespace moestro::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

runtime::StepReport report_of(std::int64_t step, double seconds = 1.0) {
  runtime::StepReport report;
  report.step = step;
  report.loss = 2.5F;
  report.tokens = 4096;
  report.step_seconds = seconds;
  report.tokens_per_second = 4096.0 / seconds;
  report.flops_per_second = 0.25e12;
  report.mfu = 0.71;
  report.moe = runtime::MoeReport{.max_over_mean = 1.5};
  return report;
}

/// Runs `steps` steps and returns all that was shown.
std::string shown(bool is_terminal, std::int64_t steps, double seconds, int width = 200) {
  std::string text;
  Progress progress(
      {[&text](std::string_view more) { text += more; }, is_terminal, [width] { return width; }},
      {.steps = steps});
  for (std::int64_t step = 1; step <= steps; ++step) progress.step(report_of(step, seconds));
  progress.finish();
  return text;
}

TEST(Duration, UsesTheUnitThatFits) {
  EXPECT_EQ(duration_text(0.44), "0.4s");
  EXPECT_EQ(duration_text(-1.0), "0.0s");
  EXPECT_EQ(duration_text(59.4), "59s");
  EXPECT_EQ(duration_text(200), "3m20s");
  EXPECT_EQ(duration_text(3600 + 125), "1h02m");
  EXPECT_THAT(duration_text(std::numeric_limits<double>::quiet_NaN()), Not(HasSubstr("nan")));
}

TEST(ProgressLine, ShowsEverythingWhereThereIsRoom) {
  EXPECT_EQ(progress_line(report_of(7), 100, 93.0, 200),
            "step   7/100  loss 2.5000  4096 tokens/s  0.25 TFLOP/s  MFU 71.0 %  load 1.50  "
            "ETA 1m33s");
}

TEST(ProgressLine, LeavesOutWhatMattersLeast) {
  EXPECT_EQ(progress_line(report_of(7), 100, 93.0, 40), "step   7/100  loss 2.5000  ETA 1m33s");
  for (int width = 0; width < 100; ++width) {
    const std::string line = progress_line(report_of(7), 100, 93.0, width);
    EXPECT_LE(line.size(), static_cast<std::size_t>(width));
  }
}

TEST(ProgressLine, LeavesOutWhatIsUnknown) {
  runtime::StepReport report = report_of(1);
  report.moe.reset();
  report.mfu = 0.0;
  const std::string line = progress_line(report, 10, 1.0, 200);
  EXPECT_THAT(line, Not(HasSubstr("load")));
  EXPECT_THAT(line, Not(HasSubstr("MFU")));
}

TEST(Progress, UpdatesInPlaceOnATerminal) {
  const std::string text = shown(true, 3, 1.0);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_THAT(text, StartsWith("\r\x1b[Kstep 1/3"));
  EXPECT_THAT(text, HasSubstr("\r\x1b[Kstep 3/3"));
}

TEST(Progress, NeverFillsTheLastColumn) {
  const std::string text = shown(true, 3, 1.0, 60);
  for (std::size_t begin = 0; (begin = text.find("\x1b[K", begin)) != std::string::npos;) {
    begin += 3;
    const std::size_t end = std::min(text.find_first_of("\r\n", begin), text.size());
    EXPECT_LT(end - begin, 60U);
  }
}

TEST(Progress, DoesNotFloodATerminal) {
  const std::string text = shown(true, 1000, 1e-3);
  EXPECT_LE(std::count(text.begin(), text.end(), '\r'), 12) << "0.1 s apart in one second";
}

TEST(Progress, PrintsAbout20LinesOfAShortRun) {
  const std::string text = shown(false, 1000, 1e-3);
  const auto lines = std::count(text.begin(), text.end(), '\n');
  EXPECT_GE(lines, 20);
  EXPECT_LE(lines, 22);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(Progress, PrintsEveryFewSecondsOfASlowRun) {
  const std::string text = shown(false, 60, 2.0);
  const auto lines = std::count(text.begin(), text.end(), '\n');
  EXPECT_GE(lines, 20);
  EXPECT_LE(lines, 42);
}

TEST(Progress, PrintsFewLinesOfALongRun) {
  const std::string text = shown(false, 100000, 1.0);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 200);
}

TEST(Progress, ShowsFirstAndLastStep) {
  const std::string text = shown(false, 1000, 1e-3);
  EXPECT_THAT(text, StartsWith("step    1/1000"));
  EXPECT_THAT(text, HasSubstr("step 1000/1000"));
}

TEST(Progress, EtaIsTheRemainingStepsAtTheirAverageTime) {
  EXPECT_THAT(shown(false, 5, 3.0), HasSubstr("step 2/5  loss 2.5000  1365 tokens/s  0.25 TFLOP/s "
                                              " MFU 71.0 %  load 1.50  ETA 9.0s\n"));
  std::string text;
  Progress progress({[&text](std::string_view more) { text += more; }, false, [] { return 80; }},
                    {.steps = 3});
  runtime::RunReport run;
  progress.start(run);
  progress.step(report_of(1, 2.0));
  progress.step(report_of(2, 4.0));  // the last one counts for a tenth
  EXPECT_THAT(text, HasSubstr("ETA 2.2s\n"));
}

TEST(Progress, ShowsTheRatesOfAllStepsSinceTheLastLine) {
  std::string text;
  Progress progress({[&text](std::string_view more) { text = more; }, false, [] { return 80; }},
                    {.steps = 100});
  progress.step(report_of(1, 1.0));
  for (const std::int64_t step : {2, 3, 4}) progress.step(report_of(step, 0.5));
  EXPECT_THAT(text, HasSubstr("step   1/100")) << "not yet";
  progress.step(report_of(5, 6.5));  // 4 steps in 8 s, this one with 630 tokens/s
  EXPECT_THAT(text,
              HasSubstr("step   5/100  loss 2.5000  2048 tokens/s  0.812 TFLOP/s  MFU 230.8 %"));
}

TEST(Progress, PutsValidationBesideTheUnigramEntropy) {
  std::string text;
  Progress progress({[&text](std::string_view more) { text += more; }, false, [] { return 80; }},
                    {.steps = 9});
  runtime::RunReport run;
  run.model = "tiny";
  run.unigram_entropy = 3.1;
  progress.start(run);
  runtime::StepReport report = report_of(5);
  report.validation_loss = 2.25F;
  progress.step(report);
  EXPECT_THAT(text, HasSubstr("step 5: validation loss 2.2500 (unigram entropy 3.1000)\n"));
}

TEST(Progress, EndsTheOpenLineBeforeOtherText) {
  std::string text;
  Progress progress({[&text](std::string_view more) { text += more; }, true, [] { return 80; }},
                    {.steps = 9});
  progress.step(report_of(1));
  progress.checkpoint("run/step-000001", 1.0);
  EXPECT_THAT(text, HasSubstr("\nsaved run/step-000001\n"));
}

/// What is shown of the last of `steps` steps of a second each, with validations of 100 s and
/// checkpoints of 1000 s where they are due.
std::string line_of(std::int64_t steps, const Schedule& schedule) {
  std::string text;
  Progress progress({[&text](std::string_view more) { text = more; }, true, [] { return 200; }},
                    schedule);
  for (std::int64_t step = 1; step <= steps; ++step) {
    runtime::StepReport report = report_of(step);
    if (schedule.validate_every > 0 && step % schedule.validate_every == 0) {
      report.validation_loss = 2.0F;
      report.validation_seconds = 100.0;
    }
    const bool saves = schedule.save_every > 0 && step % schedule.save_every == 0;
    progress.step(report);
    if (saves && step < steps) progress.checkpoint("run/step", 1000.0);
  }
  return text;
}

TEST(Progress, CountsValidationsAndCheckpointsToComeInItsEstimate) {
  EXPECT_THAT(line_of(3, {.steps = 20}), HasSubstr("ETA 17s"));
  EXPECT_THAT(line_of(3, {.steps = 20, .validate_every = 2}),  // steps 4, 6, ... 20
              HasSubstr("ETA " + duration_text(17 + 9 * 100)));
  EXPECT_THAT(line_of(5, {.steps = 20, .validate_every = 3}),  // steps 6, 9, ... 18, 20
              HasSubstr("ETA " + duration_text(15 + 6 * 100)));
  EXPECT_THAT(line_of(5, {.steps = 20, .save_every = 4}),
              HasSubstr("ETA " + duration_text(15 + 4 * 1000)));
  EXPECT_THAT(line_of(20, {.steps = 20, .validate_every = 3, .save_every = 3}),
              HasSubstr("ETA 0.0s"));
  EXPECT_THAT(line_of(3, {.steps = 20, .validate_every = 9}), HasSubstr("ETA 17s"))
      << "nothing is known of a validation that has not been";
}

TEST(StartText, SaysWhatIsTrained) {
  runtime::RunReport run;
  run.model = "qwen3_moe, 4 layers";
  run.parameters = 1234567;
  run.active_parameters = 345678;
  run.train_tokens = 2000000;
  run.threads = 2;
  run.dtype = "f32";
  EXPECT_THAT(start_text(run), HasSubstr("1,234,567 parameters, 345,678 active"));
  EXPECT_THAT(start_text(run), Not(HasSubstr("resumes")));
  EXPECT_THAT(start_text(run), Not(HasSubstr("other programs")));
  run.gemm_peak_core_share = 0.45;
  EXPECT_THAT(start_text(run), HasSubstr("; other programs take 55 % of the cores"));
  run.first_step = 51;
  run.resumed_from = "run/step-000050";
  EXPECT_THAT(start_text(run), HasSubstr("resumes  at step 51, from run/step-000050\n"));
}

}  // namespace
}  // namespace moestro::cli
