#include "moestro/checkpoint/hf_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <numeric>
#include <optional>

#include "moestro/checkpoint/safetensors_writer.h"
#include "moestro/checkpoint/verify_report.h"
#include "moestro/core/error.h"
#include "tests/checkpoint/safetensors_bytes.h"
#include "tests/checkpoint/tiny_model.h"
#include "tests/core/temporary_folder.h"

namespace moestro::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

/// The message of the error that an action gives.
std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input) << error.what();
    return error.what();
  }
  return "no error";
}

/// Writes tensors of one value each: {"a", 1.0F} is a tensor "a" of shape [1].
void write_scalars(const fs::path& path,
                   const std::vector<std::pair<std::string, float>>& tensors) {
  std::vector<TensorDeclaration> declarations;
  for (const auto& [name, value] : tensors) declarations.push_back({name, Dtype::f32, {1}});
  SafetensorsWriter writer(path, declarations);
  for (const auto& [name, value] : tensors) writer.write_floats(name, std::vector<float>{value});
  writer.finish();
}

/// A folder with shards x (tensors a, b) and y (tensor c), and this index.
class Sharded : public testing::Test {
 protected:
  void SetUp() override {
    write_scalars(folder_.path() / "x", {{"a", 1.0F}, {"b", 2.0F}});
    write_scalars(folder_.path() / "y", {{"c", 3.0F}});
  }
  [[nodiscard]] std::string refusal_of(const std::string& index) const {
    (void)folder_.file("model.safetensors.index.json", index);
    return refusal([&] { const HfFolder folder(folder_.path()); });
  }

  test::TemporaryFolder folder_;
};

TEST_F(Sharded, ReadsTensorsFromTheirShards) {
  EXPECT_EQ(refusal_of(R"({"weight_map":{"a":"x","b":"x","c":"y"}})"), "no error");
  const HfFolder folder(folder_.path());
  EXPECT_THAT(folder.names(), ElementsAre("a", "b", "c"));
  std::vector<float> value(1);
  folder.read_floats("c", value);
  EXPECT_EQ(value[0], 3.0F);
  EXPECT_THAT(refusal([&] { (void)folder.info("d"); }),
              HasSubstr("expected a tensor \"d\", but there is none"));
}

TEST_F(Sharded, RefusesAMissingShard) {
  EXPECT_THAT(refusal_of(R"({"weight_map":{"a":"x","b":"x","c":"z"}})"),
              HasSubstr("expected the shard z"));
}

TEST_F(Sharded, RefusesATensorThatItsShardLacks) {
  EXPECT_THAT(refusal_of(R"({"weight_map":{"a":"x","b":"x","c":"y","d":"y"}})"),
              HasSubstr("expected tensor \"d\" in y, but that shard lacks it"));
  EXPECT_THAT(refusal_of(R"({"weight_map":{"a":"y","b":"x","c":"y"}})"),
              HasSubstr("expected tensor \"a\" in y"));
}

TEST_F(Sharded, RefusesATensorThatTheIndexDoesNotList) {
  EXPECT_THAT(refusal_of(R"({"weight_map":{"a":"x","c":"y"}})"), HasSubstr("got \"b\""));
}

TEST_F(Sharded, RefusesATensorInTwoShards) {
  write_scalars(folder_.path() / "y", {{"a", 3.0F}, {"c", 3.0F}});
  EXPECT_THAT(refusal_of(R"({"weight_map":{"a":"x","b":"x","c":"y"}})"),
              HasSubstr("expected every tensor once, but \"a\" is also in x"));
}

TEST_F(Sharded, RefusesShardNamesOutsideTheFolder) {
  for (const char* name : {"../x", "/etc/passwd", "..", ".", "", "a\\\\b", "sub/x", "x\\u0000y"}) {
    EXPECT_THAT(refusal_of(fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", name)),
                HasSubstr("expected the name of a file in the same folder"))
        << name;
  }
  EXPECT_THAT(refusal_of(R"({"weight_map":{"a":3}})"), HasSubstr("got 3"));
}

TEST_F(Sharded, RefusesAMalformedIndex) {
  for (const char* index : {"[]", "{}", R"({"weight_map":[]})"}) {
    EXPECT_THAT(refusal_of(index), HasSubstr("expected an object \"weight_map\"")) << index;
  }
  EXPECT_THAT(refusal_of("{"), HasSubstr("expected JSON"));
  EXPECT_THAT(refusal_of(fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", std::string(5000, 'n'))),
              HasSubstr("expected the shard"));
}

TEST(HfFolder, SaysWhatToDoWithoutWeights) {
  const test::TemporaryFolder folder;
  EXPECT_THAT(refusal([&] { const HfFolder hf(folder.path()); }),
              HasSubstr("download the weights"));
  (void)folder.file("pytorch_model.bin", "x");
  EXPECT_THAT(refusal([&] { const HfFolder hf(folder.path()); }),
              HasSubstr("convert pytorch_model.bin"));
}

TEST(HfFolder, NamesExpectedAndStoredShape) {
  const test::TemporaryFolder root;
  const model::ModelConfig config = tiny_config();
  auto specs = model::tensors(config);
  specs[0].shape = {8, 16};
  save_hf_folder(root.path() / "out", kTinyConfig, specs, tiny_values());
  std::vector<float> values(128);
  EXPECT_THAT(refusal([&] {
                HfFolder(root.path() / "out").read(config, model::tensors(config)[0], values);
              }),
              HasSubstr("expected shape [16, 8], got [8, 16]"));
}

/// The stacked tensor that may hold an expert's matrix, if there is one.
std::optional<model::AlternativeLocation> stacked_place(const model::TensorSpec& spec) {
  for (const auto& place : model::alternative_locations(tiny_config(), spec)) {
    if (place.shape.size() == 3) return place;
  }
  return std::nullopt;
}

TEST(HfFolder, ReadsExpertsFromStackedTensors) {
  const test::TemporaryFolder root;
  const std::vector<model::TensorSpec> specs = model::tensors(tiny_config());
  std::map<std::string, std::vector<std::int64_t>> stacked;  // name -> shape
  for (const model::TensorSpec& spec : specs) {
    if (const auto place = stacked_place(spec)) stacked[place->name] = place->shape;
  }
  EXPECT_EQ(stacked.size(), 4U);  // gate and up, down; in two layers
  std::vector<TensorDeclaration> declarations;
  for (const auto& [name, shape] : stacked) declarations.push_back({name, Dtype::f32, shape});
  SafetensorsWriter writer(root.path() / "model.safetensors", declarations);
  for (const auto& [name, shape] : stacked) {
    std::vector<float> counting(bytes_of(Dtype::f32, shape) / 4);
    std::iota(counting.begin(), counting.end(), 0.0F);
    writer.write_floats(name, counting);
  }
  writer.finish();
  const HfFolder folder(root.path());
  for (const model::TensorSpec& spec : specs) {
    const auto place = stacked_place(spec);
    if (!place) continue;
    std::vector<float> values(static_cast<std::size_t>(spec.elements())), expected(values.size());
    folder.read(tiny_config(), spec, values);
    std::iota(expected.begin(), expected.end(), static_cast<float>(place->first_element));
    EXPECT_EQ(values, expected) << spec.name;
  }
}

/// A folder of a model with tied embeddings that also stores a head, scaled.
void save_with_tied_head(const fs::path& folder, const model::ModelConfig& config,
                         const std::string& name, float scale) {
  auto specs = model::tensors(config);
  specs.push_back(specs[0]);
  specs.back().name = name;
  const auto values = [&, buffer = std::vector<float>()](const model::TensorSpec& spec) mutable {
    const bool is_head = spec.name == name;
    buffer = values_of(is_head ? specs[0] : spec);
    if (is_head) buffer.back() *= scale;
    return std::span<const float>(buffer);
  };
  save_hf_folder(folder, kTinyConfig, specs, values);
}

TEST(HfFolder, ToleratesATiedHeadOnlyIfItEqualsTheEmbedding) {
  model::ModelConfig nested = tiny_config(true);
  nested.family = model::Family::llama4;
  nested.is_nested = true;
  const std::pair<model::ModelConfig, const char*> heads[] = {
      {tiny_config(true), "lm_head.weight"},
      {nested, "language_model.lm_head.weight"},
      {nested, "lm_head.weight"}};  // as transformers saves the text model alone
  for (const auto& [config, name] : heads) {
    const test::TemporaryFolder root;
    const model::TensorSpec embedding = model::tensors(config)[0];
    std::vector<float> values(static_cast<std::size_t>(embedding.elements()));
    save_with_tied_head(root.path() / "same", config, name, 1.0F);
    EXPECT_NO_THROW(HfFolder(root.path() / "same").read(config, embedding, values));
    EXPECT_TRUE(verify_complete(HfFolder(root.path() / "same"), config).is_complete());
    save_with_tied_head(root.path() / "other", config, name, 2.0F);
    EXPECT_THAT(refusal([&] { HfFolder(root.path() / "other").read(config, embedding, values); }),
                HasSubstr("since config.json ties them, got others"));
    EXPECT_THAT(verify_complete(HfFolder(root.path() / "other"), config).differing_twins,
                ElementsAre(name));
  }
}

TEST(HfFolder, ComparesValuesToTheLast) {
  const test::TemporaryFolder folder;
  std::vector<float> values(70000, 0.5F);  // more than are compared at once
  SafetensorsWriter writer(
      folder.path() / "model.safetensors",
      {{"a", Dtype::f32, {70000}}, {"b", Dtype::f32, {70000}}, {"c", Dtype::f32, {70000}}});
  writer.write_floats("a", values);
  writer.write_floats("b", values);
  values.back() = 0.25F;
  writer.write_floats("c", values);
  writer.finish();
  EXPECT_TRUE(has_equal_values(HfFolder(folder.path()), "a", "b"));
  EXPECT_FALSE(has_equal_values(HfFolder(folder.path()), "a", "c"));
}

TEST(RequirePlainWeights, NamesTheFirstQuantisedTensor) {
  const test::TemporaryFolder folder;
  (void)folder.file(
      "model.safetensors",
      safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                        R"("b":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[4,6]}})",
                        6));
  const HfFolder quantised(folder.path());
  EXPECT_EQ(
      refusal([&] { require_plain_weights(quantised, "config.json quantization_config", "fp8"); }),
      "[config.json quantization_config] expected weights in F32, BF16, F16 or F64, got weights "
      "quantised as fp8 (b is F8_E4M3); dequantise the checkpoint first, and remove this key");
  const test::TemporaryFolder plain;
  write_scalars(plain.path() / "model.safetensors", {{"a", 1.0F}});
  const HfFolder dequantised(plain.path());
  EXPECT_EQ(refusal([&] { require_plain_weights(dequantised, "config.json", "fp8"); }), "no error");
}

}  // namespace
}  // namespace moestro::checkpoint
