// What Ctrl-C leaves of a run, and what a run does whose steps are done.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "moestro/checkpoint/training_state.h"
#include "moestro/core/error.h"
#include "moestro/runtime/generate.h"
#include "moestro/runtime/model_loading.h"
#include "tests/runtime/training_test_support.h"

namespace moestro::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class StoppedTrainer : public testing::Test {
 protected:
  test::TemporaryFolder folder_;
  RunConfig config_ = tiny_run(folder_.path());
};

/// What a run did that was asked to stop at one of its hooks.
struct Stopped {
  TrainResult result;
  std::vector<std::int64_t> steps;
  std::vector<std::string> saved;
};

enum class StopAt { start, step, checkpoint };

/// Stops the run where it calls that hook for the `number`th time.
Stopped train_and_stop(const RunConfig& config, StopAt at, int number = 1) {
  Stopped run;
  std::atomic<bool> stop{false};
  TrainHooks hooks;
  hooks.stop = &stop;
  const auto pass = [&](StopAt here) {
    if (here == at && --number == 0) stop = true;
  };
  hooks.on_start = [&](const RunReport&) { pass(StopAt::start); };
  hooks.on_step = [&](const StepReport& step) {
    run.steps.push_back(step.step);
    pass(StopAt::step);
  };
  hooks.on_checkpoint = [&](const std::string& folder, double) {
    run.saved.push_back(std::filesystem::path(folder).filename());
    pass(StopAt::checkpoint);
  };
  run.result = train(config, hooks);
  return run;
}

/// A run that validates, saves and samples.
RunConfig whole_run(RunConfig config, const std::filesystem::path& folder) {
  config.checkpoint.folder = (folder / "checkpoints").string();
  config.output.sample_prompt = "the ";
  config.output.sample_tokens = 20;
  return config;
}

TEST_F(StoppedTrainer, SavesOnceWhereverItIsStopped) {
  config_ = whole_run(config_, folder_.path());
  config_.checkpoint.every = 2;
  config_.checkpoint.resume = false;
  EXPECT_THAT(train_and_stop(config_, StopAt::start).saved, ElementsAre());
  EXPECT_THAT(train_and_stop(config_, StopAt::step, 2).saved, ElementsAre("step-000002"));
  EXPECT_THAT(train_and_stop(config_, StopAt::step, 3).saved,
              ElementsAre("step-000002", "step-000003"));
  const Stopped at_save = train_and_stop(config_, StopAt::checkpoint, 1);
  EXPECT_THAT(at_save.steps, ElementsAre(1, 2)) << "no step begins after the request";
  EXPECT_THAT(at_save.saved, ElementsAre("step-000002"));
  const Stopped at_end = train_and_stop(config_, StopAt::step, 6);
  EXPECT_THAT(at_end.saved, ElementsAre("step-000002", "step-000004", "step-000006"));
  EXPECT_EQ(at_end.result.sample, "");
  EXPECT_TRUE(at_end.result.interrupted);
}

TEST_F(StoppedTrainer, SavesBeforeAHookEndsIt) {
  config_ = whole_run(config_, folder_.path());
  TrainHooks hooks;
  hooks.on_step = [](const StepReport& step) {
    if (step.step == 3) throw io_error("metrics.jsonl", "cannot write: the disk is full");
  };
  EXPECT_THROW(static_cast<void>(train(config_, hooks)), Error);
  EXPECT_THAT(train_and_stop(config_, StopAt::checkpoint).steps, ElementsAre(4, 5, 6));
}

TEST_F(StoppedTrainer, SavesTheStepBeforeAnErrorBesideOlderOnes) {
  config_ = whole_run(config_, folder_.path());
  config_.checkpoint.keep = 1;
  config_.train.steps = 2;
  static_cast<void>(train_and_collect(config_));
  config_.train.steps = 1000;
  config_.optimizer.lr = 900.0;
  config_.optimizer.warmup_steps = 100;
  config_.optimizer.clip = 0.0;
  std::int64_t last = 0;
  std::vector<std::string> saved;
  TrainHooks hooks;
  hooks.on_step = [&](const StepReport& step) { last = step.step; };
  hooks.on_checkpoint = [&](const std::string& folder, double) {
    saved.push_back(std::filesystem::path(folder).filename());
  };
  EXPECT_THAT([&] { static_cast<void>(train(config_, hooks)); },
              ThrowsMessage<Error>(HasSubstr("expected a finite loss")));
  EXPECT_GT(last, 2);
  EXPECT_THAT(saved, ElementsAre(checkpoint::step_folder("", last).filename().string()));
  const std::filesystem::path root = config_.checkpoint.folder;
  EXPECT_TRUE(std::filesystem::exists(root / "step-000002"));
}

TEST_F(StoppedTrainer, KeepsTheLossOfTheValidationBefore) {
  config_ = whole_run(config_, folder_.path());
  config_.train.validate_every = 2;
  const Stopped stopped = train_and_stop(config_, StopAt::step, 3);
  EXPECT_TRUE(stopped.result.validation_loss.has_value());
}

TEST_F(StoppedTrainer, MakesUpForWhatFollowsTheLastStepWhenItIsResumed) {
  config_ = whole_run(config_, folder_.path());
  const TrainResult whole = train_and_collect(config_).result;
  std::filesystem::remove_all(config_.checkpoint.folder);
  EXPECT_EQ(train_and_stop(config_, StopAt::checkpoint).result.sample, "");
  testing::internal::CaptureStderr();
  const Stopped resumed = train_and_stop(config_, StopAt::step);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("step-000006 is at step 6; raise"));
  EXPECT_THAT(resumed.steps, ElementsAre());
  EXPECT_EQ(resumed.result.validation_loss, whole.validation_loss);
  EXPECT_EQ(resumed.result.sample, whole.sample);
  EXPECT_FALSE(resumed.result.interrupted);
}

TEST_F(StoppedTrainer, LeavesAFinishedRunAsItIs) {
  config_.checkpoint.folder = (folder_.path() / "checkpoints").string();
  const Losses first = train_and_collect(config_);
  const auto written = std::filesystem::last_write_time(first.result.checkpoint);
  const Stopped again = train_and_stop(config_, StopAt::step);
  EXPECT_EQ(again.result.steps, 0);
  EXPECT_FALSE(again.result.final_loss.has_value());
  EXPECT_EQ(again.result.checkpoint, first.result.checkpoint);
  EXPECT_THAT(again.saved, ElementsAre());
  EXPECT_EQ(std::filesystem::last_write_time(first.result.checkpoint), written);
}

TEST_F(StoppedTrainer, AStopEndsAValidationAndASample) {
  config_ = whole_run(config_, folder_.path());
  static_cast<void>(train_and_collect(config_));
  const Stopped stopped = train_and_stop(config_, StopAt::start);
  EXPECT_TRUE(stopped.result.interrupted);
  EXPECT_FALSE(stopped.result.validation_loss.has_value());
  EXPECT_EQ(stopped.result.sample, "");
}

TEST_F(StoppedTrainer, AStopEndsTheSampleBeforeTheNextToken) {
  LoadedModel model = load_model(config_);
  prepare_for_training(model.decoder, at::kFloat);
  std::atomic<bool> stop{false};
  const std::vector<data::Token> prompt = {1, 2, 3};
  EXPECT_EQ(generate(model.decoder, at::kFloat, prompt, {.tokens = 5, .stop = &stop}).size(), 8U);
  stop = true;
  EXPECT_EQ(generate(model.decoder, at::kFloat, prompt, {.tokens = 5, .stop = &stop}), prompt);
}

}  // namespace
}  // namespace moestro::runtime
