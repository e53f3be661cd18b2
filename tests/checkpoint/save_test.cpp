#include "moestro/checkpoint/save.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "moestro/checkpoint/hf_folder.h"
#include "moestro/core/error.h"
#include "moestro/core/file.h"
#include "moestro/core/json.h"
#include "tests/checkpoint/tiny_model.h"
#include "tests/core/temporary_folder.h"

namespace moestro::checkpoint {
namespace {

/// Whether every tensor of the model reads back with its values.
void expect_same_values(const HfFolder& folder, const model::ModelConfig& config) {
  for (const model::TensorSpec& spec : model::tensors(config)) {
    std::vector<float> values(static_cast<std::size_t>(spec.elements()));
    folder.read(config, spec, values);
    EXPECT_EQ(values, values_of(spec)) << spec.name;
  }
}

TEST(SaveHfFolder, WritesOneFileThatReadsBack) {
  const test::TemporaryFolder root;
  const model::ModelConfig config = tiny_config();
  save_hf_folder(root.path() / "out", kTinyConfig, model::tensors(config), tiny_values());
  EXPECT_EQ(read_file(root.path() / "out" / "config.json"), kTinyConfig);
  EXPECT_TRUE(std::filesystem::exists(root.path() / "out" / "model.safetensors"));
  expect_same_values(HfFolder(root.path() / "out"), config);
}

TEST(SaveHfFolder, WritesShardsWithAnIndexThatReadBack) {
  const test::TemporaryFolder root;
  const model::ModelConfig config = tiny_config();
  const auto specs = model::tensors(config);
  save_hf_folder(root.path() / "out", kTinyConfig, specs, tiny_values(),
                 {.max_shard_bytes = Bytes{1000}});
  const Json index = read_json_file(root.path() / "out" / "model.safetensors.index.json");
  std::int64_t total = 0;
  for (const model::TensorSpec& spec : specs) total += 4 * spec.elements();
  EXPECT_EQ(index["metadata"]["total_size"], total);
  EXPECT_EQ(index["weight_map"].size(), specs.size());
  const HfFolder folder(root.path() / "out");
  ASSERT_GT(folder.files().size(), 2U);
  EXPECT_EQ(folder.files()[0].path().filename(),
            fmt::format("model-00001-of-{:05}.safetensors", folder.files().size()));
  expect_same_values(folder, config);
}

TEST(SaveHfFolder, RoundsToBf16) {
  const test::TemporaryFolder root;
  const model::ModelConfig config = tiny_config();
  const auto specs = model::tensors(config);
  save_hf_folder(root.path() / "out", kTinyConfig, specs, tiny_values(), {.dtype = Dtype::bf16});
  const HfFolder folder(root.path() / "out");
  EXPECT_EQ(folder.info(specs[0].name).dtype, Dtype::bf16);
  std::vector<float> values(static_cast<std::size_t>(specs[0].elements()));
  folder.read(config, specs[0], values);
  const std::vector<float> exact = values_of(specs[0]);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    EXPECT_NEAR(values[i], exact[i], std::abs(exact[i]) * 0x1p-8F);  // half a unit of 8 bits
  }
}

TEST(SavedConfig, NamesTheDtypeAndChangesNothingElse) {
  EXPECT_EQ(saved_config(R"({ "torch_dtype" : "bfloat16", "limit": [0.0, Infinity] })", Dtype::f32),
            R"({ "torch_dtype" : "float32", "limit": [0.0, Infinity] })");
  EXPECT_EQ(saved_config(R"({"text_config": {"dtype": "float16"},"dtype":"float32"})", Dtype::bf16),
            R"({"text_config": {"dtype": "bfloat16"},"dtype":"bfloat16"})");
  for (const char* same :
       {kTinyConfig, "", "{", "\"", R"({"dtype)", R"({"dtype": )", R"({"dtype": "float32"})",
        R"({"a": "dtype", "b": "\"dtype\": \"float16\"", "x_dtype": "float16"})",
        R"({"dtype": null, "router_dtype": "float16"})"}) {
    EXPECT_EQ(saved_config(same, Dtype::f32), same);
  }
}

TEST(SavedConfig, HasNoQuantizationAndChangesNothingElse) {
  const auto saved = [](std::string_view json) { return saved_config(json, Dtype::f32); };
  const std::string value = R"({"quant_method": "fp8", "a": ["}", {"b": "\"{"}], "c": null})";
  const std::string member = "\"quantization_config\" : " + value;
  EXPECT_EQ(saved("{" + member + "}"), "{}");
  EXPECT_EQ(saved("{ \"a\": 1,\n  " + member + "\n}"), "{ \"a\": 1\n}");
  EXPECT_EQ(saved("{" + member + " , \"a\": Infinity}"), "{\"a\": Infinity}");
  EXPECT_EQ(saved("{\"a\": 1, " + member + ", \"b\": 2}"), "{\"a\": 1, \"b\": 2}");
  EXPECT_EQ(saved(R"({"t": {"a": 1 ,   "compression_config": {}},"b":1,"c":"x"})"),
            R"({"t": {"a": 1 },"b":1,"c":"x"})");
  EXPECT_EQ(saved(R"({"quantization_config": null, "compression_config": 5})"), "{}");
  EXPECT_EQ(saved(R"({"dtype": "float16", "quantization_config": {"dtype": "int8"}})"),
            R"({"dtype": "float32"})");
  for (const char* same : {kTinyConfig, "", "{", "\"", R"("quantization_config": 1)",
                           R"({"a": "quantization_config", "b": "\"quantization_config\": 1"})"}) {
    EXPECT_EQ(saved(same), same);
  }
  for (std::size_t size = 0; size <= member.size() + 1; ++size) {  // cut anywhere: no crash
    EXPECT_LE(saved(("{" + member).substr(0, size)).size(), size);
  }
}

TEST(SaveHfFolder, WritesNoQuantisationBesidePlainWeights) {
  const test::TemporaryFolder root;
  const std::string source =
      R"({"quantization_config": {"quant_method": "fp8"},)" + std::string(kTinyConfig).substr(1);
  save_hf_folder(root.path() / "out", source, model::tensors(tiny_config()), tiny_values());
  EXPECT_EQ(read_json_file(root.path() / "out" / "config.json"), Json::parse(kTinyConfig));
}

TEST(SaveHfFolder, WritesTheNameOfItsDtype) {
  const test::TemporaryFolder root;
  const model::ModelConfig config = tiny_config();
  const std::string source = R"({"torch_dtype": "float32",)" + std::string(kTinyConfig).substr(1);
  save_hf_folder(root.path() / "out", source, model::tensors(config), tiny_values(),
                 {.dtype = Dtype::bf16});
  EXPECT_EQ(read_json_file(root.path() / "out" / "config.json")["torch_dtype"], "bfloat16");
}

TEST(SaveHfFolder, LeavesNothingBehindWhenTheValuesFail) {
  const test::TemporaryFolder root;
  const auto fail = [](const model::TensorSpec&) -> std::span<const float> {
    throw input_error("values", "fail");
  };
  EXPECT_THROW(
      save_hf_folder(root.path() / "out", kTinyConfig, model::tensors(tiny_config()), fail), Error);
  EXPECT_TRUE(std::filesystem::is_empty(root.path()));
}

TEST(SplitIntoShards, FillsEveryShardInOrderUpToTheLimit) {
  const bool holds =
      rc::check("every tensor once, in order; no shard could take the next tensor", [] {
        const auto sizes = *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange(0, 40));
        const int limit = *rc::gen::inRange(1, 200);
        std::vector<model::TensorSpec> specs(sizes.size());
        for (std::size_t i = 0; i < sizes.size(); ++i) specs[i].shape = {sizes[i]};
        const auto shards =
            split_into_shards(specs, {.max_shard_bytes = Bytes{static_cast<double>(limit)}});
        std::size_t next = 0;
        for (const auto& shard : shards) {
          std::int64_t bytes = 0;
          for (const std::size_t i : shard) {
            RC_ASSERT(i == next++);
            bytes += 4 * sizes[i];
          }
          RC_ASSERT(bytes <= limit || shard.size() == 1);
          if (next < sizes.size()) RC_ASSERT(bytes + 4 * sizes[next] > limit);
        }
        RC_ASSERT(next == sizes.size());
      });
  EXPECT_TRUE(holds);
}

}  // namespace
}  // namespace moestro::checkpoint
