#include "moestro/runtime/reference_gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "moestro/checkpoint/safetensors_writer.h"
#include "moestro/core/error.h"
#include "tests/checkpoint/nested_model.h"
#include "tests/checkpoint/tiny_model.h"
#include "tests/core/temporary_folder.h"

namespace moestro::runtime {
namespace {

using checkpoint::TensorDeclaration;
using ::testing::HasSubstr;

model::TensorSpec stacked_tensor(model::Role role) {
  for (const model::TensorSpec& spec : model::tensors(checkpoint::nested_config())) {
    if (spec.role == role) return spec;
  }
  throw std::logic_error("the model has no such tensor");
}

/// Writes the gradients of these tensors, which count 0, 1, 2, ... through all of them.
std::filesystem::path write_gradients(const std::filesystem::path& folder,
                                      const std::vector<model::TensorSpec>& specs) {
  std::vector<TensorDeclaration> declarations;
  for (const model::TensorSpec& spec : specs) {
    declarations.push_back({"grad." + spec.name, checkpoint::Dtype::f32, spec.shape});
  }
  checkpoint::SafetensorsWriter writer(folder / "expected.safetensors", declarations);
  float first = 0.0F;
  for (const model::TensorSpec& spec : specs) {
    std::vector<float> values(static_cast<std::size_t>(spec.elements()));
    std::iota(values.begin(), values.end(), first);
    first += static_cast<float>(values.size());
    writer.write_floats("grad." + spec.name, values);
  }
  writer.finish();
  return folder / "expected.safetensors";
}

TEST(ReferenceGradient, IsReadStackedOrExpertByExpert) {
  const model::ModelConfig config = checkpoint::nested_config();
  for (const model::Role role : {model::Role::expert_gate_up, model::Role::expert_down_stacked}) {
    const model::TensorSpec spec = stacked_tensor(role);
    const std::vector<model::TensorSpec> pieces = model::expert_pieces(config, spec);
    ASSERT_GT(pieces.size(), 1U);
    std::vector<float> counted(static_cast<std::size_t>(spec.elements()));
    std::iota(counted.begin(), counted.end(), 0.0F);
    for (const auto& stored : {std::vector{spec}, pieces}) {
      const test::TemporaryFolder folder;
      const checkpoint::SafetensorsFile file(write_gradients(folder.path(), stored));
      std::set<std::string> used;
      EXPECT_EQ(read_reference_gradient(config, spec, file, used), counted);
      EXPECT_EQ(used.size(), stored.size()) << "every stored gradient is used";
    }
  }
}

TEST(ReferenceGradient, OfAnExpertIsItsPartOfAStackedOne) {
  const model::ModelConfig config = checkpoint::tiny_config();  // gate, up and down are 6 x 8
  model::TensorSpec gate_up, down;
  gate_up.name = "model.layers.1.mlp.experts.gate_up_proj";
  gate_up.shape = {4, 12, 8};
  down.name = "model.layers.1.mlp.experts.down_proj";
  down.shape = {4, 8, 6};
  const test::TemporaryFolder folder;
  const checkpoint::SafetensorsFile file(write_gradients(folder.path(), {gate_up, down}));
  std::set<std::string> used;
  for (const model::TensorSpec& spec : model::tensors(config)) {
    if (spec.layer != 1 || spec.expert != 2) continue;
    const bool is_up = spec.role == model::Role::expert_up;
    const bool is_down = spec.role == model::Role::expert_down;
    const float first = is_down ? 4 * 96 + 2 * 48 : 2 * 96 + (is_up ? 48 : 0);
    EXPECT_EQ(read_reference_gradient(config, spec, file, used).front(), first) << spec.name;
  }
  EXPECT_EQ(used.size(), 2U);
}

TEST(ReferenceGradient, NamesTheExpertThatIsMissing) {
  const model::ModelConfig config = checkpoint::nested_config();
  const model::TensorSpec spec = stacked_tensor(model::Role::expert_gate_up);
  std::vector<model::TensorSpec> pieces = model::expert_pieces(config, spec);
  const std::string missing = pieces[2].name;
  pieces.erase(pieces.begin() + 2);
  const test::TemporaryFolder folder;
  const checkpoint::SafetensorsFile file(write_gradients(folder.path(), pieces));
  std::set<std::string> used;
  try {
    static_cast<void>(read_reference_gradient(config, spec, file, used));
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    EXPECT_THAT(error.what(), HasSubstr("expected a tensor grad." + missing));
  }
}

}  // namespace
}  // namespace moestro::runtime
