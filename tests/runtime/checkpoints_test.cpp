#include "moestro/runtime/checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "moestro/checkpoint/safetensors.h"
#include "moestro/core/error.h"
#include "moestro/core/json.h"
#include "moestro/layers/weights.h"
#include "moestro/runtime/decoder.h"
#include "tests/checkpoint/overwrite_number.h"
#include "tests/runtime/training_test_support.h"

namespace moestro::runtime {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A way in which a file of a checkpoint may be damaged.
struct Damage {
  const char* file;
  const char* how;  // "gone", "cut", "empty" or "nan"
};

void inflict(const Damage& damage, const fs::path& folder) {
  const fs::path path = folder / damage.file;
  const std::string how = damage.how;
  if (how == "gone") {
    fs::remove(path);
  } else if (how == "nan") {
    const std::string tensor = checkpoint::SafetensorsFile(path).tensors().front().name;
    checkpoint::overwrite_number(path, tensor, 1, NAN);
  } else {
    fs::resize_file(path, how == "cut" ? fs::file_size(path) - 5 : 0);
  }
}

/// A model with checkpoints of steps 2 and 4.
class Checkpoints : public testing::Test {
 protected:
  Checkpoints() {
    prepare_for_training(model_.decoder, at::kFloat);
    optimizer_ = make_optimizer(config_.optimizer, 4, layers::parameters(model_.decoder.weights));
    for (const std::int64_t step : {2, 4}) {
      static_cast<void>(save_checkpoint(root_.string(), identity_,
                                        {.step = step, .tokens_seen = 9, .position = {0, 9}},
                                        model_, optimizer_));
    }
  }
  std::optional<Resumption> load() {
    testing::internal::CaptureStderr();
    const auto found = load_newest_checkpoint(root_.string(), identity_, model_, optimizer_);
    log_ = testing::internal::GetCapturedStderr();
    return found;
  }
  /// The message with which loading ends.
  std::string refusal() {
    try {
      static_cast<void>(load());
    } catch (const Error& error) {
      static_cast<void>(testing::internal::GetCapturedStderr());
      EXPECT_EQ(error.kind(), ErrorKind::input);
      return error.what();
    }
    return "no error";
  }
  /// Applies a JSON merge patch to the newest trainer.json.
  void patch_newest_state(const char* patch) const {
    const fs::path file = root_ / "step-000004" / "trainer.json";
    Json state = read_json_file(file.string());
    state.merge_patch(Json::parse(patch));
    write_json_file(file, state);
  }

  test::TemporaryFolder folder_;
  RunConfig config_ = tiny_run(folder_.path());
  fs::path root_ = folder_.path() / "checkpoints";
  RunIdentity identity_ = {
      .data = {.seq_len = 1, .seed = 2, .tokenizer = "byte", .fingerprint = "text", .windows = 10},
      .settings = {
          {"model.init_seed", "1"}, {"optimizer.lr", "0.001"}, {"train.dtype", "\"f32\""}}};
  LoadedModel model_ = load_model(config_);
  Optimizer optimizer_;
  std::string log_;
};

TEST_F(Checkpoints, TheNewestIsLoaded) {
  const auto found = load();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->folder, (root_ / "step-000004").string());
  EXPECT_EQ(found->progress.step, 4);
  EXPECT_EQ(log_, "");
}

TEST_F(Checkpoints, ADamagedOneIsPassedOverWithOneWarningAndStays) {
  fs::copy(root_, folder_.path() / "whole", fs::copy_options::recursive);
  for (const Damage& damage : {Damage{"model.safetensors", "cut"},
                               {"model.safetensors", "gone"},
                               {"model.safetensors", "nan"},
                               {"optimizer.safetensors", "nan"},
                               {"optimizer.safetensors", "cut"},
                               {"optimizer.safetensors", "empty"},
                               {"config.json", "cut"},
                               {"config.json", "gone"},
                               {"trainer.json", "cut"},
                               {"trainer.json", "gone"}}) {
    SCOPED_TRACE(std::string(damage.file) + " " + damage.how);
    fs::remove_all(root_);
    fs::copy(folder_.path() / "whole", root_, fs::copy_options::recursive);
    const std::string newest = (root_ / "step-000004").string();
    inflict(damage, newest);
    const auto found = load();
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->progress.step, 2);
    EXPECT_THAT(found->damaged, ElementsAre(newest));
    EXPECT_THAT(log_, HasSubstr("warning: " + newest + " is damaged: ["));
    EXPECT_THAT(log_, HasSubstr(damage.file));
    EXPECT_EQ(std::count(log_.begin(), log_.end(), '\n'), 1) << log_;
    EXPECT_TRUE(fs::exists(newest));
  }
}

TEST_F(Checkpoints, ARunNeverStartsOverBecauseAllAreDamaged) {
  inflict({"optimizer.safetensors", "cut"}, root_ / "step-000002");
  inflict({"trainer.json", "gone"}, root_ / "step-000004");
  const std::string message = refusal();
  EXPECT_THAT(message, HasSubstr("expected a file trainer.json, got none"));
  EXPECT_THAT(message,
              HasSubstr((root_ / "step-000004").string() + ", " + (root_ / "step-000002").string() +
                        ", or set checkpoint.resume = false"));
}

TEST_F(Checkpoints, OneOfAnotherVersionIsAnErrorNotDamage) {
  patch_newest_state(R"({"version":2})");
  EXPECT_THAT(refusal(), HasSubstr("version] expected 1, got 2"));
}

TEST_F(Checkpoints, OneThatNamesAnotherStepIsDamaged) {
  patch_newest_state(R"({"step":3})");
  ASSERT_TRUE(load().has_value());
  EXPECT_THAT(log_, HasSubstr("step] expected 4, as the folder says, got 3"));
}

TEST_F(Checkpoints, OneWhoseStateCannotBeIsDamaged) {
  const fs::path file = root_ / "step-000004" / "trainer.json";
  const Json sound = read_json_file(file.string());
  for (const char* patch :
       {R"({"position":{"offset":99999999999}})", R"({"data":null})", R"({"position":null})",
        R"({"data":{"seed":-1}})", R"({"tokens_seen":-9})", R"({"settings":0})",
        // What only the data themselves show: older versions lack the windows.
        R"({"data":{"windows":null},"tokens_seen":99,"position":{"offset":99}})"}) {
    SCOPED_TRACE(patch);
    Json state = sound;
    state.merge_patch(Json::parse(patch));
    write_json_file(file, state);
    const auto found = load();
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->progress.step, 2);
    EXPECT_THAT(log_, HasSubstr("step-000004 is damaged: ["));
    EXPECT_EQ(std::count(log_.begin(), log_.end(), '\n'), 1) << log_;
  }
}

TEST_F(Checkpoints, OneThatCannotBeOpenedIsAnErrorNotDamage) {
  const fs::path file = root_ / "step-000004" / "trainer.json";
  fs::remove(file);
  fs::create_symlink("trainer.json", file);  // leads to itself
  EXPECT_THROW(static_cast<void>(load()), Error);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(Checkpoints, AWholeOneOfOtherDataIsAnErrorNotDamage) {
  const RunIdentity same = identity_;
  identity_.data.seq_len = 3;
  EXPECT_THAT(refusal(), HasSubstr("expected data.seq_len = 1, with which the checkpoint was "
                                   "written, got 3; go back to it"));
  identity_ = same;
  identity_.data.tokenizer = "other";
  EXPECT_THAT(refusal(), HasSubstr("expected data.tokenizer = \"byte\""));
  identity_ = same;
  identity_.data.fingerprint = "other";
  EXPECT_THAT(refusal(), HasSubstr("expected the training text"));
  identity_ = same;
  EXPECT_EQ(refusal(), "no error");
}

TEST_F(Checkpoints, WhatSavingChangesInTheConfigMakesNoOtherModel) {
  const std::string plain = model_.source.json;
  for (const char* member :
       {R"("quantization_config": {"quant_method": "fp8"})", R"("compression_config": {"a": [1]})",
        R"("dtype": "bfloat16")", R"("torch_dtype": "float16")"}) {
    model_.source.json = fmt::format("{{{}, {}", member, plain.substr(1));
    static_cast<void>(save_checkpoint(root_.string(), identity_,
                                      {.step = 6, .tokens_seen = 9, .position = {0, 9}}, model_,
                                      optimizer_));
    EXPECT_EQ(refusal(), "no error") << member;
    EXPECT_EQ(log_, "");
  }
  std::string other = plain;
  model_.source.json = other.replace(other.find("1e-6"), 4, "1e-5");
  EXPECT_THAT(refusal(), HasSubstr("the checkpoint is of another model"));
}

TEST_F(Checkpoints, ChangedSettingsAreNamedInOneNoteWithOldAndNewValues) {
  const auto found = load();
  ASSERT_TRUE(found.has_value());
  const auto report = [&] {
    testing::internal::CaptureStderr();
    report_changes(*found, identity_);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(report(), "");
  identity_.settings["optimizer.lr"] = "0.01";
  identity_.settings["train.dtype"] = "\"bf16\"";
  identity_.settings["of a newer version"] = "1";
  EXPECT_EQ(report(), (root_ / "step-000004").string() +
                          ": resumed with changes: optimizer.lr was 0.001, is 0.01; train.dtype "
                          "was \"f32\", is \"bf16\"\n");
  identity_.settings = found->settings;
  identity_.settings["model.init_seed"] = "99";
  EXPECT_THAT(report(), HasSubstr("changes: model.init_seed was 1, is 99 (not used)\n"));
  identity_ = {.data = identity_.data, .settings = found->settings};
  identity_.data.seed = 3;
  EXPECT_THAT(report(), HasSubstr("warning: " + (root_ / "step-000004").string() +
                                  ": train.seed was 2, is 3: the data come in another order"));
}

}  // namespace
}  // namespace moestro::runtime
