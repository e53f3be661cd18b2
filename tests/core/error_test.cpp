#include "moestro/core/error.h"

#include <gtest/gtest.h>

#include <string>

namespace moestro {
namespace {

TEST(Error, PutsThePlaceInBrackets) {
  const Error error = input_error("run.toml:7 train.steps", "expected {}, got {}", 1, 0);
  EXPECT_STREQ(error.what(), "[run.toml:7 train.steps] expected 1, got 0");
  EXPECT_EQ(error.kind(), ErrorKind::input);
}

TEST(Error, LeavesAnEmptyPlaceOut) {
  EXPECT_STREQ(Error(ErrorKind::io, "", "disk full").what(), "disk full");
}

TEST(Error, KeepsItsKind) {
  EXPECT_EQ(io_error("x", "y").kind(), ErrorKind::io);
}

TEST(Check, PassesWhatHolds) {
  EXPECT_NO_THROW(MOESTRO_CHECK(1 < 2, "never seen"));
}

TEST(Check, ThrowsAnInternalErrorWithConditionAndMessage) {
  try {
    MOESTRO_CHECK(2 < 1, "value {}", 42);
    FAIL() << "did not throw";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::internal);
    const std::string what = error.what();
    EXPECT_NE(what.find("2 < 1"), std::string::npos) << what;
    EXPECT_NE(what.find("value 42"), std::string::npos) << what;
    EXPECT_NE(what.find("error_test.cpp"), std::string::npos) << what;
  }
}

}  // namespace
}  // namespace moestro
