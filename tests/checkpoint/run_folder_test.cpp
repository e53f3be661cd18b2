#include "moestro/checkpoint/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "moestro/core/error.h"
#include "tests/core/temporary_folder.h"

namespace moestro::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// The bad input that a call finds.
std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
  return "no error";
}

std::string refusal_of_room(const fs::path& root, const StepsToSave& steps) {
  return refusal([&] { require_room(root, steps); });
}

TEST(RunFolder, IsCreatedAndUsedByOneRunAtATime) {
  const test::TemporaryFolder folder;
  const fs::path root = folder.path() / "a" / "b";
  prepare_run_folder(root);
  for (int i = 0; i < 2; ++i) {
    const FileLock lock = lock_run_folder(root);
    EXPECT_THAT(refusal([&] { static_cast<void>(lock_run_folder(root)); }),
                HasSubstr("[checkpoint.folder] expected a folder that no other run is using"));
  }
  EXPECT_TRUE(fs::is_empty(root));
}

TEST(RunFolder, IsNeitherTheRootNorACheckpoint) {
  const test::TemporaryFolder folder;
  for (const char* root : {"/", "//", "/tmp/.."}) {
    EXPECT_THAT(refusal([&] { prepare_run_folder(root); }), HasSubstr("the root of the file"));
  }
  static_cast<void>(folder.file("config.json", "{}"));
  EXPECT_EQ(refusal([&] { prepare_run_folder(folder.path()); }), "no error") << "a model's folder";
  static_cast<void>(folder.file("model.safetensors", ""));
  EXPECT_THAT(refusal([&] { prepare_run_folder(folder.path()); }),
              HasSubstr("which is itself a checkpoint (it holds model.safetensors)"));
}

TEST(RunFolder, SaysWhatElseIsInAFolderWithoutSteps) {
  const test::TemporaryFolder folder;
  static_cast<void>(folder.file("notes.txt", ""));
  static_cast<void>(folder.file(".hidden", ""));
  testing::internal::CaptureStderr();
  prepare_run_folder(folder.path());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("holds 1 other file"));
  fs::create_directory(folder.path() / "step-000001");
  testing::internal::CaptureStderr();
  prepare_run_folder(folder.path());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(RequireRoom, FindsWhatIsInThePlaceOfAStep) {
  for (const char* name : {"step-000003", "step-000003.partial", "step-000003.replaced.partial"}) {
    const test::TemporaryFolder folder;
    static_cast<void>(folder.file(name, ""));
    EXPECT_THAT(refusal_of_room(folder.path(), {.first = 1, .last = 3}),
                HasSubstr(std::string(name) + "] expected a folder or nothing, got a file"));
    EXPECT_EQ(refusal_of_room(folder.path(), {.first = 1, .last = 2}), "no error");
    EXPECT_EQ(refusal_of_room(folder.path(), {.first = 4, .last = 9}), "no error");
  }
}

TEST(RequireRoom, FindsWhatNoCheckpointHas) {
  const test::TemporaryFolder folder;
  fs::create_directories(folder.path() / "step-000003" / "optimizer.safetensors");
  const StepsToSave steps{.first = 3, .last = 3};
  EXPECT_THAT(refusal_of_room(folder.path(), steps), HasSubstr("a folder that holds optimizer"));
  EXPECT_EQ(refusal_of_room(folder.path(), {.first = 3, .last = 3, .sets_aside = true}),
            "no error");
  fs::remove(folder.path() / "step-000003" / "optimizer.safetensors");
  static_cast<void>(folder.file("step-000003/trainer.json", "{}"));
  EXPECT_EQ(refusal_of_room(folder.path(), steps), "no error") << "a damaged checkpoint";
}

TEST(RequireRoom, LeavesWhatNoStepIsCalled) {
  const test::TemporaryFolder folder;
  for (const char* name : {"step-3", "step-000003.txt", "step-", "notes"}) {
    static_cast<void>(folder.file(name, ""));
  }
  EXPECT_EQ(refusal_of_room(folder.path(), {.first = 1, .last = 9}), "no error");
}

}  // namespace
}  // namespace moestro::checkpoint
