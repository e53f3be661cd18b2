#include "moestro/core/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "moestro/core/error.h"
#include "moestro/core/file.h"
#include "moestro/core/rng.h"
#include "tests/core/temporary_folder.h"

namespace moestro {
namespace {

using ::testing::HasSubstr;

std::string error_of(std::string_view text) {
  try {
    static_cast<void>(parse_json(text, "f.json"));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
  return "no error";
}

TEST(Json, KeepsTheOrderOfKeys) {
  EXPECT_EQ(parse_json(R"({"b":1,"a":[true,null,"x"]})", "").dump(),
            R"({"b":1,"a":[true,null,"x"]})");
}

TEST(Json, ReadsWhatPythonWritesForNonFiniteNumbers) {
  const Json json =
      parse_json(R"({"a": NaN, "b": [-Infinity, Infinity], "c": "NaN Infinity"})", "");
  EXPECT_TRUE(std::isnan(json["a"].get<double>()));
  EXPECT_EQ(json["b"][0].get<double>(), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(json["b"][1].get<double>(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(json["c"], "NaN Infinity");
}

TEST(Json, ReadsWhatTransformersWritesForNonFiniteNumbers) {
  const Json json = parse_json(R"({"limit": [0.0, {"__float__": "Infinity"}]})", "");
  EXPECT_EQ(json["limit"][1].get<double>(), std::numeric_limits<double>::infinity());
}

TEST(Json, NamesFileLineAndColumnOfAnError) {
  EXPECT_THAT(error_of("{\n  \"a\": ,\n}"), HasSubstr("[f.json]"));
  EXPECT_THAT(error_of("{\n  \"a\": ,\n}"), HasSubstr("line 2, column 8"));
  EXPECT_THAT(error_of(""), HasSubstr("expected JSON"));
}

TEST(Json, RejectsDuplicateKeys) {
  EXPECT_THAT(error_of(R"({"a":1,"a":2})"), HasSubstr("\"a\" occurs twice"));
  for (const char* nothing : {"", " \n\t"}) {
    EXPECT_THAT(error_of(nothing), HasSubstr("expected JSON, got an empty file; "));
  }
  EXPECT_THAT(error_of("{\n\"a\": \"\xC3\x28\"}"),
              HasSubstr("expected JSON in UTF-8, got other bytes at line 2, column 7; save it"));
  EXPECT_EQ(error_of(R"({"a":{"x":1},"b":{"x":2}})"), "no error");
}

TEST(Json, RejectsDeepNesting) {
  EXPECT_THAT(error_of(std::string(1000000, '[')), HasSubstr("nested at most"));
  EXPECT_EQ(error_of(std::string(100, '[') + std::string(100, ']')), "no error");
}

TEST(Json, NumbersTooLargeAreNamed) {
  EXPECT_THAT(error_of("{\"a\":\n 1e400}"), HasSubstr("got 1e400 before line 2, column 6"));
}

TEST(Json, ShowsValuesAsTheDocumentWritesThem) {
  const char* const texts[] = {"2.0",  "1E2",
                               "1.10", "99999999999999999999",
                               "null", "[1e5,{\"a\":[2.50,true]},\"x\"]",
                               "{}",   "18446744073709551615"};
  for (const char* text : texts) {
    NumberTexts numbers;
    const Json json = parse_json(text, "", numbers);
    EXPECT_EQ(shown(json, numbers, 60), text);
  }
  EXPECT_EQ(shown(parse_json("[NaN, -Infinity, Infinity]", ""), {}, 60),
            "[NaN,-Infinity,Infinity]");
  EXPECT_EQ(shown(parse_json("2.0", ""), {}, 60), "2.0");
}

TEST(Json, ShowsTheBeginningOfLongValues) {
  const Json list(1'000'000, "abc");
  EXPECT_EQ(shown(list, {}, 20), "[\"abc\",\"abc\",\"abc\",\"…");
}

TEST(Json, SurvivesMutatedText) {
  const std::string valid = R"({"a": [1, -2.5e3, true, null], "b": {"c": "d\u00e9\n"}, "e": NaN})";
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Rng rng(seed, "mutate");
    std::string text = valid;
    for (std::uint64_t edits = 1 + rng.below(4); edits > 0; --edits) {
      text[rng.below(text.size())] = static_cast<char>(rng.below(256));
    }
    static_cast<void>(error_of(text));  // anything but an input error would escape
  }
}

TEST(Json, WritesAFileThatReadsBack) {
  const test::TemporaryFolder folder;
  const Json json = parse_json(R"({"z":1,"a":{"b":[0.1,"ü"]}})", "");
  write_json_file(folder.path() / "x.json", json);
  EXPECT_EQ(read_json_file(folder.path() / "x.json"), json);
  EXPECT_EQ(read_file(folder.path() / "x.json").back(), '\n');
}

}  // namespace
}  // namespace moestro
