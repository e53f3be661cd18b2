#include "moestro/checkpoint/training_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "moestro/checkpoint/hf_folder.h"
#include "moestro/core/error.h"
#include "moestro/core/file.h"
#include "moestro/model/hf_config.h"
#include "tests/checkpoint/overwrite_number.h"
#include "tests/checkpoint/tiny_model.h"
#include "tests/core/temporary_folder.h"
#include "tests/model/tiny_glm.h"

namespace moestro::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const kConfig = "{}";

/// A weight and a selection bias.
std::vector<model::TensorSpec> two_specs() {
  std::vector<model::TensorSpec> specs(2);
  specs[0] = {"w", {2, 2}, model::Role::lm_head};
  specs[1] = {"bias", {3}, model::Role::selection_bias};
  return specs;
}

TensorValues constant(float value) {
  return [value, buffer = std::vector<float>()](const model::TensorSpec& spec) mutable {
    buffer.assign(static_cast<std::size_t>(spec.elements()), value);
    return std::span<const float>(buffer);
  };
}

/// What a run has to say after `step` steps of one sequence of 64 tokens, in epochs of 10.
Json state_of(std::int64_t step) {
  return {{"step", step},
          {"tokens_seen", 64 * step},
          {"position", {{"epoch", step / 10}, {"offset", step % 10}}},
          {"data",
           {{"seq_len", 64},
            {"seed", 1},
            {"tokenizer", "byte"},
            {"fingerprint", "f"},
            {"windows", 10}}},
          {"settings", {{"train.steps", "9"}}},
          {"recent_losses", {2.5, 2.25}}};
}

/// What trainer.json says after 12 steps.
Json sound_state() {
  Json state = {{"format", "moestro-checkpoint"}, {"version", 1}};
  state.update(state_of(12));
  return state;
}

void save(const fs::path& root, std::int64_t step) {
  const Json state = state_of(step);
  save_training_checkpoint(step_folder(root, step), kConfig, state,
                           {two_specs(), constant(1.0F), constant(2.0F), constant(3.0F)});
}

/// The message with which a trainer.json is refused.
std::string refusal(std::string_view trainer_json) {
  const test::TemporaryFolder folder;
  (void)folder.file("trainer.json", trainer_json);
  try {
    (void)read_training_state(folder.path());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
  return "no error";
}

TEST(TrainingCheckpoint, FoldersThatCannotBeResumedSayWhy) {
  const test::TemporaryFolder root;
  save(root.path(), 7);
  const fs::path folder = root.path() / "step-000007";
  const auto why = [&] { return why_not_resumable(HfFolder(folder), {}); };
  EXPECT_EQ(why(), "");
  fs::resize_file(folder / kOptimizerFile, 20);
  EXPECT_THAT(why(), HasSubstr(kOptimizerFile));
  fs::remove(folder / kOptimizerFile);
  EXPECT_THAT(why(), HasSubstr(kOptimizerFile));
  write_file_atomically(folder / "trainer.json", "garbage");
  EXPECT_THAT(why(), HasSubstr("trainer.json"));
  fs::remove(folder / "trainer.json");
  EXPECT_THAT(why(), HasSubstr("trainer.json")) << "that of a step lacks something";
  const fs::path other = root.path() / "weights";
  fs::rename(folder, other);
  EXPECT_EQ(why_not_resumable(HfFolder(other), {}), "")
      << "weights alone are no training checkpoint";
}

TEST(TrainingCheckpoint, StepsAreSetAsideOnceForEveryRun) {
  const test::TemporaryFolder root;
  EXPECT_EQ(set_steps_aside(root.path()), "");
  for (const char* aside : {"earlier-1", "earlier-2"}) {
    save(root.path(), 1);
    save(root.path(), 20);
    EXPECT_EQ(set_steps_aside(root.path()), (root.path() / aside).string());
    EXPECT_TRUE(step_folders(root.path()).empty());
    EXPECT_EQ(step_folders(root.path() / aside).size(), 2U);
  }
}

TEST(TrainingCheckpoint, ReadsBackStateWeightsAndMoments) {
  const test::TemporaryFolder root;
  save(root.path(), 123);
  const fs::path folder = root.path() / "step-000123";
  const Json state = read_training_state(folder);
  EXPECT_EQ(state["step"], 123);
  EXPECT_EQ(state["position"]["offset"], 3);
  EXPECT_EQ(state.begin().key(), "format");
  std::vector<float> weights(4), bias(3), m(4), v(4);
  const HfFolder hf(folder);
  hf.read_floats("w", weights);
  hf.read_floats("bias", bias);
  EXPECT_THAT(weights, testing::Each(1.0F));
  EXPECT_THAT(bias, testing::Each(1.0F));
  const SafetensorsFile optimizer(folder / kOptimizerFile);
  read_moments(optimizer, two_specs()[0], m, v);
  EXPECT_THAT(m, testing::Each(2.0F));
  EXPECT_THAT(v, testing::Each(3.0F));
  EXPECT_THAT(optimizer.names(), testing::ElementsAre("exp_avg.w", "exp_avg_sq.w"));  // no bias
}

TEST(TrainingCheckpoint, RefusesMomentsOfAnotherModel) {
  const test::TemporaryFolder root;
  save(root.path(), 1);
  const SafetensorsFile optimizer(root.path() / "step-000001" / kOptimizerFile);
  std::vector<float> m(4), v(4);
  model::TensorSpec spec = two_specs()[0];
  spec.shape = {4};
  EXPECT_THROW(read_moments(optimizer, spec, m, v), Error);
  spec.name = "x";
  EXPECT_THROW(read_moments(optimizer, spec, m, v), Error);
}

TEST(TrainingCheckpoint, IsNotWrittenByADivergedRun) {
  const test::TemporaryFolder root;
  for (const int which : {0, 1, 2}) {
    const auto values = [&](int place) { return constant(place == which ? -INFINITY : 1.0F); };
    EXPECT_THROW(save_training_checkpoint(step_folder(root.path(), 7), kConfig, state_of(7),
                                          {two_specs(), values(0), values(1), values(2)}),
                 Error)
        << which;
  }
  EXPECT_TRUE(fs::is_empty(root.path()));
}

TEST(TrainingCheckpoint, NeedsNoMomentsOfASelectionBias) {
  const model::ModelConfig config = model::parse_hf_config(model::kTinyGlm, "test").model;
  ASSERT_TRUE(config.moe.router.has_selection_bias);
  const test::TemporaryFolder root;
  const fs::path folder = step_folder(root.path(), 7);
  save_training_checkpoint(
      folder, model::kTinyGlm, state_of(7),
      {model::tensors(config), constant(1.0F), constant(1.0F), constant(1.0F)});
  EXPECT_EQ(why_not_resumable(HfFolder(folder), config), "");
}

TEST(TrainingCheckpoint, WithMomentsThatNoTrainingCanGoOnWithIsDamaged) {
  const model::ModelConfig config = tiny_config();
  const test::TemporaryFolder root;
  const fs::path folder = step_folder(root.path(), 7);
  save_training_checkpoint(folder, kTinyConfig, state_of(7),
                           {model::tensors(config), tiny_values(), tiny_values(), constant(1.0F)});
  EXPECT_EQ(why_not_resumable(HfFolder(folder), config), "");
  const std::string name = "model.norm.weight";
  for (const auto& [tensor, number] :
       {std::pair{"exp_avg." + name, NAN}, {"exp_avg_sq." + name, -1.0F}}) {
    const test::TemporaryFolder copy;
    fs::copy(folder, copy.path(), fs::copy_options::recursive);
    overwrite_number(copy.path() / kOptimizerFile, tensor, 3, number);
    EXPECT_THAT(why_not_resumable(HfFolder(copy.path()), config),
                HasSubstr("tensor \"" + tensor + "\"] expected finite numbers"));
    std::vector<float> m(8), v(8);
    const SafetensorsFile file(copy.path() / kOptimizerFile);
    EXPECT_THROW(read_moments(file, {name, {8}, model::Role::final_norm}, m, v), Error);
  }
}

TEST(TrainingCheckpoint, RefusesForeignAndNewerStates) {
  Json state = sound_state();
  EXPECT_EQ(refusal(state.dump()), "no error");
  EXPECT_THAT(refusal("[]"), HasSubstr("expected \"format\": \"moestro-checkpoint\""));
  EXPECT_THAT(refusal(R"({"format":"x","version":1})"), HasSubstr("expected \"format\""));
  EXPECT_THAT(refusal(R"({"format":"moestro-checkpoint","version":2,"step":1,"tokens_seen":2})"),
              HasSubstr("trainer.json version] expected 1, got 2"));
  EXPECT_THAT(refusal(R"({"format":"moestro-checkpoint"})"), HasSubstr("expected 1, got null"));
  EXPECT_THAT(refusal(R"({"format":"moestro-checkpoint","version":1,"tokens_seen":2})"),
              HasSubstr("trainer.json step] expected a whole number >= 0, got null"));
  EXPECT_THAT(refusal(R"({"format":"moestro-checkpoint","version":1,"step":1,"tokens_seen":-2})"),
              HasSubstr("tokens_seen] expected a whole number >= 0, got -2"));
  EXPECT_THAT(refusal("{"), HasSubstr("expected JSON"));
}

/// Each change to a sound state, and the key that it makes damaged.
struct Falsehood {
  const char* patch;  // JSON merge patch
  const char* key;
};
constexpr Falsehood kFalsehoods[] = {
    {R"({"step":-1})", "step"},
    {R"({"step":13})", "tokens_seen"},
    {R"({"step":1e3})", "step"},
    {R"({"step":18446744073709551615})", "step"},
    {R"({"tokens_seen":-64})", "tokens_seen"},
    {R"({"tokens_seen":769})", "tokens_seen"},
    {R"({"tokens_seen":832})", "position.offset"},
    {R"({"tokens_seen":9223372036854775807})", "tokens_seen"},
    {R"({"position":null})", "position"},
    {R"({"position":[1,2]})", "position"},
    {R"({"position":{"epoch":null}})", "position.epoch"},
    {R"({"position":{"epoch":-1}})", "position.epoch"},
    {R"({"position":{"epoch":0}})", "position.offset"},
    {R"({"position":{"epoch":4611686018427387904}})", "position.epoch"},
    {R"({"position":{"offset":-3}})", "position.offset"},
    {R"({"position":{"offset":99999999999}})", "position.offset"},
    {R"({"position":{"offset":3}})", "position.offset"},
    {R"({"position":{"offset":"2"}})", "position.offset"},
    {R"({"position":{"epoch":0,"offset":12}})", "position.offset"},
    {R"({"position":{"epoch":1,"offset":6},"data":{"windows":6}})", "position.offset"},
    {R"({"data":null})", "data"},
    {R"({"data":7})", "data"},
    {R"({"data":{"seq_len":0}})", "data.seq_len"},
    {R"({"data":{"seq_len":null}})", "data.seq_len"},
    {R"({"data":{"seed":-1}})", "data.seed"},
    {R"({"data":{"tokenizer":null}})", "data.tokenizer"},
    {R"({"data":{"fingerprint":5}})", "data.fingerprint"},
    {R"({"data":{"windows":0}})", "data.windows"},
    {R"({"data":{"windows":11}})", "position.offset"},
    {R"({"settings":[]})", "settings"},
    {R"({"settings":{"train.steps":9}})", "settings.train.steps"}};

TEST(TrainingCheckpoint, AStateThatCannotBeIsDamaged) {
  for (const Falsehood& falsehood : kFalsehoods) {
    Json state = sound_state();
    state.merge_patch(Json::parse(falsehood.patch));
    const std::string message = refusal(state.dump());
    EXPECT_THAT(message, HasSubstr(std::string("trainer.json ") + falsehood.key + "] expected"))
        << falsehood.patch;
    EXPECT_THAT(message, HasSubstr("the file is damaged")) << falsehood.patch;
  }
}

/// Every value of a state, as a JSON pointer.
std::vector<Json::json_pointer> places_in(const Json& state) {
  std::vector<Json::json_pointer> places;
  const Json leaves = state.flatten();
  for (const auto& [pointer, leaf] : leaves.items()) {
    for (Json::json_pointer at(pointer); !at.empty(); at.pop_back()) places.push_back(at);
  }
  return places;
}

TEST(TrainingCheckpoint, AStateWithAValueOfAnotherTypeIsDamaged) {
  const Json sound = sound_state();
  for (const Json::json_pointer& place : places_in(sound)) {
    for (const char* text : {"null", "true", "1.5", "\"text\"", "[[]]", "{\"a\":{}}"}) {
      const Json value = Json::parse(text);
      const bool fits = std::string_view(value.type_name()) == sound[place].type_name();
      if (fits && !value.is_structured() && !sound[place].is_number_integer()) continue;
      Json state = sound;
      state[place] = value;
      EXPECT_THAT(refusal(state.dump()), HasSubstr("expected")) << place.to_string() << " " << text;
    }
  }
}

TEST(TrainingCheckpoint, AStateOfAnOlderVersionIsCheckedWithoutTheNumberOfWindows) {
  Json state = sound_state();
  // A merge patch removes what is null.
  state.merge_patch(
      Json::parse(R"({"data":{"windows":null},"settings":null,"recent_losses":null})"));
  EXPECT_EQ(refusal(state.dump()), "no error");
  state["position"]["offset"] = 99999999999;
  EXPECT_THAT(refusal(state.dump()), HasSubstr("position.offset]"));
}

TEST(TrainingCheckpoint, WhyNotResumableJudgesTheStateAlike) {
  const test::TemporaryFolder root;
  save(root.path(), 7);
  const fs::path folder = root.path() / "step-000007";
  Json state = read_json_file(folder / "trainer.json");
  state["position"]["offset"] = 8;
  write_json_file(folder / "trainer.json", state);
  EXPECT_THAT(why_not_resumable(HfFolder(folder), {}), HasSubstr("position.offset] expected"));
}

TEST(TrainingCheckpoint, FilesThatCannotBeOpenedAreNoDamage) {
  const test::TemporaryFolder root;
  save(root.path(), 7);
  const fs::path folder = root.path() / "step-000007";
  require_readable_files(folder);
  fs::remove(folder / "trainer.json");
  require_readable_files(folder);  // damage, which others find
  fs::create_symlink("trainer.json", folder / "trainer.json");
  EXPECT_THROW(require_readable_files(folder), Error);
}

TEST(TrainingCheckpoint, NeedsStepAndTokensToBeWritten) {
  const test::TemporaryFolder root;
  EXPECT_THROW(
      save_training_checkpoint(root.path() / "x", kConfig, {{"step", 1}},
                               {two_specs(), constant(1.0F), constant(2.0F), constant(3.0F)}),
      Error);
  EXPECT_TRUE(fs::is_empty(root.path()));
}

TEST(FindNewestCheckpoint, TakesTheHighestCompleteStep) {
  const test::TemporaryFolder root;
  EXPECT_EQ(find_newest_checkpoint(root.path() / "absent"), std::nullopt);
  EXPECT_EQ(find_newest_checkpoint(root.path()), std::nullopt);
  save(root.path(), 9);
  save(root.path(), 1000000);  // sorts before step-000009 as text with more digits
  save(root.path(), 200);
  fs::create_directories(root.path() / "step-2000000.partial");
  fs::create_directories(root.path() / "step-3000000x");
  fs::create_directories(root.path() / "step--5");
  fs::create_directories(root.path() / "step-");
  EXPECT_EQ(find_newest_checkpoint(root.path()), root.path() / "step-1000000");
  fs::remove(root.path() / "step-1000000" / "optimizer.safetensors");
  EXPECT_EQ(find_newest_checkpoint(root.path()), root.path() / "step-000200");
}

TEST(StepFolders, AreListedFromTheHighestStepWhetherCompleteOrNot) {
  const test::TemporaryFolder root;
  EXPECT_THAT(step_folders(root.path() / "absent"), testing::IsEmpty());
  for (const int step : {9, 1000000, 200}) save(root.path(), step);
  fs::create_directories(root.path() / "step-000300");
  fs::create_directories(root.path() / "step-000400.partial");
  EXPECT_THAT(step_folders(root.path()),
              testing::ElementsAre(root.path() / "step-1000000", root.path() / "step-000300",
                                   root.path() / "step-000200", root.path() / "step-000009"));
}

TEST(StepFolders, AreFoundBesideWhatCannotBeExamined) {
  const test::TemporaryFolder root;
  save(root.path(), 9);
  for (const char* name : {"loop", "step-000010.partial", "earlier-1"}) {
    fs::create_symlink(name, root.path() / name);  // leads to itself
  }
  EXPECT_THAT(step_folders(root.path()), testing::ElementsAre(root.path() / "step-000009"));
  prune_checkpoints(root.path(), 9, 1);
  EXPECT_EQ(set_steps_aside(root.path()), (root.path() / "earlier-2").string());
  fs::create_symlink("step-000010", root.path() / "step-000010");
  EXPECT_THROW(static_cast<void>(step_folders(root.path())), Error) << "it may be the newest";
}

TEST(MissingFile, NamesWhatACheckpointLacks) {
  const test::TemporaryFolder root;
  save(root.path(), 1);
  const fs::path folder = root.path() / "step-000001";
  EXPECT_EQ(missing_file(folder), "");
  fs::rename(folder / "model.safetensors", folder / "model.safetensors.index.json");
  EXPECT_EQ(missing_file(folder), "") << "shards";
  fs::remove(folder / "model.safetensors.index.json");
  EXPECT_EQ(missing_file(folder), "model.safetensors");
  fs::remove(folder / "config.json");
  EXPECT_EQ(missing_file(folder), "config.json");
}

TEST(ResolveCheckpoint, TakesTheNewestOfARunAndSaysSo) {
  const test::TemporaryFolder root;
  EXPECT_THROW((void)resolve_checkpoint(root.path() / "absent"), Error);
  EXPECT_THROW((void)resolve_checkpoint(root.file("weights.safetensors", "")), Error);
  EXPECT_EQ(resolve_checkpoint(root.path()), root.path()) << "no checkpoints";
  for (const int step : {2, 1}) save(root.path(), step);
  testing::internal::CaptureStderr();
  EXPECT_EQ(resolve_checkpoint(root.path()), root.path() / "step-000002");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("step-000002\n"));
}

TEST(ResolveNewestStep, IsTheNewestWhateverItLacks) {
  const test::TemporaryFolder root;
  for (const int step : {1, 2}) save(root.path(), step);
  fs::remove(root.path() / "step-000002" / "optimizer.safetensors");
  EXPECT_EQ(resolve_newest_step(root.path()), root.path() / "step-000002");
  EXPECT_EQ(resolve_checkpoint(root.path()), root.path() / "step-000001");
  EXPECT_EQ(resolve_newest_step(root.path() / "step-000001"), root.path() / "step-000001");
}

TEST(IsOfRun, AsksForItsNameHoweverItIsWritten) {
  const test::TemporaryFolder root;
  const fs::path step = root.path() / "step-000003";
  fs::create_directories(step / "sub");
  fs::create_directory_symlink(step, root.path() / "latest");
  for (const char* path :
       {"step-000003", "step-000003/", "./step-000003/.", "latest", "step-000003/sub/.."}) {
    EXPECT_TRUE(is_of_run(root.path() / path)) << path;
  }
  fs::create_directory(root.path() / "step-3");
  EXPECT_FALSE(is_of_run(root.path() / "step-3")) << "a run writes six digits";
  static_cast<void>(root.file("step-3/trainer.json", "{}"));
  EXPECT_TRUE(is_of_run(root.path() / "step-3"));
}

TEST(ResolveCheckpoint, TakesAFolderThatIsACheckpointItself) {
  const test::TemporaryFolder root;
  save(root.path(), 1);
  const fs::path folder = root.path() / "step-000001";
  save(folder, 7);  // a run that was told to save there
  EXPECT_EQ(resolve_checkpoint(folder), folder);
}

std::vector<std::string> names_in(const fs::path& root) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(root)) names.push_back(entry.path().filename());
  return names;
}

TEST(PruneCheckpoints, KeepsTheNewestAndRemovesHalfWrittenOnes) {
  const test::TemporaryFolder root;
  for (const int step : {1, 2, 3, 4}) save(root.path(), step);
  fs::create_directories(root.path() / "step-000005.partial");
  prune_checkpoints(root.path(), 4, 2);
  EXPECT_THAT(names_in(root.path()), testing::UnorderedElementsAre("step-000003", "step-000004"));
  EXPECT_THROW(prune_checkpoints(root.path(), 4, 0), Error);
}

TEST(PruneCheckpoints, LeavesAloneWhatNoRunWrote) {
  const test::TemporaryFolder root;
  for (const int step : {1, 2, 3, 4}) save(root.path(), step);
  fs::rename(root.path() / "step-000002", root.path() / "step-2");
  fs::create_directories(root.path() / "elsewhere");
  fs::create_directory_symlink("elsewhere", root.path() / "step-000000");
  fs::create_directories(root.path() / "other.partial");
  fs::create_directories(root.path() / "step-000002.bak");
  std::ofstream(root.path() / "step-000001" / "notes.txt") << "keep me";
  const std::vector<std::string> before = names_in(root.path());
  fs::create_directories(root.path() / "earlier-1");
  save(root.path() / "earlier-1", 1);
  prune_checkpoints(root.path(), 4, 1);
  EXPECT_THAT(
      names_in(root.path()),
      testing::UnorderedElementsAre("elsewhere", "earlier-1", "other.partial", "step-000000",
                                    "step-000001", "step-000002.bak", "step-000004", "step-2"));
  EXPECT_THAT(names_in(root.path() / "earlier-1"), testing::UnorderedElementsAre("step-000001"));
}

TEST(PruneCheckpoints, CountsFromTheStepSavedLastNotFromLaterOnes) {
  const test::TemporaryFolder root;
  for (const int step : {1, 2, 3, 9}) save(root.path(), step);  // a run went back from step 9
  prune_checkpoints(root.path(), 3, 1);
  EXPECT_THAT(names_in(root.path()), testing::UnorderedElementsAre("step-000003", "step-000009"));
}

TEST(PruneCheckpoints, AnIncompleteOneIsNotAmongThoseKept) {
  const test::TemporaryFolder root;
  for (const int step : {1, 2, 3, 4}) save(root.path(), step);
  for (const int step : {1, 3}) fs::remove(step_folder(root.path(), step) / "config.json");
  prune_checkpoints(root.path(), 4, 2);
  EXPECT_THAT(names_in(root.path()),
              testing::UnorderedElementsAre("step-000002", "step-000003", "step-000004"));
}

TEST(PruneCheckpoints, WarnsOfWhatItCannotRemove) {
  const test::TemporaryFolder root;
  for (const int step : {1, 2, 3}) save(root.path(), step);
  fs::permissions(root.path(), fs::perms{0555});
  constexpr uid_t kNobody = 65534;
  const bool is_root = ::geteuid() == 0;
  if (is_root) ::setfsuid(kNobody);  // root may do everything
  testing::internal::CaptureStderr();
  prune_checkpoints(root.path(), 3, 1);
  const std::string log = testing::internal::GetCapturedStderr();
  if (is_root) ::setfsuid(0);
  fs::permissions(root.path(), fs::perms::owner_all);
  EXPECT_THAT(names_in(root.path()), testing::SizeIs(3));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
  EXPECT_THAT(
      log, HasSubstr("step-000002] cannot remove the checkpoint: Permission denied; it stays\n"));
}

}  // namespace
}  // namespace moestro::checkpoint
