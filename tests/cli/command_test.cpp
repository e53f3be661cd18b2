#include "moestro/cli/command.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "moestro/cli/options.h"
#include "moestro/core/error.h"
#include "moestro/core/json.h"
#include "moestro/runtime/trainer.h"
#include "tests/core/temporary_folder.h"

namespace moestro::cli {
namespace {

using ::testing::HasSubstr;

std::string error_of(const Arguments& arguments) {
  try {
    static_cast<void>(run(arguments));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
  return "no error";
}

std::string output_of(const Arguments& arguments) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(run(arguments), kDone);
  return testing::internal::GetCapturedStdout();
}

TEST(Command, SuggestsTheNearestVerb) {
  EXPECT_THAT(error_of({"trian"}), HasSubstr("did you mean \"train\"?"));
  EXPECT_THAT(error_of({"xyzzy"}), HasSubstr("there are: describe, train"));
}

TEST(Command, EveryVerbHasHelp) {
  for (const Command& command : commands()) {
    EXPECT_THAT(output_of({command.verb, "--help"}),
                HasSubstr(std::string("moestro ") + command.verb))
        << command.verb;
    EXPECT_THAT(output_of({"--help"}), HasSubstr(command.verb));
  }
}

TEST(Command, EveryVerbHasTheCommonOptions) {
  for (const Command& command : commands()) {
    for (const char* option : {"--json", "--quiet", "--verbose"}) {
      EXPECT_THAT(output_of({command.verb, "--help"}), HasSubstr(option)) << command.verb;
    }
  }
}

TEST(Command, NamesTheNearestOption) {
  EXPECT_THAT(error_of({"train", "x", "--jsno"}), HasSubstr("did you mean --json?"));
  EXPECT_THAT(error_of({"train", "x", "y"}),
              HasSubstr("[moestro train] expected no argument \"y\""));
}

TEST(Command, ReportsMissingArguments) {
  EXPECT_EQ(error_of({"train"}),
            "[moestro train] expected RUN.toml, got none; see moestro train --help");
  EXPECT_THAT(error_of({"verify"}), HasSubstr("expected a checkpoint or --against DIR"));
}

TEST(Command, NamesTheOptionOfAWrongNumber) {
  for (const char* seq : {"8k", "1e4", "-5", "0", "1.5", "", "99999999999999999999", "4096 "}) {
    EXPECT_EQ(error_of({"describe", "tiny", "--seq", seq}),
              fmt::format("[--seq] expected a whole number >= 1 and <= 1099511627776, got \"{}\"; "
                          "write e.g. --seq 4096",
                          seq));
  }
  for (const char* threads : {"0", "x", "1025", "", ",2"}) {
    EXPECT_EQ(error_of({"bench", "gemm", "--threads", fmt::format("1,{}", threads)}),
              fmt::format("[--threads] expected a whole number >= 1 and <= 1024, got \"{}\"; write "
                          "e.g. --threads 2",
                          std::string_view(threads).starts_with(',') ? "" : threads));
  }
}

TEST(Command, NamesTheOptionWhoseRuleIsBroken) {
  EXPECT_EQ(error_of({"describe", "tiny", "--seq"}),
            "[--seq] expected a value, got none; see moestro describe --help");
  EXPECT_EQ(error_of({"train", "run.toml", "--set", "a.b=c", "--set"}),
            "[--set] expected a value, got none; see moestro train --help");
  EXPECT_EQ(error_of({"describe", "tiny", "--seq", "1", "--seq", "2"}),
            "[--seq] expected one value, got 2; drop all but one");
  EXPECT_EQ(error_of({"verify", "--set", "a.b=c"}),
            "[--set] expected --against, too, got none; see moestro verify --help");
  EXPECT_EQ(error_of({"verify", "a", "--against", "b"}),
            "[CHECKPOINT] expected no --against beside it, got both; drop one");
  EXPECT_EQ(error_of({"train", "run.toml", "--json=maybe"}),
            "[--json] expected no value, got \"maybe\"; drop it");
}

TEST(Command, QuietKeepsTheResult) {
  for (const Command& command : commands()) {
    EXPECT_THAT(output_of({command.verb, "--help"}), HasSubstr("print the result")) << command.verb;
  }
  EXPECT_THAT(output_of({"describe", "tiny", "--quiet"}), HasSubstr("experts"));
}

TEST(Command, CannotBeQuietAndVerbose) {
  EXPECT_THAT(error_of({"bench", "gemm", "--quiet", "--verbose"}), HasSubstr("got both"));
}

TEST(CommandDeathTest, VerifyFailsWhereTheModelDiffersFromItsReference) {
  const std::filesystem::path reference =
      std::filesystem::path(MOESTRO_SOURCE_DIR) / "tests" / "golden" / "mixtral";
  if (!runtime::is_available()) GTEST_SKIP() << "needs training";
  const test::TemporaryFolder folder;
  for (const auto& file : std::filesystem::directory_iterator(reference)) {
    std::filesystem::copy_file(file.path(), folder.path() / file.path().filename());
  }
  // In a process of its own: the threads it starts would take the signals of other tests.
  const auto verify_and_exit = [&] {
    if (std::freopen("/dev/null", "w", stdout) == nullptr) std::exit(99);
    std::exit(run({"verify", "--against", folder.path().string()}));
  };
  EXPECT_EXIT(verify_and_exit(), testing::ExitedWithCode(kDone), "");
  Json steps = read_json_file(folder.path() / "steps.json");
  steps["losses"][0] = steps["losses"][0].get<double>() + 1.0;
  std::ofstream(folder.path() / "steps.json") << steps.dump();
  EXPECT_EXIT(verify_and_exit(), testing::ExitedWithCode(kFailed), "");
}

TEST(Command, TakesOneValuePerSet) {
  // The run file after --set is no second value of it.
  EXPECT_THAT(error_of({"train", "--set", "train.steps=1", "absent.toml"}),
              HasSubstr("absent.toml"));
}

TEST(Command, PrintsItsVersion) {
  EXPECT_THAT(output_of({"--version"}), HasSubstr("moestro 0."));
}

}  // namespace
}  // namespace moestro::cli
