// What a run is refused with names the line of the run file that asks for what cannot be had.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "moestro/core/error.h"
#include "moestro/core/file.h"
#include "moestro/runtime/trainer.h"
#include "tests/runtime/training_test_support.h"

namespace moestro::runtime {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class RunErrors : public testing::Test {
 protected:
  RunErrors() { static_cast<void>(tiny_run(folder_.path())); }

  /// The error of a run of these lines, which begin at line 1, with paths relative to the folder.
  std::string error_of(const std::string& lines, const std::vector<std::string>& overrides = {}) {
    const std::filesystem::path file = folder_.file("run.toml", lines);
    testing::internal::CaptureStderr();
    std::string message = "no error";
    try {
      static_cast<void>(train(read_run_config(file, overrides), {}));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input);
      message = error.what();
    }
    log_ = testing::internal::GetCapturedStderr();
    const std::string folder = folder_.path().string() + "/";
    for (std::size_t at = 0; (at = message.find(folder)) != std::string::npos;) {
      message.erase(at, folder.size());
    }
    return message;
  }

  test::TemporaryFolder folder_;
  std::string log_;
};

constexpr const char* kModel = "model.config = \"config.json\"\n";
constexpr const char* kData = "data.text = \"text.txt\"\n";

TEST_F(RunErrors, NameTheModelThatIsNone) {
  EXPECT_THAT(error_of("model.config = \"nosuch\"\n" + std::string(kData)),
              StartsWith("[run.toml:1 model.config] expected a config.json, a folder"));
  std::filesystem::create_directory(folder_.path() / "bad");
  static_cast<void>(folder_.file("bad/config.json", R"({"model_type": "mixtral"})"));
  EXPECT_THAT(
      error_of("model.config = \"bad\"\n" + std::string(kData)),
      StartsWith("[run.toml:1 model.config] bad/config.json hidden_size: expected a whole"));
  EXPECT_THAT(error_of("model.load = \"absent\"\n" + std::string(kData)),
              StartsWith("[run.toml:1 model.load] absent: expected the folder of a checkpoint"));
  std::filesystem::copy(folder_.path() / "config.json", folder_.path() / "bad",
                        std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(error_of("model.load = \"bad\"\n" + std::string(kData)),
              StartsWith("[run.toml:1 model.load] bad: expected a folder with model.safetensors"));
}

TEST_F(RunErrors, NameTheModelWhoseVocabularyIsTooSmall) {
  std::string json = read_file(folder_.path() / "config.json");
  json.replace(json.find("256"), 3, "100");
  static_cast<void>(folder_.file("config.json", json));
  EXPECT_EQ(error_of(std::string(kModel) + kData),
            "[run.toml:1 model.config] expected a vocabulary of at least 256, the ids of "
            "data.tokenizer = \"byte\", got 100; choose a model with a larger vocab_size");
}

TEST_F(RunErrors, NameTheTextThatCannotBeUsed) {
  EXPECT_THAT(error_of(std::string(kModel) + "data.text = [\"text.txt\", \"absent.txt\"]\n"),
              StartsWith("[run.toml:2 data.text] absent.txt: expected a file, but there is none"));
  EXPECT_THAT(error_of(std::string(kModel) + kData + "data.validation_text = \"absent.txt\"\n"),
              StartsWith("[run.toml:3 data.validation_text] absent.txt: expected a file"));
  static_cast<void>(folder_.file("latin.txt", "a\nb\xE9\n"));
  EXPECT_THAT(error_of(std::string(kModel) + "data.text = \"latin.txt\"\n"),
              StartsWith("[run.toml:2 data.text] latin.txt:2: expected UTF-8 text"));
  EXPECT_EQ(error_of(std::string(kModel) + kData, {"data.text="}),
            "[--set data.text] expected a list of paths, got an empty path; write e.g. text = "
            "[\"a.txt\", \"b.txt\"]");
  EXPECT_THAT(error_of(std::string(kModel) + kData + "data.tokenizer = \"bpe\"\n"),
              StartsWith("[run.toml:3 data.tokenizer] expected a tokenizer, got \"bpe\""));
}

TEST_F(RunErrors, SayOnceThatATextIsTooShort) {
  const std::string lines = std::string(kModel) + kData + "data.seq_len = 50000\n";
  EXPECT_THAT(error_of(lines), StartsWith("[run.toml:2 data.text] expected more tokens than one "
                                          "sequence (data.seq_len = 50000), got"));
  EXPECT_THAT(log_, Not(HasSubstr("data.validation_fraction")));
  static_cast<void>(folder_.file("short.txt", "abc"));
  EXPECT_THAT(error_of(std::string(kModel) + kData + "data.validation_text = \"short.txt\"\n"),
              StartsWith("[run.toml:3 data.validation_text] expected at least one window"));
}

TEST_F(RunErrors, NameTheSettingThatTheModelCannotFollow) {
  EXPECT_THAT(error_of(std::string(kModel) + kData + "balance.bias_update = 0.001\n"),
              StartsWith("[run.toml:3 balance.bias_update] expected a model whose router"));
  EXPECT_THAT(error_of(std::string(kModel) + kData, {"model.config=kimi-k2"}),
              StartsWith("[--set model.config] kimi_k2: this version cannot run the model"));
}

TEST_F(RunErrors, NameTheCheckpointFolderThatCannotBeUsed) {
  const std::string lines =
      std::string(kModel) + kData + "data.seq_len = 19\ntrain.steps = 1\ntrain.global_batch = 1\n";
  EXPECT_THAT(error_of(lines + "checkpoint.folder = \"text.txt\"\n"),
              StartsWith("[run.toml:6 checkpoint.folder] expected a folder that can be written"));
  EXPECT_EQ(error_of(lines + "checkpoint.folder = \"c\"\n"), "no error");
  EXPECT_THAT(error_of(lines + "checkpoint.folder = \"c\"\n", {"data.seq_len=17"}),
              StartsWith("[run.toml:6 checkpoint.folder] c/step-000001: expected data.seq_len = "));
}

TEST_F(RunErrors, AStepThatLearnsNothingIsWarnedAbout) {
  const std::string one =
      "[model]\nconfig = \"config.json\"\n[data]\ntext = [\"text.txt\"]\nseq_len = 19\n"
      "[train]\nsteps = 1\nglobal_batch = 1\n";
  EXPECT_EQ(error_of(one), "no error");
  EXPECT_THAT(log_, HasSubstr("train.steps = 1 trains at min_lr = 0"));
  EXPECT_EQ(error_of(one, {"optimizer.min_lr=1e-4"}), "no error");
  EXPECT_THAT(log_, Not(HasSubstr("nothing is learnt")));
}

}  // namespace
}  // namespace moestro::runtime
