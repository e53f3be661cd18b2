// The models against reference outputs of transformers: our own (tests/golden/README.md), and those
// beside the repository where there are any.

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

namespace fs = std::filesystem;

const fs::path kOwn = fs::path(MOESTRO_SOURCE_DIR) / "tests" / "golden";
const fs::path kBeside = fs::path(MOESTRO_SOURCE_DIR).parent_path() / "shared" / "golden";

/// Our own always, so that a missing one fails.
std::vector<fs::path> references() {
  std::vector<fs::path> folders;
  for (const char* family : {"mixtral", "qwen3_moe", "olmoe", "granitemoe", "glm4_moe"}) {
    folders.push_back(kOwn / family);
  }
  for (const char* family : {"mixtral", "qwen3_moe"}) {
    if (fs::exists(kBeside / family)) folders.push_back(kBeside / family);
  }
  return folders;
}

class Golden : public testing::TestWithParam<fs::path> {
 protected:
  static void expect_within(const VerifyResult& r) {
    EXPECT_LE(r.logits_max_rel, 2e-5);
    EXPECT_LE(r.hidden_max_rel, 2e-5);
    EXPECT_LE(r.gradient_max_rel, 1e-4) << r.worst_tensor;
    EXPECT_LE(r.loss_abs, 2e-5);
    EXPECT_EQ(r.aux_loss_abs.has_value(), has_aux_loss());
    EXPECT_LE(r.aux_loss_abs.value_or(0.0), 2e-5);
    EXPECT_LE(r.steps_loss_max_abs.value_or(1.0), 1e-3);
    EXPECT_TRUE(r.within_tolerance);
  }
  /// transformers has none for GLM.
  static bool has_aux_loss() { return GetParam().filename() != "glm4_moe"; }
};

std::string test_name(const testing::TestParamInfo<fs::path>& reference) {
  const fs::path& folder = reference.param;
  return (folder.parent_path() == kOwn ? "Own_" : "Beside_") + folder.filename().string();
}

INSTANTIATE_TEST_SUITE_P(References, Golden, testing::ValuesIn(references()), test_name);

TEST_P(Golden, F32MatchesTransformers) {
  expect_within(verify_against(GetParam(), {}));
}

TEST_P(Golden, RecomputedAndDeferredMatchToo) {
  const VerifyResult plain = verify_against(GetParam(), {});
  const VerifyResult other = verify_against(
      GetParam(), {.recompute = Recompute::layer, .defer_weight_gradients = true, .threads = 1});
  expect_within(other);
  EXPECT_EQ(plain.gradient_max_rel, other.gradient_max_rel);  // the same bits
}

TEST_P(Golden, Bf16StaysWithinItsOwnTolerance) {
  if (!kernels::has_fast_bf16()) GTEST_SKIP() << "this CPU has no bf16 products";
  const VerifyResult r = verify_against(GetParam(), {.dtype = Dtype::bf16});
  EXPECT_TRUE(r.within_tolerance);
  EXPECT_GT(r.logits_max_rel, 1e-4);  // it did compute in bf16
}

TEST(Verify, NamesAMissingFile) {
  const test::TemporaryFolder folder;
  EXPECT_THROW(static_cast<void>(verify_against(folder.path(), {})), Error);
}

/// All but steps.json.
void copy_reference(const fs::path& from, const fs::path& to) {
  for (const char* file :
       {"config.json", "model.safetensors", "inputs.safetensors", "expected.safetensors"}) {
    fs::copy(from / file, to / file);
  }
}

TEST_P(Golden, NoticesAWrongGradientNorm) {
  const test::TemporaryFolder folder;
  copy_reference(GetParam(), folder.path());
  Json steps = read_json_file(GetParam() / "steps.json");
  steps["grad_norms"][3] = steps["grad_norms"][3].get<double>() * 1.03;
  std::ofstream(folder.path() / "steps.json") << steps.dump();
  EXPECT_FALSE(verify_against(folder.path(), {}).within_tolerance);
}

using Change = std::function<void(std::vector<float>&)>;

/// All of a reference, with one tensor of a file changed.
void copy_with(const fs::path& from, const fs::path& to, const std::string& file_name,
               const std::string& changed, const Change& change) {
  for (const auto& entry : fs::directory_iterator(from)) {
    fs::copy_file(entry.path(), to / entry.path().filename(), fs::copy_options::overwrite_existing);
  }
  const checkpoint::SafetensorsFile file(from / file_name);
  std::vector<checkpoint::TensorDeclaration> declarations;
  for (const std::string& name : file.names()) {
    declarations.push_back({name, checkpoint::Dtype::f32, file.info(name).shape});
  }
  if (!file.has(changed)) declarations.push_back({changed, checkpoint::Dtype::f32, {1}});
  checkpoint::SafetensorsWriter writer(to / file_name, declarations);
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

constexpr const char* kExpected = "expected.safetensors";

float largest(const std::vector<float>& values) {
  float most = 0.0F;
  for (const float v : values) most = std::max(most, std::abs(v));
  return most;
}

/// The gradient whose own largest entry is the smallest, but no rounding noise.
std::string smallest_gradient(const fs::path& reference) {
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

TEST(Verify, ALossIsAsExactAsTheLogitsItIsADifferenceOf) {
  const test::TemporaryFolder folder;
  copy_with(kOwn / "mixtral", folder.path(), "expected.safetensors", "loss",
            [](std::vector<float>& loss) { loss[0] += 1e-3F; });
  EXPECT_FALSE(verify_against(folder.path(), {}).within_tolerance);
  const test::TemporaryFolder steep;
  copy_with(kOwn / "mixtral", steep.path(), "expected.safetensors", "logits",
            [](std::vector<float>& logits) { logits[0] = 1000.0F; });
  EXPECT_NEAR(verify_against(steep.path(), {}).tolerance.loss, 2e-2, 1e-9);
}

TEST_P(Golden, NoticesEveryKindOfWrongOutput) {
  const fs::path reference = GetParam();
  const test::TemporaryFolder folder;
  for (const std::string& name :
       {std::string("logits"), std::string("hidden.0"), std::string("loss"),
        std::string("aux_loss"), smallest_gradient(reference)}) {
    if (name == "aux_loss" && !has_aux_loss()) continue;
    copy_with(reference, folder.path(), kExpected, name,
              [](auto& values) { values[0] += 5e-4F * std::max(largest(values), 1e-6F); });
    EXPECT_FALSE(verify_against(folder.path(), {}).within_tolerance) << name;
  }
}

TEST_P(Golden, RefusesOutputsThatAreNotFinite) {
  const test::TemporaryFolder folder;
  for (const float value : {std::nanf(""), HUGE_VALF}) {
    for (const std::string& name : {std::string("logits"), std::string("hidden.0"),
                                    std::string("loss"), smallest_gradient(GetParam())}) {
      copy_with(GetParam(), folder.path(), kExpected, name,
                [&](auto& values) { values[0] = value; });
      EXPECT_THROW(static_cast<void>(verify_against(folder.path(), {})), Error) << name;
    }
  }
}

TEST_P(Golden, NoticesAWrongLossOfAStep) {
  const test::TemporaryFolder folder;
  copy_reference(GetParam(), folder.path());
  Json steps = read_json_file(GetParam() / "steps.json");
  steps["losses"][3] = steps["losses"][3].get<double>() + 3e-3;
  std::ofstream(folder.path() / "steps.json") << steps.dump();
  EXPECT_FALSE(verify_against(folder.path(), {}).within_tolerance);
}

TEST_P(Golden, NoticesStepsThatAreNotNumbers) {
  const test::TemporaryFolder folder;
  copy_reference(GetParam(), folder.path());
  const Json steps = read_json_file(GetParam() / "steps.json");
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
  copy_with(GetParam(), folder.path(), kExpected, "grad.model.nobody", [](auto&) {});
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
  copy_reference(GetParam(), folder.path());
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

/// A key of config.json, as a JSON pointer, and a value with which the model is another one.
struct WrongKey {
  const char* family;
  const char* key;
  Json value;
};

/// Each means one part of a model, which a reference must therefore exercise.
const std::vector<WrongKey> kWrongKeys = {
    {"mixtral", "/sliding_window", 8},
    {"mixtral", "/sliding_window", nullptr},
    {"mixtral", "/num_experts_per_tok", 1},
    {"mixtral", "/rms_norm_eps", 1e-3},
    {"mixtral", "/rope_parameters/rope_theta", 9000.0},
    {"qwen3_moe", "/norm_topk_prob", false},
    {"olmoe", "/norm_topk_prob", true},
    {"olmoe", "/clip_qkv", 1.6},
    {"olmoe", "/clip_qkv", nullptr},
    {"olmoe", "/pad_token_id", nullptr},
    {"granitemoe", "/embedding_multiplier", 1.0},
    {"granitemoe", "/attention_multiplier", 0.301},
    {"granitemoe", "/residual_multiplier", 1.0},
    {"granitemoe", "/logits_scaling", 0.4},
    {"glm4_moe", "/rope_parameters/partial_rotary_factor", 1.0},
    {"glm4_moe", "/rope_parameters/partial_rotary_factor", 0.25},
    {"glm4_moe", "/routed_scaling_factor", 1.0},
    {"glm4_moe", "/norm_topk_prob", false},
    {"glm4_moe", "/topk_group", 3},
    {"glm4_moe", "/topk_group", 1},
};

TEST(Verify, NoticesAModelThatIsAnotherInOnePart) {
  for (const WrongKey& wrong : kWrongKeys) {
    const test::TemporaryFolder folder;
    copy_reference(kOwn / wrong.family, folder.path());
    Json config = read_json_file(kOwn / wrong.family / "config.json");
    const Json::json_pointer key(wrong.key);
    ASSERT_TRUE(config.contains(key)) << wrong.family << wrong.key;
    config[key] = wrong.value;
    std::ofstream(folder.path() / "config.json") << config.dump();
    EXPECT_FALSE(verify_against(folder.path(), {}).within_tolerance)
        << wrong.family << wrong.key << " = " << wrong.value;
  }
}

TEST(Verify, NoticesAWrongSelectionBias) {
  const test::TemporaryFolder folder;
  copy_with(kOwn / "glm4_moe", folder.path(), "model.safetensors",
            "model.layers.1.mlp.gate.e_score_correction_bias", [](auto& bias) {
              ASSERT_GT(bias.size(), 1U);  // it is there
              for (float& b : bias) b = 0.0F;
            });
  EXPECT_FALSE(verify_against(folder.path(), {}).within_tolerance);
}

}  // namespace
}  // namespace moestro::runtime
