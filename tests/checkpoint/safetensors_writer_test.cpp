#include "moestro/checkpoint/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstring>
#include <set>

#include "moestro/checkpoint/safetensors.h"
#include "moestro/core/error.h"
#include "moestro/core/file.h"
#include "moestro/core/rng.h"
#include "tests/core/temporary_folder.h"

namespace moestro::checkpoint {
namespace {

std::vector<float> random_values(std::size_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(n);
  for (float& value : values) value = static_cast<float>(rng.normal());
  return values;
}

std::size_t files_in(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST(SafetensorsWriter, WritesTheBytesOfTheReferenceImplementation) {
  const test::TemporaryFolder folder;
  SafetensorsWriter writer(
      folder.path() / "m",
      {{"b", Dtype::bf16, {2}}, {"a", Dtype::bf16, {1}}, {"z", Dtype::f32, {}}});
  writer.write_floats("a", std::vector<float>{1.0F});
  writer.write_floats("z", std::vector<float>{-2.0F});
  writer.write_floats("b", std::vector<float>{0.5F, 3.0F});
  writer.finish();
  // Wide types first, then by name; spaces up to a multiple of 8.
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"z":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("a":{"dtype":"BF16","shape":[1],"data_offsets":[4,6]},)"
      R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[6,10]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  std::string expected(8, '\0');
  expected[0] = static_cast<char>(padded.size());
  expected += padded;
  expected += std::string("\x00\x00\x00\xC0\x80\x3F\x00\x3F\x40\x40", 10);
  EXPECT_EQ(read_file(folder.path() / "m"), expected);
}

TEST(SafetensorsWriter, WhatIsWrittenReadsBack) {
  const test::TemporaryFolder folder;
  const bool holds = rc::check("write, read: same names, shapes and values", [&] {
    const auto names = *rc::gen::container<std::set<std::string>>(
        rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab.\"\\\n0"))));
    std::vector<TensorDeclaration> tensors;
    for (const std::string& name : names) {
      tensors.push_back({name, Dtype::f32,
                         *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange(0, 5))});
      if (tensors.back().shape.size() > 4) tensors.back().shape.resize(4);
    }
    const auto path = folder.path() / "m.safetensors";
    SafetensorsWriter writer(path, tensors);
    std::uint64_t seed = 0;
    for (const TensorDeclaration& tensor : tensors) {
      writer.write_floats(tensor.name,
                          random_values(bytes_of(Dtype::f32, tensor.shape) / 4, seed++));
    }
    writer.finish();
    const SafetensorsFile file(path);
    RC_ASSERT(file.tensors().size() == tensors.size());
    seed = 0;
    for (const TensorDeclaration& tensor : tensors) {
      RC_ASSERT(file.info(tensor.name).shape == tensor.shape);
      std::vector<float> values(bytes_of(Dtype::f32, tensor.shape) / 4);
      file.read_floats(tensor.name, values);
      RC_ASSERT(values == random_values(values.size(), seed++));
    }
  });
  EXPECT_TRUE(holds);
}

TEST(SafetensorsWriter, ConvertsLargeTensorsChunkByChunk) {
  const test::TemporaryFolder folder;
  constexpr std::size_t kValues = 600'000;  // more than two chunks, no multiple of one
  const std::vector<float> values = random_values(kValues, 1);
  SafetensorsWriter writer(folder.path() / "m", {{"a", Dtype::bf16, {kValues}}});
  writer.write_floats("a", values);
  writer.finish();
  std::vector<std::byte> expected(2 * kValues);
  from_floats(Dtype::bf16, values, expected);
  const SafetensorsFile file(folder.path() / "m");
  EXPECT_TRUE(std::ranges::equal(file.bytes("a"), expected));
}

TEST(SafetensorsWriter, LeavesNothingBehindUnlessFinished) {
  const test::TemporaryFolder folder;
  {
    SafetensorsWriter writer(folder.path() / "m", {{"a", Dtype::f32, {1}}});
    writer.write_floats("a", std::vector<float>{1.0F});
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "m"));
  }
  EXPECT_EQ(files_in(folder.path()), 0U);
}

TEST(SafetensorsWriter, RefusesWhatItsDeclarationsForbid) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "m";
  EXPECT_THROW(SafetensorsWriter(path, {{"a", Dtype::f32, {1}}, {"a", Dtype::f32, {1}}}), Error);
  EXPECT_THROW(SafetensorsWriter(path, {{"__metadata__", Dtype::f32, {1}}}), Error);
  EXPECT_THROW(SafetensorsWriter(path, {{"\xFF", Dtype::f32, {1}}}), Error);
  EXPECT_THROW(SafetensorsWriter(path, {{"a", Dtype::f32, {-1}}}), Error);
  SafetensorsWriter writer(path, {{"a", Dtype::f32, {1}}, {"b", Dtype::f32, {1}}});
  const std::vector<float> one = {1.0F}, two = {1.0F, 2.0F};
  EXPECT_THROW(writer.write_floats("c", one), Error);
  EXPECT_THROW(writer.write_floats("a", two), Error);
  writer.write_floats("a", one);
  EXPECT_THROW(writer.write_floats("a", one), Error);
  EXPECT_THROW(writer.finish(), Error);  // b is missing
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace moestro::checkpoint
