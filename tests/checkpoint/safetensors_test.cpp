#include "moestro/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "moestro/core/error.h"
#include "tests/checkpoint/safetensors_bytes.h"
#include "tests/core/temporary_folder.h"

namespace moestro::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

SafetensorsHeader parse(const std::string& bytes) {
  return parse_safetensors(std::as_bytes(std::span(bytes)), "m.safetensors");
}

/// The message with which a file is refused.
std::string refusal(const std::string& bytes) {
  try {
    (void)parse(bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input) << error.what();
    return error.what();
  }
  return "accepted";
}

/// The message with which a file with this header is refused.
std::string refusal(const std::string& header, std::size_t data_bytes) {
  return refusal(safetensors_bytes(header, data_bytes));
}

TEST(Safetensors, ReadsTensorsByPlaceAndMetadata) {
  const std::string bytes = safetensors_bytes(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I8","shape":[2,3],"data_offsets":[4,10]},)"
      R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}   )",
      10);
  const SafetensorsHeader header = parse(bytes);
  ASSERT_EQ(header.tensors.size(), 2U);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].elements(), 1);
  EXPECT_EQ(header.tensors[1].name, "b");
  EXPECT_THAT(header.tensors[1].shape, ElementsAre(2, 3));
  EXPECT_EQ(header.tensors[1].end, bytes.size());
  EXPECT_THAT(header.metadata, ElementsAre(Pair("format", "pt")));
}

TEST(Safetensors, AcceptsEmptyFilesEmptyTensorsAndUnalignedData) {
  EXPECT_TRUE(parse(safetensors_bytes("{}", 0)).tensors.empty());
  EXPECT_EQ(refusal(R"({"z":{"dtype":"F32","shape":[0,9],"data_offsets":[0,0]},)"
                    R"("y":{"dtype":"F32","shape":[0],"data_offsets":[4,4]},)"
                    R"("x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                    4),
            "accepted");
}

TEST(Safetensors, RefusesFilesThatAreCutOff) {
  const std::string whole =
      safetensors_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  EXPECT_EQ(refusal(whole), "accepted");
  EXPECT_THAT(refusal(whole.substr(0, whole.size() - 9)), HasSubstr("expected a header of"));
  for (std::size_t n = 0; n < whole.size(); ++n) {
    EXPECT_THAT(refusal(whole.substr(0, n)), HasSubstr("[m.safetensors")) << n;
  }
  EXPECT_THAT(
      refusal(whole.substr(0, whole.size() - 1)),
      HasSubstr(
          "[m.safetensors tensor \"a\"] expected bytes from 0 on, within 7, got 0 to 8: it ends "
          "beyond the file"));
  EXPECT_THAT(refusal(whole + "x"), HasSubstr("expected 8 bytes of tensors, got 9"));
}

TEST(Safetensors, RefusesHeaderLengthsBeyondFileAndFormat) {
  std::string bytes = safetensors_bytes("{}", 0);
  bytes[1] = 1;
  EXPECT_THAT(refusal(bytes), HasSubstr("expected a header of 258 bytes, got a file of 10"));
  bytes.replace(0, 8, 8, '\xFF');
  EXPECT_THAT(refusal(bytes),
              HasSubstr("header of at most 100000000 bytes, got a length of 18446744073709551615"));
}

TEST(Safetensors, RefusesHeadersThatAreNoJsonObject) {
  EXPECT_THAT(refusal(" {}", 0), HasSubstr("begins with \"{\""));
  EXPECT_THAT(refusal("[]", 0), HasSubstr("begins with \"{\""));
  EXPECT_THAT(refusal("{\"a\":", 0), HasSubstr("[m.safetensors header] expected JSON"));
  EXPECT_THAT(refusal("{}x", 0), HasSubstr("expected JSON"));
  EXPECT_THAT(refusal("{\"\xFF\":1}", 0), HasSubstr("expected JSON"));
}

TEST(Safetensors, RefusesNamesThatOccurTwice) {
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                      2),
              HasSubstr("key \"a\" occurs twice"));
}

TEST(Safetensors, NamesTheTensorOfAMalformedEntry) {
  const auto entry = [](const char* text) {
    return refusal(fmt::format(R"({{"a.b":{}}})", text), 4);
  };
  EXPECT_THAT(
      entry("7"),
      HasSubstr("[m.safetensors tensor \"a.b\"] expected dtype, shape and data_offsets, got 7"));
  EXPECT_THAT(entry(R"({"shape":[4],"data_offsets":[0,4]})"), HasSubstr("the key \"dtype\""));
  EXPECT_THAT(entry(R"({"dtype":"U8","data_offsets":[0,4]})"), HasSubstr("the key \"shape\""));
  EXPECT_THAT(entry(R"({"dtype":"U8","shape":[4]})"), HasSubstr("the key \"data_offsets\""));
  EXPECT_THAT(entry(R"({"dtype":"F31","shape":[1],"data_offsets":[0,4]})"),
              HasSubstr("got \"F31\""));
  EXPECT_THAT(entry(R"({"dtype":4,"shape":[1],"data_offsets":[0,4]})"), HasSubstr("got 4"));
  EXPECT_THAT(entry(R"({"dtype":"U8","shape":[-4],"data_offsets":[0,4]})"),
              HasSubstr("shape to be a list of whole"));
  EXPECT_THAT(entry(R"({"dtype":"U8","shape":[4.0],"data_offsets":[0,4]})"),
              HasSubstr("got [4.0]"));
  EXPECT_THAT(entry(R"({"dtype":"U8","shape":4,"data_offsets":[0,4]})"), HasSubstr("got 4"));
  EXPECT_THAT(entry(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4,4]})"),
              HasSubstr("[begin, end], got [0, 4, 4]"));
  EXPECT_THAT(entry(R"({"dtype":"U8","shape":[4],"data_offsets":[4,0]})"),
              HasSubstr("[begin, end], got [4, 0]"));
  EXPECT_THAT(entry(R"({"dtype":"U8","shape":[3],"data_offsets":[0,4]})"),
              HasSubstr("expected 3 bytes for U8 of shape [3], got 4"));
}

TEST(Safetensors, RefusesShapesWhoseSizeOverflows) {
  const auto shape = [](const char* text) {
    return refusal(
        fmt::format(R"({{"a":{{"dtype":"F32","shape":{},"data_offsets":[0,0]}}}})", text), 0);
  };
  EXPECT_THAT(shape("[4294967296,4294967296]"),
              HasSubstr("expected a shape of whole bytes below 2^60"));
  EXPECT_THAT(shape("[4294967296,4294967296,0]"), HasSubstr("below 2^60"));
  EXPECT_THAT(shape("[9223372036854775807]"), HasSubstr("below 2^60"));
  EXPECT_THAT(shape("[18446744073709551615]"), HasSubstr("list of whole numbers"));
  EXPECT_THAT(shape("[1e30]"), HasSubstr("list of whole numbers"));
}

TEST(Safetensors, RefusesPartsOfBytes) {
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}})", 3), "accepted");
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F4","shape":[5],"data_offsets":[0,3]}})", 3),
              HasSubstr("whole bytes"));
}

TEST(Safetensors, RefusesHolesAndOverlap) {
  const auto two = [](int begin, int end, std::size_t bytes) {
    return refusal(fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}},)"
                               R"("b":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}}}})",
                               end - begin, begin, end),
                   bytes);
  };
  EXPECT_EQ(two(4, 8, 8), "accepted");
  EXPECT_THAT(
      two(5, 8, 8),
      HasSubstr("tensor \"b\"] expected bytes from 4 on, within 8, got 5 to 8: it leaves a hole"));
  EXPECT_THAT(two(3, 8, 8), HasSubstr("overlaps the tensor before it"));
  EXPECT_THAT(two(0, 4, 4), HasSubstr("overlaps the tensor before it"));
}

TEST(Safetensors, RefusesMetadataThatIsNotText) {
  EXPECT_THAT(refusal(R"({"__metadata__":{"format":1}})", 0),
              HasSubstr("expected a text for \"format\", got 1"));
  EXPECT_THAT(refusal(R"({"__metadata__":[]})", 0), HasSubstr("__metadata__] expected an object"));
}

TEST(Safetensors, ReadsHeadersOfManyTensorsInLinearithmicTime) {
  // 100,000 tensors take minutes where each new key is searched for among those before it.
  std::string header = "{";
  for (int i = 0; i < 100'000; ++i) {
    header += fmt::format(
        R"({}"model.layers.{}.weight":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
        i > 0 ? "," : "", i);
  }
  EXPECT_EQ(parse(safetensors_bytes(header + "}", 0)).tensors.size(), 100'000U);
}

TEST(SafetensorsFile, ReadsSlicesAndConverts) {
  const test::TemporaryFolder folder;
  const SafetensorsFile file(
      folder.file("m.safetensors",
                  safetensors_bytes(R"({"i":{"dtype":"U8","shape":[2,3],"data_offsets":[0,6]},)"
                                    R"("h":{"dtype":"BF16","shape":[1],"data_offsets":[6,8]}})",
                                    8)));
  std::vector<std::int64_t> integers(2);
  file.read_integers("i", integers, 3);
  EXPECT_THAT(integers, ElementsAre(3, 4));
  EXPECT_THAT(file.names(), ElementsAre("i", "h"));
  EXPECT_EQ(file.bytes("h").size(), 2U);
  EXPECT_TRUE(file.has("h"));
  EXPECT_FALSE(file.has("H"));
  EXPECT_THROW(file.read_integers("i", integers, 5), Error);
  EXPECT_THROW(file.read_integers("i", integers, -1), Error);
}

TEST(SafetensorsFile, SuggestsTheNearestNameAndNamesWrongTypes) {
  const test::TemporaryFolder folder;
  const SafetensorsFile file(
      folder.file("m.safetensors",
                  safetensors_bytes(
                      R"({"lm_head.weight":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1)));
  const auto message = [&](const char* name) -> std::string {
    try {
      std::vector<float> value(1);
      file.read_floats(name, value);
    } catch (const Error& error) {
      return error.what();
    }
    return "read";
  };
  EXPECT_THAT(message("lm_head.weigth"),
              HasSubstr("there is none; the nearest is \"lm_head.weight\""));
  EXPECT_THAT(message("lm_head.weight"), HasSubstr("expected F32, BF16, F16 or F64, got U8"));
}

TEST(SafetensorsFile, RefusesMissingAndEmptyFiles) {
  const test::TemporaryFolder folder;
  EXPECT_THROW(SafetensorsFile(folder.path() / "no.safetensors"), Error);
  EXPECT_THROW(SafetensorsFile(folder.file("empty.safetensors", "")), Error);
  EXPECT_THROW(SafetensorsFile(folder.path()), Error);
}

}  // namespace
}  // namespace moestro::checkpoint
