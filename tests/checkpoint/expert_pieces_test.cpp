// Qwen3.5 as transformers saves it: experts one by one where published files stack them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "moestro/checkpoint/safetensors_writer.h"
#include "moestro/checkpoint/verify_report.h"
#include "moestro/core/error.h"
#include "moestro/model/hf_config.h"
#include "tests/core/temporary_folder.h"

namespace moestro::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kNested = R"({
  "architectures": ["Qwen3_5MoeForConditionalGeneration"],
  "model_type": "qwen3_5_moe",
  "tie_word_embeddings": false,
  "text_config": {
    "attention_bias": false, "head_dim": 8, "hidden_size": 8,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_conv_kernel_dim": 2, "linear_key_head_dim": 4, "linear_num_key_heads": 1,
    "linear_num_value_heads": 2, "linear_value_head_dim": 4, "max_position_embeddings": 64,
    "model_type": "qwen3_5_moe_text", "moe_intermediate_size": 3, "num_attention_heads": 2,
    "num_experts": 3, "num_experts_per_tok": 2, "num_hidden_layers": 2, "num_key_value_heads": 1,
    "rms_norm_eps": 1e-06,
    "rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 10000, "rope_type": "default"},
    "shared_expert_intermediate_size": 5, "vocab_size": 16
  }
})";

model::ModelConfig nested_config() {
  return model::parse_hf_config(kNested, "nested", {.strict = true}).model;
}

/// Writes the model with every expert apart, leaving out what is called `omitted`. Each stacked
/// tensor counts 0, 1, 2, ... through its pieces.
void write_pieces(const std::filesystem::path& folder, std::string_view omitted = "") {
  const model::ModelConfig config = nested_config();
  std::vector<TensorDeclaration> declarations;
  std::vector<std::vector<float>> values;
  const auto add = [&](const model::TensorSpec& spec, float first) {
    if (spec.name == omitted) return;
    declarations.push_back({spec.name, Dtype::f32, spec.shape});
    values.emplace_back(static_cast<std::size_t>(spec.elements()));
    std::iota(values.back().begin(), values.back().end(), first);
  };
  for (const model::TensorSpec& spec : model::tensors(config)) {
    const std::vector<model::TensorSpec> pieces = model::expert_pieces(config, spec);
    if (pieces.empty()) add(spec, 0.0F);
    float first = 0.0F;
    for (const model::TensorSpec& piece : pieces) {
      add(piece, first);
      first += static_cast<float>(piece.elements());
    }
  }
  SafetensorsWriter writer(folder / "model.safetensors", declarations);
  for (std::size_t i = 0; i < values.size(); ++i) {
    writer.write_floats(declarations[i].name, values[i]);
  }
  writer.finish();
}

TEST(ExpertPieces, AreReadAsTheStackedTensor) {
  const test::TemporaryFolder root;
  write_pieces(root.path());
  const HfFolder folder(root.path());
  EXPECT_TRUE(folder.has("model.language_model.layers.1.mlp.experts.2.up_proj.weight"));
  for (const model::TensorSpec& spec : model::tensors(nested_config())) {
    std::vector<float> values(static_cast<std::size_t>(spec.elements()), -1.0F);
    std::vector<float> expected(values.size());
    std::iota(expected.begin(), expected.end(), 0.0F);
    folder.read(nested_config(), spec, values);
    EXPECT_EQ(values, expected) << spec.name;
  }
}

TEST(ExpertPieces, MakeACheckpointComplete) {
  const test::TemporaryFolder root;
  write_pieces(root.path());
  const VerifyReport report = verify_complete(HfFolder(root.path()), nested_config());
  EXPECT_TRUE(report.is_complete()) << to_text(report);
  EXPECT_EQ(report.found, report.expected);
}

TEST(ExpertPieces, AreMissedOneByOne) {
  const std::string omitted = "model.language_model.layers.0.mlp.experts.0.gate_proj.weight";
  const test::TemporaryFolder root;
  write_pieces(root.path(), omitted);
  const HfFolder folder(root.path());
  EXPECT_THAT(verify_complete(folder, nested_config()).missing, ElementsAre(omitted));
  const std::vector<model::TensorSpec> specs = model::tensors(nested_config());
  const auto stacked = std::find_if(specs.begin(), specs.end(), [](const auto& spec) {
    return spec.role == model::Role::expert_gate_up;
  });
  std::vector<float> values(static_cast<std::size_t>(stacked->elements()));
  try {
    folder.read(nested_config(), *stacked, values);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(omitted));
  }
}

}  // namespace
}  // namespace moestro::checkpoint
