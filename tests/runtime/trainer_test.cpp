#include "moestro/runtime/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <utility>

#include "moestro/core/error.h"
#include "moestro/core/file.h"
#include "moestro/kernels/gemm.h"
#include "moestro/model/hf_config.h"
#include "moestro/model/ledger.h"
#include "moestro/runtime/checkpoints.h"
#include "moestro/runtime/generate.h"
#include "moestro/runtime/optimizer.h"
#include "tests/runtime/training_test_support.h"

namespace moestro::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

class Trainer : public testing::Test {
 protected:
  test::TemporaryFolder folder_;
  RunConfig config_ = tiny_run(folder_.path());
};

TEST_F(Trainer, LossFallsBelowUnigramEntropy) {
  config_.train.steps = 40;
  RunReport run;
  TrainHooks hooks;
  hooks.on_start = [&](const RunReport& report) { run = report; };
  std::vector<StepReport> steps;
  hooks.on_step = [&](const StepReport& step) { steps.push_back(step); };
  const TrainResult result = train(config_, hooks);
  ASSERT_EQ(steps.size(), 40U);
  EXPECT_NEAR(steps.front().loss, std::log(256.0), 0.5);  // knows nothing yet
  EXPECT_LT(steps.back().loss, 0.6 * run.unigram_entropy);
  ASSERT_TRUE(result.validation_loss.has_value());
  EXPECT_LT(*result.validation_loss, 0.6 * run.unigram_entropy);
  EXPECT_GT(run.gemm_peak_flops_per_second, 0.0);
  EXPECT_EQ(steps.back().tokens, 8 * 19);
  ASSERT_TRUE(steps.back().moe.has_value());
  EXPECT_GE(steps.back().moe->max_over_mean, 1.0);
}

TEST_F(Trainer, TheSameRunGivesTheSameBitsOnOneAndTwoThreads) {
  const Losses two = train_and_collect(config_);
  config_.train.threads = 1;
  EXPECT_EQ(two.steps, train_and_collect(config_).steps);
}

TEST_F(Trainer, RecomputationChangesNoBit) {
  const Losses kept = train_and_collect(config_);
  config_.train.recompute = Recompute::layer;
  EXPECT_EQ(kept.steps, train_and_collect(config_).steps);
}

TEST_F(Trainer, CuttingABatchOtherwiseChangesOnlyRounding) {
  config_.balance.aux_loss = 0.0;  // formed per micro-batch of a shard
  const Losses whole = train_and_collect(config_);
  config_.train.micro_batch = 1;
  const Losses cut = train_and_collect(config_);
  config_.train.shards = 2;
  const Losses sharded = train_and_collect(config_);
  for (std::size_t i = 0; i < whole.steps.size(); ++i) {
    EXPECT_NEAR(whole.steps[i], cut.steps[i], 1e-3);
    EXPECT_NEAR(whole.steps[i], sharded.steps[i], 1e-3);
  }
}

TEST_F(Trainer, AuxiliaryLossIsFormedPerShard) {
  config_.balance.aux_loss = 1.0;
  config_.train.micro_batch = 2;
  const Losses unsharded = train_and_collect(config_);
  config_.train.micro_batch = 1;
  config_.train.shards = 2;
  EXPECT_NE(unsharded.steps, train_and_collect(config_).steps);
}

TEST_F(Trainer, ValidatesEveryFewStepsAndAfterTheLast) {
  config_.train.steps = 5;
  config_.train.validate_every = 2;
  std::vector<std::int64_t> validated;
  TrainHooks hooks;
  hooks.on_step = [&](const StepReport& step) {
    if (step.validation_loss) validated.push_back(step.step);
  };
  static_cast<void>(train(config_, hooks));
  EXPECT_EQ(validated, (std::vector<std::int64_t>{2, 4, 5}));
}

TEST_F(Trainer, ValidationTakesTheFirstWindowsAndNoMore) {
  config_.train.steps = 1;
  config_.train.micro_batch = 2;
  config_.train.global_batch = 2;
  config_.train.validation_batches = 3;  // six windows
  config_.optimizer.lr = 0.0;            // the same weights each time
  const auto loss_of = [&](const std::string& text) {
    config_.data.validation_text = {folder_.file("held_out.txt", text).string()};
    return train_and_collect(config_).result.validation_loss.value();
  };
  std::string text;
  for (std::size_t i = 0; i < 6 * 19 + 1; ++i) text += static_cast<char>('a' + i * i % 23);
  const float six = loss_of(text);
  EXPECT_EQ(loss_of(text + std::string(100, 'z')), six);
  for (const std::size_t place : {std::size_t{0}, std::size_t{6 * 19}}) {
    std::string other = text;
    other[place] = 'z';
    EXPECT_NE(loss_of(other), six) << place;
  }
}

TEST_F(Trainer, SeedsOfTheDataAndOfTheWeightsCount) {
  config_.train.steps = 1;
  const std::vector<float> first = train_and_collect(config_).steps;
  RunConfig other = config_;
  other.train.seed = config_.train.seed + 1;
  EXPECT_NE(train_and_collect(other).steps, first);
  other = config_;
  other.model.init_seed = config_.model.init_seed + 1;
  EXPECT_NE(train_and_collect(other).steps, first);
}

/// What a run says about itself before it begins.
RunReport report_of(const RunConfig& config) {
  RunReport report;
  TrainHooks hooks;
  hooks.on_start = [&](const RunReport& run) { report = run; };
  static_cast<void>(train(config, hooks));
  return report;
}

TEST_F(Trainer, NeverTrainsOnHeldOutText) {
  config_.train.steps = 1;
  const auto bytes = static_cast<std::int64_t>(read_file(config_.data.text.front()).size());
  config_.data.validation_fraction = 0.25;
  const RunReport split = report_of(config_);
  EXPECT_EQ(split.train_tokens + split.held_out_tokens, bytes);
  EXPECT_NEAR(static_cast<double>(split.held_out_tokens), 0.25 * static_cast<double>(bytes), 40);
  config_.data.validation_text = {folder_.file("held_out.txt", std::string(50, 'x')).string()};
  const RunReport apart = report_of(config_);
  EXPECT_EQ(apart.train_tokens, bytes) << "nothing is held out of the training text";
  EXPECT_EQ(apart.held_out_tokens, 50);
}

TEST_F(Trainer, ReportsRatesThatBelongTogether) {
  config_.train.steps = 3;
  config_.optimizer.warmup_steps = 2;
  RunReport run;
  TrainHooks hooks;
  hooks.on_start = [&](const RunReport& report) { run = report; };
  hooks.on_step = [&](const StepReport& step) {
    EXPECT_EQ(step.lr, learning_rate(config_.optimizer, 3, step.step));
    EXPECT_DOUBLE_EQ(step.flops_per_second, step.tokens_per_second * run.flops_per_token);
    EXPECT_DOUBLE_EQ(step.mfu, step.flops_per_second / run.gemm_peak_flops_per_second);
  };
  static_cast<void>(train(config_, hooks));
  const model::ModelConfig config = model::resolve_model(config_.model.config).model;
  EXPECT_EQ(run.flops_per_token, model::make_ledger(config, 19, {.with_mtp = false}).flops.value());
}

TEST_F(Trainer, ResumedBf16RunEqualsAnUninterruptedOne) {
  if (!kernels::has_fast_bf16()) GTEST_SKIP() << "this CPU has no bf16 products";
  config_.train.dtype = Dtype::bf16;
  const Losses whole = train_and_collect(config_);
  config_.checkpoint.folder = (folder_.path() / "checkpoints").string();
  config_.checkpoint.every = 3;
  static_cast<void>(train_and_collect(config_));
  std::filesystem::remove_all(folder_.path() / "checkpoints" / "step-000006");
  const std::vector<float> last(whole.steps.begin() + 3, whole.steps.end());
  EXPECT_EQ(train_and_collect(config_).steps, last);
}

TEST_F(Trainer, RefusesACheckpointOfAnotherModelOfTheSameShapes) {
  config_.checkpoint.folder = (folder_.path() / "checkpoints").string();
  config_.train.steps = 1;
  static_cast<void>(train_and_collect(config_));
  config_.train.steps = 2;
  std::string config = read_file(config_.model.config);
  config.replace(config.find("10000.0"), 7, "20000.0");
  std::ofstream(config_.model.config) << config;
  EXPECT_THROW(static_cast<void>(train_and_collect(config_)), Error);
}

TEST_F(Trainer, RefusesAVocabularyThatLacksTokens) {
  std::string config = read_file(config_.model.config);
  config.replace(config.find("256"), 3, "200");
  std::ofstream(config_.model.config) << config;
  EXPECT_THROW(static_cast<void>(train_and_collect(config_)), Error);
}

TEST_F(Trainer, WarnsOfSettingsThatDoNothing) {
  RunConfig config = config_;
  config.optimizer.min_lr = 1e-4;
  config.optimizer.schedule = LrSchedule::linear;
  config.optimizer.warmup_steps = config.train.steps;
  testing::internal::CaptureStderr();
  static_cast<void>(train(config, {}));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), Not(HasSubstr("warning: ")));
  config.optimizer.schedule = LrSchedule::constant;
  config.optimizer.warmup_steps = config.train.steps + 1;
  testing::internal::CaptureStderr();
  static_cast<void>(train(config, {}));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("optimizer.min_lr = 0.0001 means nothing"));
  EXPECT_THAT(log, HasSubstr("lr is never reached"));
}

TEST_F(Trainer, WarnsOfSequencesLongerThanTheModelsPositions) {
  config_.train.steps = 1;
  for (const auto& [seq_len, warns] : {std::pair{64, false}, std::pair{65, true}}) {
    config_.data.seq_len = seq_len;
    testing::internal::CaptureStderr();
    static_cast<void>(train_and_collect(config_));
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_EQ(log.find("max_position_embeddings") != std::string::npos, warns) << seq_len;
  }
}

TEST_F(Trainer, ResumedRunEqualsAnUninterruptedOne) {
  const Losses whole = train_and_collect(config_);
  config_.checkpoint.folder = (folder_.path() / "checkpoints").string();
  config_.checkpoint.every = 2;
  std::atomic<bool> stop{false};
  TrainHooks hooks;
  hooks.stop = &stop;
  std::vector<float> losses;
  hooks.on_step = [&](const StepReport& step) {
    losses.push_back(step.loss);
    if (step.step == 2) stop = true;
  };
  const TrainResult interrupted = train(config_, hooks);
  EXPECT_TRUE(interrupted.interrupted);
  EXPECT_EQ(interrupted.steps, 2);
  EXPECT_FALSE(interrupted.checkpoint.empty());
  const Losses rest = train_and_collect(config_);
  losses.insert(losses.end(), rest.steps.begin(), rest.steps.end());
  EXPECT_EQ(losses, whole.steps);
}

TEST_F(Trainer, AFreshRunInAUsedFolderIsTheOneThatIsResumed) {
  config_.checkpoint.folder = (folder_.path() / "checkpoints").string();
  static_cast<void>(train_and_collect(config_));
  const std::int64_t steps = config_.train.steps;
  config_.train.steps = 2;
  config_.checkpoint.resume = false;
  testing::internal::CaptureStderr();
  static_cast<void>(train_and_collect(config_));
  EXPECT_NE(testing::internal::GetCapturedStderr().find("earlier-1"), std::string::npos);
  config_.train.steps = steps;
  config_.checkpoint.resume = true;
  EXPECT_EQ(train_and_collect(config_).result.steps, steps - 2);
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "checkpoints" / "earlier-1"));
}

TEST_F(Trainer, GoesOnFromBeforeADamagedCheckpointAndReplacesIt) {
  config_.checkpoint.folder = (folder_.path() / "checkpoints").string();
  config_.checkpoint.every = 2;
  const Losses whole = train_and_collect(config_);
  const auto weights = std::filesystem::path(whole.result.checkpoint) / "model.safetensors";
  std::filesystem::resize_file(weights, std::filesystem::file_size(weights) - 5);
  testing::internal::CaptureStderr();
  const Losses rest = train_and_collect(config_);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(rest.steps, std::vector<float>(whole.steps.begin() + 4, whole.steps.end()));
  EXPECT_THAT(log, HasSubstr("step-000006 is damaged: ["));
  EXPECT_THAT(log, HasSubstr("step-000006 replaces the damaged checkpoint"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
  EXPECT_EQ(train_and_collect(config_).steps.size(), 0U) << "it is whole again";
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(".")) names.push_back(name);
  }
  return names;
}

TEST_F(Trainer, KeepsAsManyCheckpointsAsItIsTold) {
  config_.checkpoint.folder = (folder_.path() / "checkpoints").string();
  config_.checkpoint.every = 1;
  config_.train.steps = 4;
  static_cast<void>(train_and_collect(config_));
  EXPECT_THAT(names_in(config_.checkpoint.folder), SizeIs(4)) << "all, if it is not told";
  config_.checkpoint.keep = 2;
  config_.train.steps = 5;
  static_cast<void>(train_and_collect(config_));
  EXPECT_THAT(names_in(config_.checkpoint.folder),
              UnorderedElementsAre("step-000004", "step-000005"));
  config_.checkpoint.resume = false;
  static_cast<void>(train_and_collect(config_));
  EXPECT_THAT(names_in(config_.checkpoint.folder),
              UnorderedElementsAre("step-000004", "step-000005", "earlier-1"));
  EXPECT_THAT(names_in(std::filesystem::path(config_.checkpoint.folder) / "earlier-1"),
              UnorderedElementsAre("step-000004", "step-000005"));
}

TEST_F(Trainer, NeverRemovesACheckpointForADamagedLaterOne) {
  config_.checkpoint.folder = (folder_.path() / "checkpoints").string();
  config_.checkpoint.every = 1;
  const std::string last = train_and_collect(config_).result.checkpoint;
  std::filesystem::resize_file(last + "/optimizer.safetensors", 100);
  config_.checkpoint.keep = 1;
  static_cast<void>(train_and_collect(config_));
  EXPECT_EQ(names_in(config_.checkpoint.folder), std::vector<std::string>{"step-000006"});
  for (const char* file : {"step-000007", "step-000008"}) {
    std::filesystem::copy(last, std::filesystem::path(config_.checkpoint.folder) / file);
  }
  config_.train.steps = 7;
  EXPECT_EQ(train_and_collect(config_).steps.size(), 1U);
  EXPECT_THAT(names_in(config_.checkpoint.folder),
              UnorderedElementsAre("step-000007", "step-000008"));
}

TEST_F(Trainer, ResumesAModelWhoseConfigNamesAnotherDtypeThanItsCheckpoints) {
  const std::string config = read_file(config_.model.config);
  std::ofstream(config_.model.config) << R"({"torch_dtype": "bfloat16",)" << config.substr(1);
  config_.checkpoint.folder = (folder_.path() / "checkpoints").string();
  config_.checkpoint.every = 2;
  config_.train.steps = 2;
  const std::string saved = train_and_collect(config_).result.checkpoint;
  EXPECT_THAT(read_file(saved + "/config.json"), HasSubstr(R"("torch_dtype": "float32")"));
  config_.train.steps = 3;
  EXPECT_EQ(train_and_collect(config_).steps.size(), 1U);
  std::ofstream(saved + "/config.json") << R"({"torch_dtype": "bfloat16",)" << config.substr(1);
  std::filesystem::remove_all(std::filesystem::path(saved).parent_path() / "step-000003");
  EXPECT_EQ(train_and_collect(config_).steps.size(), 1U) << "written by an older version";
}

TEST_F(Trainer, RefusesACheckpointOfOtherDataOrModel) {
  config_.checkpoint.folder = (folder_.path() / "checkpoints").string();
  config_.train.steps = 1;
  static_cast<void>(train_and_collect(config_));
  config_.train.steps = 2;
  RunConfig other = config_;
  other.data.seq_len = 17;
  EXPECT_THROW(static_cast<void>(train_and_collect(other)), Error);
  other = config_;
  other.model.config = "tiny";
  EXPECT_THROW(static_cast<void>(train_and_collect(other)), Error);
  other.checkpoint.resume = false;
  EXPECT_EQ(train_and_collect(other).steps.size(), 2U);
}

TEST_F(Trainer, RefusesACheckpointOfAnotherText) {
  config_.checkpoint.folder = (folder_.path() / "checkpoints").string();
  config_.train.steps = 1;
  static_cast<void>(train_and_collect(config_));
  config_.data.text.push_back(config_.data.text.front());
  EXPECT_THROW(static_cast<void>(train_and_collect(config_)), Error);
}

/// Whether a run is refused as bad input before it begins.
bool is_refused_before_training(const RunConfig& config) {
  bool has_begun = false;
  TrainHooks hooks;
  hooks.on_start = [&](const RunReport&) { has_begun = true; };
  try {
    static_cast<void>(train(config, hooks));
  } catch (const Error& error) {
    return error.kind() == ErrorKind::input && !has_begun;
  }
  return false;
}

TEST_F(Trainer, FindsAnUnusableCheckpointFolderBeforeTraining) {
  config_.checkpoint.folder = config_.data.text.front() + "/inside";
  EXPECT_TRUE(is_refused_before_training(config_));
}

TEST_F(Trainer, FindsWhatIsInThePlaceOfACheckpointBeforeTraining) {
  const std::filesystem::path folder = folder_.path() / "checkpoints";
  config_.checkpoint.folder = folder.string();
  std::filesystem::create_directories(folder / "step-000006" / "optimizer.safetensors");
  static_cast<void>(folder_.file("checkpoints/step-000005", ""));
  config_.checkpoint.resume = false;
  EXPECT_TRUE(is_refused_before_training(config_)) << "a file is not set aside";
  std::filesystem::remove(folder / "step-000005");
  EXPECT_EQ(train_and_collect(config_).result.steps, 6);
  EXPECT_TRUE(std::filesystem::exists(folder / "earlier-1" / "step-000006"));
}

TEST_F(Trainer, KeepsASecondRunOutOfItsCheckpointFolder) {
  config_.checkpoint.folder = (folder_.path() / "checkpoints").string();
  TrainHooks hooks;
  bool is_refused = false;
  hooks.on_step = [&](const StepReport& step) {
    if (step.step == 1) is_refused = is_refused_before_training(config_);
  };
  static_cast<void>(train(config_, hooks));
  EXPECT_TRUE(is_refused);
  EXPECT_EQ(train_and_collect(config_).result.steps, 0) << "free again";
}

TEST_F(Trainer, SaysWhichLoadedTensorsItLeavesOut) {
  config_.checkpoint.folder = (folder_.path() / "checkpoints").string();
  config_.train.steps = 1;
  const std::string saved = train_and_collect(config_).result.checkpoint;
  config_.model.load = saved;
  config_.model.config.clear();
  config_.checkpoint.folder.clear();
  testing::internal::CaptureStderr();
  static_cast<void>(train_and_collect(config_));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), Not(HasSubstr("left out")));
  std::string json = read_file(std::filesystem::path(saved) / "config.json");
  json.replace(json.find("\"num_hidden_layers\": 2"), 22, "\"num_hidden_layers\": 1");
  std::ofstream(std::filesystem::path(saved) / "config.json") << json;
  testing::internal::CaptureStderr();
  static_cast<void>(train_and_collect(config_));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("are left out: model.layers.1.input_layernorm.weight, ..."));
}

TEST_F(Trainer, SaysWhatHasChangedWhenItResumes) {
  config_.checkpoint.folder = (folder_.path() / "checkpoints").string();
  config_.train.steps = 2;
  static_cast<void>(train_and_collect(config_));
  config_.train.steps = 3;
  config_.train.seed = 5;
  config_.train.global_batch = 4;
  testing::internal::CaptureStderr();
  EXPECT_EQ(train_and_collect(config_).result.steps, 1);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("resumed with changes: train.global_batch was 8, is 4; train.steps "
                             "was 2, is 3\n"));
  EXPECT_THAT(log, HasSubstr("warning: ")) << "another order of the data";
}

TEST_F(Trainer, ResumesInALaterEpoch) {
  config_.data.seq_len = 1500;  // fewer windows than a step takes
  config_.train.global_batch = 4;
  config_.checkpoint.folder = (folder_.path() / "checkpoints").string();
  config_.train.steps = 2;
  static_cast<void>(train_and_collect(config_));
  config_.train.steps = 3;
  EXPECT_EQ(train_and_collect(config_).result.steps, 1);
}

TEST_F(Trainer, RefusesValidationTextShorterThanAWindow) {
  config_.data.validation_text = {folder_.file("short.txt", "abc").string()};
  EXPECT_THROW(static_cast<void>(train_and_collect(config_)), Error);
}

/// What a run is refused with.
std::string refusal(const RunConfig& config, ErrorKind kind) {
  try {
    static_cast<void>(train_and_collect(config));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  return "no error";
}

TEST_F(Trainer, RefusesAModelLargerThanTheMachineAsInfeasible) {
  config_.model.config = "mixtral-8x22b";
  EXPECT_THAT(refusal(config_, ErrorKind::infeasible), HasSubstr("expected a model that fits"));
}

TEST_F(Trainer, RefusesTextLargerThanTheMachineAsInfeasible) {
  const auto text = folder_.file("large.txt", "abc");
  std::filesystem::resize_file(text, std::uintmax_t{1} << 42);  // a hole: takes no room
  config_.data.text = {text.string()};
  EXPECT_THAT(refusal(config_, ErrorKind::infeasible), HasSubstr("expected text that fits"));
}

TEST_F(Trainer, SaysWhatALargerMachineWouldNotMendFirst) {
  config_.model.config = "kimi-k2";
  EXPECT_THAT(refusal(config_, ErrorKind::input), HasSubstr("this version cannot run the model"));
  config_.model.config = "mixtral-8x22b";
  config_.balance.bias_update = 0.001;
  EXPECT_THAT(refusal(config_, ErrorKind::input),
              HasSubstr("expected a model whose router has a selection bias"));
}

TEST_F(Trainer, ASavedCheckpointLoadsAsAModel) {
  config_.checkpoint.folder = (folder_.path() / "checkpoints").string();
  const Losses first = train_and_collect(config_);
  RunConfig next = config_;
  next.model.config.clear();
  next.model.load = first.result.checkpoint;
  next.checkpoint.folder.clear();
  next.train.steps = 1;
  EXPECT_LT(train_and_collect(next).steps[0], first.steps.back() + 0.5F);
}

TEST_F(Trainer, Bf16TrainsLikeF32) {
  if (!kernels::has_fast_bf16()) GTEST_SKIP() << "this CPU has no bf16 products";
  const Losses f32 = train_and_collect(config_);
  config_.train.dtype = Dtype::bf16;
  const Losses bf16 = train_and_collect(config_);
  for (std::size_t i = 0; i < f32.steps.size(); ++i) {
    EXPECT_NEAR(f32.steps[i], bf16.steps[i], 0.1) << i;
  }
}

TEST_F(Trainer, StopsWithOneClearErrorWhenTheLossDiverges) {
  config_.optimizer.lr = 1e30;
  config_.train.steps = 20;
  try {
    static_cast<void>(train_and_collect(config_));
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("optimizer.lr"), std::string::npos);
  }
}

TEST_F(Trainer, SamplesTheSameTextForTheSameSeed) {
  config_.output.sample_prompt = "the ";
  config_.output.sample_tokens = 20;
  const std::string first = train_and_collect(config_).result.sample;
  EXPECT_EQ(first.substr(0, 4), "the ");
  EXPECT_EQ(first, train_and_collect(config_).result.sample);
}

TEST_F(Trainer, RefusesABiasUpdateWithoutABias) {
  config_.balance.bias_update = 0.001;
  EXPECT_THROW(static_cast<void>(train_and_collect(config_)), Error);
}

TEST_F(Trainer, RefusesATextShorterThanAWindow) {
  config_.data.seq_len = 100000;
  EXPECT_THROW(static_cast<void>(train_and_collect(config_)), Error);
}

}  // namespace
}  // namespace moestro::runtime
