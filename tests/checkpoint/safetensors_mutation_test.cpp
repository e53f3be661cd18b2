// The fuzz target on thousands of mutated files, in every test run.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "moestro/core/rng.h"
#include "tests/checkpoint/safetensors_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace moestro::checkpoint {
namespace {

void read(const std::string& bytes) {
  // A copy of exact size on the heap, so that a sanitizer sees the first byte read beyond it.
  const std::vector<std::uint8_t> copy(bytes.begin(), bytes.end());
  EXPECT_EQ(LLVMFuzzerTestOneInput(copy.data(), copy.size()), 0);
}

std::string valid_file() {
  return safetensors_bytes(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b.é":{"dtype":"BF16","shape":[],"data_offsets":[24,26]},)"
      R"("c":{"dtype":"I64","shape":[1,1],"data_offsets":[26,34]}}  )",
      34);
}

/// Pieces that reach deeper than random bytes do.
const std::vector<std::string>& fragments() {
  static const std::vector<std::string> kFragments = {"{",
                                                      "}",
                                                      "[",
                                                      "]",
                                                      ",",
                                                      ":",
                                                      "\"",
                                                      "\\u0000",
                                                      "\\ud800",
                                                      "-1",
                                                      "0",
                                                      "1e999",
                                                      "NaN",
                                                      "-Infinity",
                                                      "18446744073709551615",
                                                      "9223372036854775807",
                                                      "4294967296",
                                                      "null",
                                                      "true",
                                                      "\"F32\"",
                                                      "\"shape\":[",
                                                      "\"data_offsets\":[0,34]",
                                                      "\"a\":",
                                                      "__metadata__",
                                                      "{\"__float__\":\"NaN\"}",
                                                      "\xFF",
                                                      std::string(1, '\0')};
  return kFragments;
}

/// One random edit: a bit, a byte, a fragment in place or in between, a cut, a repeated part.
void mutate(std::string& bytes, Rng& rng) {
  if (bytes.empty()) return;
  const std::size_t at = rng.below(bytes.size());
  const std::string& fragment = fragments()[rng.below(fragments().size())];
  switch (rng.below(6)) {
    case 0:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << rng.below(8)));
      break;
    case 1:
      bytes[at] = static_cast<char>(rng.below(256));
      break;
    case 2:
      bytes.replace(at, fragment.size(), fragment);
      break;
    case 3:
      bytes.insert(at, fragment);
      break;
    case 4:
      bytes.erase(at, 1 + rng.below(8));
      break;
    default:
      bytes.insert(at, bytes.substr(rng.below(bytes.size()), 1 + rng.below(40)));
      break;
  }
}

TEST(SafetensorsMutation, NoCutOfAFileBreaksTheReader) {
  const std::string whole = valid_file();
  for (std::size_t n = 0; n <= whole.size(); ++n) read(whole.substr(0, n));
}

TEST(SafetensorsMutation, NoSingleByteBreaksTheReader) {
  const std::string whole = valid_file();
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const int value : {0, 1, 0x22, 0x39, 0x5B, 0x7B, 0x7F, 0x80, 0xFF}) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(value);
      read(bytes);
    }
  }
}

TEST(SafetensorsMutation, NoSequenceOfEditsBreaksTheReader) {
  Rng rng(20240611);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = valid_file();
    const std::size_t edits = 1 + rng.below(4);
    for (std::size_t edit = 0; edit < edits; ++edit) mutate(bytes, rng);
    // Half of the time the length field is made to fit, so that edits of the header are seen.
    if (bytes.size() > 42 && rng.below(2) == 0) {
      const std::uint64_t length = bytes.size() - 8 - 34;
      std::memcpy(bytes.data(), &length, sizeof(length));
    }
    read(bytes);
  }
}

TEST(SafetensorsMutation, DeepNestingDoesNotBreakTheReader) {
  read(safetensors_bytes("{\"a\":" + std::string(1'000'000, '['), 0));
  std::string objects = "{";
  for (int i = 0; i < 100'000; ++i) objects += "\"a\":{";
  read(safetensors_bytes(objects, 0));
}

}  // namespace
}  // namespace moestro::checkpoint
