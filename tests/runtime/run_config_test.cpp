#include "moestro/runtime/run_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "moestro/core/error.h"
#include "moestro/core/file.h"
#include "moestro/runtime/verify.h"
#include "tests/core/temporary_folder.h"

namespace moestro::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kMinimal = "[model]\nconfig = \"tiny\"\n[data]\ntext = [\"a.txt\"]\n";

/// Reads a run file of the minimal content and `more`.
RunConfig read(const std::string& more, const std::vector<std::string>& overrides = {}) {
  const test::TemporaryFolder folder;
  return read_run_config(folder.file("run.toml", kMinimal + more), overrides);
}

/// The message, from the file's name on.
std::string error_of(const std::string& more, const std::vector<std::string>& overrides = {}) {
  try {
    static_cast<void>(read(more, overrides));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    const std::string message = error.what();
    const std::size_t name = message.find("run.toml");
    return name == std::string::npos ? message : message.substr(name);
  }
  return "no error";
}

TEST(RunConfig, TakesDefaultsForAllButModelAndText) {
  const RunConfig config = read("");
  EXPECT_EQ(config.model.config, "tiny");
  EXPECT_EQ(config.train.steps, RunConfig().train.steps);
  EXPECT_EQ(config.optimizer.betas, RunConfig().optimizer.betas);
}

TEST(RunConfig, ReadsEverySection) {
  const RunConfig config = read(
      "seq_len = 32\n"
      "[train]\nglobal_batch = 8\nmicro_batch = 2\nshards = 4\ndtype = \"bf16\"\n"
      "recompute = \"layer\"\n"
      "[optimizer]\nbetas = [0.8, 0.9]\nschedule = \"linear\"\n"
      "[balance]\naux_loss = 0.01\n[parallel]\npp = 1\n[checkpoint]\nfolder = \"/c\"\nevery = 5\n"
      "[output]\nmetrics = \"/m\"\n");
  EXPECT_EQ(config.data.seq_len, 32);
  EXPECT_EQ(config.train.dtype, Dtype::bf16);
  EXPECT_EQ(config.train.recompute, Recompute::layer);
  EXPECT_EQ(config.optimizer.betas[0], 0.8);
  EXPECT_EQ(config.optimizer.schedule, LrSchedule::linear);
  EXPECT_EQ(config.balance.aux_loss, 0.01);
  EXPECT_EQ(config.checkpoint.every, 5);
  EXPECT_EQ(config.output.metrics, "/m");
}

TEST(RunConfig, AnchorsPathsAtItsFolder) {
  const test::TemporaryFolder folder;
  const RunConfig config = read_run_config(
      folder.file("run.toml", "[model]\nload = \"ckpt\"\n[data]\ntext = [\"a.txt\"]\n"),
      {"checkpoint.folder=here"});
  EXPECT_EQ(config.model.load, (folder.path() / "ckpt").string());
  EXPECT_THAT(config.data.text, ElementsAre((folder.path() / "a.txt").string()));
  EXPECT_EQ(config.checkpoint.folder, "here");
}

TEST(RunConfig, PrefersAFileOverABuiltInName) {
  const test::TemporaryFolder folder;
  static_cast<void>(folder.file("tiny", "{}"));
  const RunConfig config = read_run_config(folder.file("run.toml", kMinimal), {});
  EXPECT_EQ(config.model.config, (folder.path() / "tiny").string());
}

TEST(RunConfig, NeedsExactlyOneModel) {
  EXPECT_EQ(error_of("", {"model.config="}).substr(0, 41),
            "[--set model.config] expected a model, go");
  EXPECT_THAT(error_of("[model.x]"), HasSubstr("expected a key of [model], got \"x\""));
  EXPECT_EQ(error_of("", {"model.load=x"}),
            "[--set model.load] expected one of model.config and model.load, got both; remove one");
}

TEST(RunConfig, NeedsText) {
  EXPECT_THAT(error_of("", {"data.text=[]"}),
              HasSubstr("expected at least one text file, got none"));
}

TEST(RunConfig, SuggestsTheNearestValidBatch) {
  EXPECT_EQ(
      error_of("[train]\nglobal_batch = 16\nshards = 3\nmicro_batch = 2\n"),
      "run.toml:6 train.global_batch] expected a multiple of micro_batch * shards = 2 * 3 = 6, "
      "got 16; write 12 or 18");
  EXPECT_THAT(error_of("[train]\nglobal_batch = 4\nshards = 6\n"), HasSubstr("got 4; write 6"));
  EXPECT_EQ(error_of("[train]\nglobal_batch = 12\nshards = 3\nmicro_batch = 2\n"), "no error");
}

TEST(RunConfig, TrainsInOneProcess) {
  for (const char* key : {"pp", "chunks", "dp", "ep"}) {
    EXPECT_THAT(error_of(std::string("[parallel]\n") + key + " = 4\n"),
                HasSubstr(std::string("parallel.") + key +
                          "] expected 1, got 4; this version trains in one process"));
  }
}

TEST(RunConfig, AcceptsWhatMeansNothingInOneProcess) {
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "interleaved-zero-bubble", "zb-h1",
                               "zb-h2", "zero-bubble-v", "dualpipe", "dualpipe-v", "af-pipe"}) {
    EXPECT_EQ(error_of("[balance]\ncapacity_factor = 0\n[parallel]\nlayout = \"colocated\"\n"
                       "chunks = 1\nall_to_all = \"auto\"\nschedule = \"" +
                       std::string(schedule) + "\"\n[output]\ntrace = \"\"\n"),
              "no error");
  }
  EXPECT_THAT(error_of("[parallel]\nschedule = \"interleave\"\n"),
              HasSubstr("did you mean \"interleaved\"?"));
  EXPECT_THAT(error_of("[parallel]\nlayout = \"collocated\"\n"),
              HasSubstr("did you mean \"colocated\"?"));
}

TEST(RunConfig, RefusesWhatThisVersionCannotDo) {
  EXPECT_EQ(error_of("[parallel]\nlayout = \"disaggregated\"\n"),
            "run.toml:6 parallel.layout] expected \"colocated\", got \"disaggregated\"; this "
            "version trains in one process");
  EXPECT_THAT(error_of("[parallel]\nall_to_all = \"halo\"\n"),
              HasSubstr("all_to_all] expected \"auto\", got \"halo\"; this version"));
  EXPECT_THAT(error_of("[balance]\ncapacity_factor = 1.25\n"),
              HasSubstr("capacity_factor] expected 0, got 1.25; this version drops no tokens"));
  EXPECT_THAT(error_of("[output]\ntrace = \"/t\"\n"),
              HasSubstr("output.trace] expected \"\", got \"/t\"; this version writes no trace"));
}

TEST(RunConfig, RejectsValuesThatDoNotFitTogether) {
  EXPECT_THAT(error_of("[optimizer]\nlr = 0.25\nmin_lr = 0.5\n"),
              HasSubstr("at most lr = 0.25, got 0.5"));
  EXPECT_THAT(error_of("[optimizer]\nmin_lr = 1e2\n", {"optimizer.lr=5.0e-1"}),
              HasSubstr("at most lr = 5.0e-1, got 1e2;"));
  EXPECT_THAT(error_of("[train]\nglobal_batch = 1_7\nshards = 2\n"), HasSubstr("got 1_7;"));
  EXPECT_THAT(error_of("[balance]\ncapacity_factor = 2.0\n"), HasSubstr("expected 0, got 2.0;"));
  EXPECT_THAT(error_of("[checkpoint]\nevery = 5\n"), HasSubstr("name a folder"));
  EXPECT_THAT(error_of("validation_fraction = 0.0\n[train]\nvalidate_every = 5\n"),
              HasSubstr("expected 0 without held-out text"));
}

TEST(RunConfig, RejectsAMetricsFileAmongTheCheckpoints) {
  const std::string folder = "[checkpoint]\nfolder = \"a/c\"\n[output]\nmetrics = ";
  for (const char* metrics : {"a/c/step-000003", "a/c/step-000003/m", "a/c/./step-3/../step-4/m",
                              "a/c/.moestro.lock", "a/c/.m", "a/c/moestro", "a/c", "a/c/", "a"}) {
    const std::string message = error_of(fmt::format("{}\"{}\"", folder, metrics));
    EXPECT_THAT(message, HasSubstr("output.metrics] expected a file outside the checkpoints"))
        << metrics;
  }
  for (const char* metrics : {"a/c/metrics.jsonl", "step-000003", "a/.m", "moestro", "a/m/c",
                              "a/c/logs/moestro", "a/c/step-3/../../m", "/dev/stderr"}) {
    EXPECT_EQ(error_of(fmt::format("{}\"{}\"", folder, metrics)), "no error") << metrics;
  }
}

TEST(RunConfig, RejectsAMetricsFileAmongTheCheckpointsBehindLinks) {
  const test::TemporaryFolder folder;
  const std::filesystem::path root = folder.path() / "c";
  std::filesystem::create_directories(root / "step-000003");
  std::filesystem::create_directory_symlink(root / "step-000003", folder.path() / "step");
  std::filesystem::create_directory_symlink(root, folder.path() / "run");
  const auto error_with = [&](const std::string& metrics, const std::string& checkpoints) {
    return error_of("", {"checkpoint.folder=" + (folder.path() / checkpoints).string(),
                         "output.metrics=" + (folder.path() / metrics).string()});
  };
  for (const char* metrics : {"step/m", "run/step-000004", "run"}) {
    EXPECT_THAT(error_with(metrics, "c"), HasSubstr("outside the checkpoints")) << metrics;
  }
  std::filesystem::create_symlink("c/.m", folder.path() / "absent");
  EXPECT_THAT(error_with("absent", "c"), HasSubstr("outside the checkpoints"));
  EXPECT_THAT(error_with("c/.m", "run"), HasSubstr("outside the checkpoints"));
  EXPECT_THAT(error_with("run/.m", "run/"), HasSubstr("outside the checkpoints"));
  EXPECT_EQ(error_with("run/m", "c"), "no error");
}

TEST(RunConfig, RejectsValuesOutOfRange) {
  for (const char* line :
       {"[train]\nsteps = 0", "[train]\nglobal_batch = 99999999999", "[train]\nthreads = -1",
        "[optimizer]\nlr = -1.0", "[optimizer]\nbetas = [0.9, 1.0]", "[optimizer]\neps = 0.0",
        "[balance]\naux_loss = -0.1", "seq_len = 0", "validation_fraction = 1.0"}) {
    EXPECT_THAT(error_of(line), HasSubstr("expected a")) << line;
  }
}

/// "[section]\nkey = value" -> what its error begins with.
std::string place_of(const std::string& line) {
  const std::size_t name = line.find('\n') + 1;
  return "run.toml:6 " + line.substr(1, name - 3) + "." +
         line.substr(name, line.find(' ', name) - name) + "] expected";
}

TEST(RunConfig, RejectsNumbersThatF32ArithmeticCannotUse) {
  for (const char* line :
       {"[optimizer]\neps = 1e-50", "[optimizer]\neps = 1e10", "[optimizer]\nlr = 1e39",
        "[optimizer]\nlr = 1e-50", "[optimizer]\nweight_decay = 1e38", "[optimizer]\nclip = 1e-50",
        "[optimizer]\nbetas = [0.9, 0.99999999999]", "[optimizer]\nmin_lr = 1e-50",
        "[balance]\naux_loss = 1e38", "[balance]\nz_loss = 1e38", "[balance]\nz_loss = 1e-50",
        "[balance]\nbias_update = 1e38"}) {
    EXPECT_THAT(error_of(line), StartsWith(place_of(line))) << line;
  }
  EXPECT_EQ(error_of("[optimizer]\nlr = 0.0\nclip = 0\nweight_decay = 0\neps = 1e-16\n"
                     "betas = [0.0, 0.9999]\n[balance]\nz_loss = 1e-5\naux_loss = 10\n"),
            "no error");
}

TEST(VerifyOptions, AreReadFromOverrides) {
  const VerifyOptions options =
      read_verify_options({"train.dtype=bf16", "train.recompute=layer", "train.threads=2"});
  EXPECT_EQ(options.dtype, Dtype::bf16);
  EXPECT_EQ(options.recompute, Recompute::layer);
  EXPECT_EQ(options.threads, 2);
  EXPECT_THROW(static_cast<void>(read_verify_options({"train.steps=2"})), Error);
}

TEST(OptionsPage, SaysWhatIsAcceptedNotWhatMayCome) {
  for (const char* promise : {"for now", "not yet", "yet to"}) {
    EXPECT_THAT(describe_run_options(), Not(HasSubstr(promise)));
  }
}

// MOESTRO_UPDATE_GOLDEN=1 rewrites the page.
TEST(OptionsPage, IsUpToDate) {
  const std::string path = std::string(MOESTRO_SOURCE_DIR) + "/docs/options.md";
  if (std::getenv("MOESTRO_UPDATE_GOLDEN") != nullptr) {
    write_file_atomically(path, describe_run_options());
  }
  EXPECT_EQ(read_file(path), describe_run_options())
      << "run the tests with MOESTRO_UPDATE_GOLDEN=1 and commit docs/options.md";
}

}  // namespace
}  // namespace moestro::runtime
