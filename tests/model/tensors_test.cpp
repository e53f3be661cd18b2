#include "moestro/model/tensors.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "moestro/core/file.h"
#include "moestro/model/hf_config.h"
#include "tests/model/model_files.h"

namespace moestro::model {
namespace {

using Shapes = std::map<std::string, std::vector<std::int64_t>>;

Shapes shapes_of(const ModelConfig& config) {
  Shapes shapes;
  for (const TensorSpec& tensor : tensors(config)) {
    if (tensor.component != Component::mtp) shapes[tensor.name] = tensor.shape;
  }
  return shapes;
}

/// Names and shapes in the header of a safetensors file.
Shapes saved_shapes(const std::filesystem::path& path) {
  const std::string bytes = read_file(path);
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof size);
  Shapes shapes;
  const Json header = parse_json(std::string_view(bytes).substr(sizeof size, size), path.string());
  for (const auto& [name, entry] : header.items()) {
    if (name != "__metadata__") shapes[name] = entry["shape"].get<std::vector<std::int64_t>>();
  }
  return shapes;
}

TEST(Tensors, MatchSavedCheckpointsNameByName) {
  const std::filesystem::path source = MOESTRO_SOURCE_DIR;
  int compared = 0;
  for (const auto& golden :
       {source / "tests" / "golden", source.parent_path() / "shared" / "golden"}) {
    std::error_code absent;
    for (const auto& folder : std::filesystem::directory_iterator(golden, absent)) {
      if (!std::filesystem::exists(folder.path() / "model.safetensors")) continue;
      EXPECT_EQ(shapes_of(read_hf_config(folder.path()).model),
                saved_shapes(folder.path() / "model.safetensors"))
          << folder.path();
      ++compared;
    }
  }
  EXPECT_GE(compared, 5);
}

TEST(Tensors, NamesAreUniqueAndShapesPositive) {
  for (const std::string& name : built_in_models()) {
    std::set<std::string> names;
    for (const TensorSpec& tensor : tensors(resolve_model(name).model)) {
      EXPECT_TRUE(names.insert(tensor.name).second) << name << " " << tensor.name;
      EXPECT_GT(tensor.elements(), 0) << name << " " << tensor.name;
    }
  }
}

TEST(Tensors, DeepSeekV2LiteHasAsManyAsPublished) {
  EXPECT_EQ(tensors(resolve_model("deepseek-v2-lite").model).size(), 5291U);
}

TEST(Tensors, PredictionLayerOfDeepSeekIsLayer61) {
  const std::vector<TensorSpec> list = tensors(resolve_model("deepseek-v3").model);
  std::set<std::string> names;
  for (const TensorSpec& tensor : list) {
    if (tensor.component == Component::mtp) names.insert(tensor.name);
  }
  for (const char* name : {"embed_tokens.weight", "enorm.weight", "hnorm.weight", "eh_proj.weight",
                           "shared_head.norm.weight", "shared_head.head.weight",
                           "mlp.gate.e_score_correction_bias", "self_attn.kv_b_proj.weight"}) {
    EXPECT_TRUE(names.count(fmt::format("model.layers.61.{}", name))) << name;
  }
}

TEST(Tensors, NestedTextModelsHaveTheirPrefix) {
  const Shapes scout = shapes_of(resolve_model("llama-4-scout-17b-16e").model);
  EXPECT_TRUE(scout.count("language_model.lm_head.weight"));
  EXPECT_EQ(scout.at("language_model.model.layers.0.feed_forward.experts.gate_up_proj"),
            (std::vector<std::int64_t>{16, 5120, 16384}));
  const Shapes qwen = shapes_of(resolve_model("qwen3.5-35b-a3b").model);
  EXPECT_TRUE(qwen.count("lm_head.weight"));
  EXPECT_EQ(qwen.at("model.language_model.layers.0.mlp.experts.gate_up_proj"),
            (std::vector<std::int64_t>{256, 1024, 2048}));
}

TEST(Tensors, TextOnlyQwen35KeepsExpertsApart) {
  const Json nested = testing::model_json("qwen3.5-35b-a3b");
  const Shapes shapes = shapes_of(testing::parse_model(nested["text_config"]));
  EXPECT_TRUE(shapes.count("model.layers.0.mlp.experts.0.gate_proj.weight"));
  EXPECT_FALSE(shapes.count("model.layers.0.mlp.experts.gate_up_proj"));
}

/// The first location of a tensor's alternatives with that name.
AlternativeLocation location(std::string_view model, std::string_view tensor,
                             std::string_view name) {
  const ModelConfig config = resolve_model(model).model;
  for (const TensorSpec& spec : tensors(config)) {
    if (spec.name != tensor) continue;
    for (const AlternativeLocation& candidate : alternative_locations(config, spec)) {
      if (candidate.name == name) return candidate;
    }
  }
  return {};
}

TEST(AlternativeLocations, ExpertsAreRowsOfTheFusedTensor) {
  const std::int64_t h = 4096, i = 14336;
  const AlternativeLocation up =
      location("mixtral-8x7b", "model.layers.3.block_sparse_moe.experts.5.w3.weight",
               "model.layers.3.mlp.experts.gate_up_proj");
  EXPECT_EQ(up.shape, (std::vector<std::int64_t>{8, 2 * i, h}));
  EXPECT_EQ(up.first_element, 5 * 2 * i * h + i * h);
  const AlternativeLocation down =
      location("mixtral-8x7b", "model.layers.3.block_sparse_moe.experts.5.w2.weight",
               "model.layers.3.mlp.experts.down_proj");
  EXPECT_EQ(down.shape, (std::vector<std::int64_t>{8, h, i}));
  EXPECT_EQ(down.first_element, 5 * h * i);
}

TEST(AlternativeLocations, FollowTheRenamesOfTransformersV5) {
  EXPECT_FALSE(location("mixtral-8x7b", "model.layers.0.block_sparse_moe.gate.weight",
                        "model.layers.0.mlp.gate.weight")
                   .name.empty());
  EXPECT_FALSE(location("phi-3.5-moe", "model.layers.0.block_sparse_moe.gate.weight",
                        "model.layers.0.mlp.router.weight")
                   .name.empty());
  EXPECT_FALSE(location("granite-3.0-1b-a400m",
                        "model.layers.0.block_sparse_moe.input_linear.weight",
                        "model.layers.0.block_sparse_moe.experts.gate_up_proj")
                   .name.empty());
  const AlternativeLocation plain =
      location("nemotron-3-nano-30b-a3b", "backbone.layers.1.mixer.experts.2.up_proj.weight",
               "model.layers.1.mixer.experts.up_proj");
  EXPECT_EQ(plain.first_element, 2 * 1856 * 2688);
}

TEST(ExpertPieces, OfNestedQwen35AreWhatTransformersSaves) {
  const ModelConfig config = resolve_model("qwen3.5-35b-a3b").model;
  const std::string experts = "model.language_model.layers.3.mlp.experts.";
  int stacked = 0;
  for (const TensorSpec& spec : tensors(config)) {
    const std::vector<TensorSpec> pieces = expert_pieces(config, spec);
    if (pieces.empty()) continue;
    std::int64_t elements = 0;
    for (const TensorSpec& piece : pieces) elements += piece.elements();
    EXPECT_EQ(elements, spec.elements()) << spec.name;
    ++stacked;
    if (spec.name == experts + "gate_up_proj") {
      EXPECT_EQ(pieces.size(), 512U);
      EXPECT_EQ(pieces[2].name, experts + "1.gate_proj.weight");
      EXPECT_EQ(pieces[3].name, experts + "1.up_proj.weight");
      EXPECT_EQ(pieces[3].shape, (std::vector<std::int64_t>{512, 2048}));
    }
    if (spec.name == experts + "down_proj") {
      EXPECT_EQ(pieces.back().name, experts + "255.down_proj.weight");
      EXPECT_EQ(pieces.back().shape, (std::vector<std::int64_t>{2048, 512}));
    }
  }
  EXPECT_EQ(stacked, 2 * 41);  // 40 layers and one for multi-token prediction
}

TEST(ExpertPieces, OtherFamiliesHaveNone) {
  for (const char* name :
       {"tiny", "gpt-oss-20b", "llama-4-scout-17b-16e", "granite-3.0-1b-a400m"}) {
    const ModelConfig config = resolve_model(name).model;
    for (const TensorSpec& spec : tensors(config)) {
      EXPECT_TRUE(expert_pieces(config, spec).empty()) << name << " " << spec.name;
    }
  }
}

TEST(AlternativeLocations, StayInsideTheirTensor) {
  for (const std::string& name : built_in_models()) {
    const ModelConfig config = resolve_model(name).model;
    for (const TensorSpec& spec : tensors(config)) {
      for (const AlternativeLocation& other : alternative_locations(config, spec)) {
        TensorSpec whole;
        whole.shape = other.shape;
        ASSERT_NE(other.name, spec.name);
        ASSERT_LE(other.first_element + spec.elements(), whole.elements()) << name << spec.name;
      }
    }
  }
}

}  // namespace
}  // namespace moestro::model
