#include "moestro/cli/command.h"

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
  EXPECT_THAT(error_of({"train"}), HasSubstr("RUN.toml is required; see moestro train --help"));
  EXPECT_THAT(error_of({"verify"}), HasSubstr("expected a checkpoint or --against DIR"));
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
