// The models against reference outputs of transformers, which lie beside the repository.

#include "moestro/runtime/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "moestro/checkpoint/safetensors.h"
#include "moestro/checkpoint/safetensors_writer.h"
#include "moestro/core/error.h"
#include "moestro/core/json.h"
#include "moestro/kernels/gemm.h"
#include "tests/core/temporary_folder.h"

namespace moestro::runtime {
namespace {

const std::filesystem::path kGolden =
    std::filesystem::path(MOESTRO_SOURCE_DIR).parent_path() / "shared" / "golden";

class Golden : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kGolden / GetParam())) {
      GTEST_SKIP() << "no reference outputs in " << kGolden / GetParam();
    }
  }
  static void expect_within(const VerifyResult& r) {
    EXPECT_LE(r.logits_max_rel, 2e-5);
    EXPECT_LE(r.hidden_max_rel, 2e-5);
    EXPECT_LE(r.gradient_max_rel, 1e-4) << r.worst_tensor;
    EXPECT_LE(r.loss_abs, 2e-5);
    EXPECT_LE(r.aux_loss_abs.value_or(1.0), 2e-5);
    EXPECT_LE(r.steps_loss_max_abs.value_or(1.0), 1e-3);
    EXPECT_TRUE(r.within_tolerance);
  }
};

INSTANTIATE_TEST_SUITE_P(Families, Golden, testing::Values("mixtral", "qwen3_moe"));

TEST_P(Golden, F32MatchesTransformers) {
  expect_within(verify_against(kGolden / GetParam(), {}));
}

TEST_P(Golden, RecomputedAndDeferredMatchToo) {
  const VerifyResult plain = verify_against(kGolden / GetParam(), {});
  const VerifyResult other =
      verify_against(kGolden / GetParam(),
                     {.recompute = Recompute::layer, .defer_weight_gradients = true, .threads = 1});
  expect_within(other);
  EXPECT_EQ(plain.gradient_max_rel, other.gradient_max_rel);  // the same bits
}

TEST_P(Golden, Bf16StaysWithinItsOwnTolerance) {
  if (!kernels::has_fast_bf16()) GTEST_SKIP() << "this CPU has no bf16 products";
  const VerifyResult r = verify_against(kGolden / GetParam(), {.dtype = Dtype::bf16});
  EXPECT_TRUE(r.within_tolerance);
  EXPECT_GT(r.logits_max_rel, 1e-4);  // it did compute in bf16
}

TEST(Verify, NamesAMissingFile) {
  const test::TemporaryFolder folder;
  EXPECT_THROW(static_cast<void>(verify_against(folder.path(), {})), Error);
}

/// All but steps.json.
void copy_reference(const std::filesystem::path& from, const std::filesystem::path& to) {
  for (const char* file :
       {"config.json", "model.safetensors", "inputs.safetensors", "expected.safetensors"}) {
    std::filesystem::copy(from / file, to / file);
  }
}

TEST_P(Golden, NoticesAWrongGradientNorm) {
  const test::TemporaryFolder folder;
  copy_reference(kGolden / GetParam(), folder.path());
  Json steps = read_json_file(kGolden / GetParam() / "steps.json");
  steps["grad_norms"][3] = steps["grad_norms"][3].get<double>() * 1.03;
  std::ofstream(folder.path() / "steps.json") << steps.dump();
  EXPECT_FALSE(verify_against(folder.path(), {}).within_tolerance);
}

/// All of a reference, with one expected tensor changed.
void copy_with(const std::filesystem::path& from, const std::filesystem::path& to,
               const std::string& changed, const std::function<void(std::vector<float>&)>& change) {
  for (const auto& entry : std::filesystem::directory_iterator(from)) {
    std::filesystem::copy_file(entry.path(), to / entry.path().filename(),
                               std::filesystem::copy_options::overwrite_existing);
  }
  const checkpoint::SafetensorsFile file(from / "expected.safetensors");
  std::vector<checkpoint::TensorDeclaration> declarations;
  for (const std::string& name : file.names()) {
    declarations.push_back({name, checkpoint::Dtype::f32, file.info(name).shape});
  }
  if (!file.has(changed)) declarations.push_back({changed, checkpoint::Dtype::f32, {1}});
  checkpoint::SafetensorsWriter writer(to / "expected.safetensors", declarations);
  for (const checkpoint::TensorDeclaration& tensor : declarations) {
    std::vector<float> values(1);
    if (file.has(tensor.name)) {
      values.resize(static_cast<std::size_t>(file.info(tensor.name).elements()));
      file.read_floats(tensor.name, values);
    }
    if (tensor.name == changed) change(values);
    writer.write_floats(tensor.name, values);
  }
  writer.finish();
}

float largest(const std::vector<float>& values) {
  float most = 0.0F;
  for (const float v : values) most = std::max(most, std::abs(v));
  return most;
}

/// The gradient whose own largest entry is the smallest, but no rounding noise.
std::string smallest_gradient(const std::filesystem::path& reference) {
  const checkpoint::SafetensorsFile file(reference / "expected.safetensors");
  std::map<std::string, float> sizes;
  float most = 0.0F;
  for (const std::string& name : file.names()) {
    if (!name.starts_with("grad.")) continue;
    std::vector<float> values(static_cast<std::size_t>(file.info(name).elements()));
    file.read_floats(name, values);
    sizes[name] = largest(values);
    most = std::max(most, sizes[name]);
  }
  std::string least;
  for (const auto& [name, size] : sizes) {
    if (size > 2e-3F * most && (least.empty() || size < sizes[least])) least = name;
  }
  return least;
}

TEST_P(Golden, NoticesEveryKindOfWrongOutput) {
  const std::filesystem::path reference = kGolden / GetParam();
  const test::TemporaryFolder folder;
  for (const std::string& name :
       {std::string("logits"), std::string("hidden.0"), std::string("loss"),
        std::string("aux_loss"), smallest_gradient(reference)}) {
    copy_with(reference, folder.path(), name,
              [](auto& values) { values[0] += 5e-4F * std::max(largest(values), 1e-6F); });
    EXPECT_FALSE(verify_against(folder.path(), {}).within_tolerance) << name;
  }
  copy_with(reference, folder.path(), "logits", [](auto& values) { values[0] = std::nanf(""); });
  EXPECT_FALSE(verify_against(folder.path(), {}).within_tolerance) << "not a number";
}

TEST_P(Golden, NoticesAWrongLossOfAStep) {
  const test::TemporaryFolder folder;
  copy_reference(kGolden / GetParam(), folder.path());
  Json steps = read_json_file(kGolden / GetParam() / "steps.json");
  steps["losses"][3] = steps["losses"][3].get<double>() + 3e-3;
  std::ofstream(folder.path() / "steps.json") << steps.dump();
  EXPECT_FALSE(verify_against(folder.path(), {}).within_tolerance);
}

TEST_P(Golden, NoticesStepsThatAreNotNumbers) {
  const test::TemporaryFolder folder;
  copy_reference(kGolden / GetParam(), folder.path());
  const Json steps = read_json_file(kGolden / GetParam() / "steps.json");
  for (const char* key : {"losses", "grad_norms"}) {
    Json changed = steps;
    changed[key][3] = "?";
    std::string text = changed.dump();
    text.replace(text.find("\"?\""), 3, "NaN");  // as Python writes it
    std::ofstream(folder.path() / "steps.json") << text;
    EXPECT_FALSE(verify_against(folder.path(), {}).within_tolerance) << key;
  }
}

TEST_P(Golden, RefusesAGradientOfNoTensor) {
  const test::TemporaryFolder folder;
  copy_with(kGolden / GetParam(), folder.path(), "grad.model.nobody", [](auto&) {});
  try {
    static_cast<void>(verify_against(folder.path(), {}));
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("grad.model.nobody is a gradient of no tensor"),
              std::string::npos);
  }
}

TEST_P(Golden, NoticesAWrongWeight) {
  const test::TemporaryFolder folder;
  copy_reference(kGolden / GetParam(), folder.path());
  // Flip the sign of the last stored value.
  std::fstream model(folder.path() / "model.safetensors",
                     std::ios::in | std::ios::out | std::ios::binary);
  model.seekg(-1, std::ios::end);
  const int byte = model.get() ^ 0x80;
  model.seekp(-1, std::ios::end);
  model.put(static_cast<char>(byte));
  model.close();
  EXPECT_FALSE(verify_against(folder.path(), {}).within_tolerance);
}

}  // namespace
}  // namespace moestro::runtime
