// Qwen3.5 as transformers saves it: experts one by one where published files stack them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "moestro/checkpoint/safetensors_writer.h"
#include "moestro/checkpoint/verify_report.h"
#include "moestro/core/error.h"
#include "tests/checkpoint/nested_model.h"
#include "tests/core/temporary_folder.h"

namespace moestro::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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
