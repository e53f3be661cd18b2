#include "moestro/checkpoint/verify_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "moestro/checkpoint/safetensors_writer.h"
#include "moestro/core/json.h"
#include "tests/checkpoint/overwrite_number.h"
#include "tests/checkpoint/tiny_model.h"
#include "tests/core/temporary_folder.h"

namespace moestro::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// The report on a folder that holds exactly these tensors, against the tiny model.
VerifyReport report_on(const std::vector<TensorDeclaration>& tensors, bool is_tied = false) {
  const test::TemporaryFolder root;
  SafetensorsWriter writer(root.path() / "model.safetensors", tensors);
  for (const TensorDeclaration& tensor : tensors) {
    writer.write_bytes(tensor.name, std::vector<std::byte>(bytes_of(tensor.dtype, tensor.shape)));
  }
  writer.finish();
  VerifyReport report = verify_complete(HfFolder(root.path()), tiny_config(is_tied));
  report.folder = "tiny";
  return report;
}

std::vector<TensorDeclaration> all_tensors(bool is_tied = false) {
  std::vector<TensorDeclaration> tensors;
  for (const model::TensorSpec& spec : model::tensors(tiny_config(is_tied))) {
    tensors.push_back({spec.name, Dtype::f32, spec.shape});
  }
  return tensors;
}

TEST(VerifyComplete, AcceptsEveryTensorExactlyOnce) {
  const VerifyReport report = report_on(all_tensors());
  EXPECT_TRUE(report.is_complete());
  EXPECT_EQ(report.found, static_cast<std::int64_t>(all_tensors().size()));
  EXPECT_EQ(report.found, report.expected);
  // Two layers of attention 8*8 + 2*8*4 + 8*8, router 4*8, 4 experts of 3*6*8, 2 norms; embedding,
  // head, final norm.
  EXPECT_EQ(report.elements, 2 * (64 + 64 + 64 + 32 + 576 + 16) + 2 * 16 * 8 + 8);
}

TEST(VerifyComplete, FindsNumbersThatAreNotFinite) {
  const test::TemporaryFolder root;
  save_hf_folder(root.path() / "m", kTinyConfig, model::tensors(tiny_config()), tiny_values());
  const auto verify = [&] { return verify_complete(HfFolder(root.path() / "m"), tiny_config()); };
  EXPECT_TRUE(verify().is_complete());
  const fs::path file = root.path() / "m" / "model.safetensors";
  overwrite_number(file, "model.norm.weight", 3, NAN);
  overwrite_number(file, "model.norm.weight", 5, INFINITY);
  const VerifyReport report = verify();
  EXPECT_FALSE(report.is_complete());
  EXPECT_THAT(to_text(report), HasSubstr("  tensors with numbers that are not finite: 1\n"
                                         "    model.norm.weight: 2, the first, nan, at index 3\n"));
  EXPECT_EQ(to_json(report)["not_finite"].dump(),
            R"([{"name":"model.norm.weight","count":2,"first":3}])");
}

TEST(VerifyComplete, ListsEveryKindOfProblem) {
  auto tensors = all_tensors();
  const std::string missing = tensors[3].name;
  tensors.erase(tensors.begin() + 3);
  std::swap(tensors[0].shape[0], tensors[0].shape[1]);
  tensors[1].dtype = Dtype::f8_e4m3;
  tensors.push_back({"model.layers.2.input_layernorm.weight", Dtype::f32, {8}});
  const VerifyReport report = report_on(tensors);
  EXPECT_FALSE(report.is_complete());
  EXPECT_THAT(report.missing, ElementsAre(missing));
  EXPECT_THAT(report.unexpected, ElementsAre("model.layers.2.input_layernorm.weight"));
  ASSERT_EQ(report.wrong_shapes.size(), 1U);
  EXPECT_EQ(report.wrong_shapes[0].got, tensors[0].shape);
  ASSERT_EQ(report.wrong_dtypes.size(), 1U);
  EXPECT_EQ(report.wrong_dtypes[0].dtype, Dtype::f8_e4m3);
  EXPECT_EQ(report.found, report.expected - 3);
}

TEST(VerifyComplete, FailsForEverySingleMissingTensor) {
  const auto tensors = all_tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    auto rest = tensors;
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_THAT(report_on(rest).missing, ElementsAre(tensors[i].name));
  }
}

TEST(VerifyComplete, AcceptsStackedExpertsButNotBothForms) {
  const model::ModelConfig config = tiny_config();
  std::vector<TensorDeclaration> tensors;
  for (const model::TensorSpec& spec : model::tensors(config)) {
    const auto places = model::alternative_locations(config, spec);
    const bool is_stacked = !places.empty() && places.back().shape.size() == 3;
    const std::string name = is_stacked ? places.back().name : spec.name;
    const auto is_same = [&](const TensorDeclaration& d) { return d.name == name; };
    if (std::any_of(tensors.begin(), tensors.end(), is_same)) continue;
    tensors.push_back({name, Dtype::f32, is_stacked ? places.back().shape : spec.shape});
  }
  EXPECT_TRUE(report_on(tensors).is_complete());
  EXPECT_LT(tensors.size(), all_tensors().size());
  for (const TensorDeclaration& tensor : all_tensors()) {
    if (tensor.name.find("experts.0.w1") != std::string::npos) tensors.push_back(tensor);
  }
  const VerifyReport report = report_on(tensors);
  EXPECT_FALSE(report.is_complete());
  EXPECT_EQ(report.repeated.size(), 2U);  // in both layers
}

TEST(VerifyComplete, ToleratesMtpLayersAndRedundantCopies) {
  auto tensors = all_tensors(true);
  tensors.push_back({"model.layers.2.eh_proj.weight", Dtype::f32, {8, 16}});
  tensors.push_back({"model.layers.2.mlp.gate.weight", Dtype::f32, {4, 8}});
  tensors.push_back({"mtp.fc.weight", Dtype::f32, {4, 8}});
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", Dtype::f32, {2}});
  tensors.push_back({"lm_head.weight", Dtype::f32, {16, 8}});  // zeros, as the embedding
  const VerifyReport report = report_on(tensors, true);
  EXPECT_TRUE(report.is_complete()) << to_text(report);
  EXPECT_EQ(report.extra_mtp.size(), 3U);
  EXPECT_EQ(report.ignored.size(), 2U);
}

TEST(VerifyComplete, IgnoresWhatIsBesideTheLanguageModel) {
  auto tensors = all_tensors();
  for (const char* name :
       {"model.visual.blocks.0.attn.qkv.weight", "visual.patch_embed.proj.bias", "vision_tower.x",
        "model.vision_tower.x", "vision_model.x", "multi_modal_projector.x",
        "model.multi_modal_projector.linear_1.weight", "audio_tower.x", "model.image_newline"}) {
    tensors.push_back({name, Dtype::u8, {2}});
  }
  const VerifyReport report = report_on(tensors);
  EXPECT_TRUE(report.is_complete()) << to_text(report);
  EXPECT_EQ(report.other_parts.size(), 9U);
  EXPECT_THAT(to_text(report), HasSubstr("  not part of the language model, ignored: 9\n"));
  EXPECT_EQ(to_json(report)["tolerated"]["not_language_model"].size(), 9U);
}

TEST(VerifyComplete, StillRefusesWhatOnlyResemblesAnotherPart) {
  auto tensors = all_tensors();
  tensors.push_back({"model.layers.0.visual.weight", Dtype::f32, {2}});
  tensors.push_back({"model.visually.weight", Dtype::f32, {2}});
  EXPECT_EQ(report_on(tensors).unexpected.size(), 2U);
}

TEST(VerifyComplete, RefusesATiedHeadUnlikeTheEmbedding) {
  auto tensors = all_tensors(true);
  tensors.push_back({"lm_head.weight", Dtype::f32, {8, 16}});
  EXPECT_THAT(report_on(tensors, true).differing_twins, ElementsAre("lm_head.weight"));
}

TEST(VerifyReport, TextNamesAtMostSoManyTensors) {
  VerifyReport report;
  report.folder = "tiny";
  report.expected = 1200;
  report.found = 1196;
  report.elements = 1234567;
  report.by_dtype = {{Dtype::bf16, 1190}, {Dtype::f32, 6}};
  report.missing = {"a", "b", "c"};
  report.wrong_shapes = {{"d", {1, 2}, {2, 1}}};
  report.ignored = {"e"};
  EXPECT_EQ(to_text(report, 2),
            "tiny: not complete\n"
            "  tensors: 1,196 of 1,200, 1,190 BF16, 6 F32\n"
            "  elements: 1,234,567\n"
            "  missing: 3\n"
            "    a\n"
            "    b\n"
            "    and 1 more\n"
            "  wrong shape: 1\n"
            "    d: expected [1, 2], got [2, 1]\n"
            "  tolerated, redundant: 1\n"
            "    e\n");
}

TEST(VerifyReport, JsonHoldsEverything) {
  VerifyReport report = report_on(all_tensors());
  report.wrong_dtypes = {{"q", Dtype::u8}};
  const Json json = to_json(report);
  EXPECT_EQ(json.begin().key(), "format");
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["complete"], false);
  EXPECT_EQ(json["tensors"]["expected"], report.expected);
  EXPECT_EQ(json["tensors"]["by_dtype"]["F32"], report.found);
  EXPECT_EQ(json["wrong_dtypes"][0]["dtype"], "U8");
  EXPECT_EQ(json["missing"].size(), 0U);
}

}  // namespace
}  // namespace moestro::checkpoint
