#include "moestro/cli/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "moestro/core/error.h"

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
