#include "moestro/core/error_context.h"

#include <gtest/gtest.h>

#include <string>

namespace moestro {
namespace {

/// What an error says after it has passed through the context "run.toml:4 data.text".
std::string message_of(const Error& error) {
  try {
    in_context("run.toml:4 data.text", [&] { throw error; });
  } catch (const Error& caught) {
    EXPECT_EQ(caught.kind(), error.kind());
    return caught.what();
  }
  return "no error";
}

TEST(ErrorContext, PutsThePlaceThatLedToTheErrorFirst) {
  EXPECT_EQ(message_of(input_error("a.txt:3", "expected [x] y, got z")),
            "[run.toml:4 data.text] a.txt:3: expected [x] y, got z");
  EXPECT_EQ(message_of(input_error("", "expected a b")), "[run.toml:4 data.text] expected a b");
}

TEST(ErrorContext, SaysNoPlaceTwice) {
  for (const char* place : {"data.text", "run.toml:4 data.text"}) {
    EXPECT_EQ(message_of(input_error(place, "expected text")),
              "[run.toml:4 data.text] expected text");
  }
}

TEST(ErrorContext, NamesWhatAskedForTheInfeasible) {
  EXPECT_EQ(message_of(Error(ErrorKind::infeasible, "a.json", "expected a model that fits")),
            "[run.toml:4 data.text] a.json: expected a model that fits");
}

TEST(ErrorContext, LeavesWhatNoRunFileCanMend) {
  const Error error = io_error("a.txt", "cannot be read");
  EXPECT_EQ(message_of(error), error.what());
}

TEST(ErrorContext, IsTransparentToResults) {
  EXPECT_EQ(in_context("where", [] { return 7; }), 7);
}

}  // namespace
}  // namespace moestro
