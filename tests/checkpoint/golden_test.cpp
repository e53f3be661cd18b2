// Checkpoints as transformers writes them, of every family in the reference outputs.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "moestro/checkpoint/hf_folder.h"
#include "moestro/checkpoint/verify_report.h"
#include "moestro/model/hf_config.h"

namespace moestro::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Folders with a model: our own, and those beside the repository where there are any.
std::vector<fs::path> golden_models() {
  std::vector<fs::path> folders;
  const fs::path source = MOESTRO_SOURCE_DIR;
  for (const auto& root :
       {source / "tests" / "golden", source.parent_path() / "shared" / "golden"}) {
    std::error_code absent;
    for (const auto& entry : fs::directory_iterator(root, absent)) {
      if (fs::exists(entry.path() / "model.safetensors")) folders.push_back(entry.path());
    }
  }
  return folders;
}

TEST(GoldenCheckpoints, AreCompleteAndReadableToTheLastTensor) {
  const std::vector<fs::path> folders = golden_models();
  ASSERT_GE(folders.size(), 5U);
  for (const fs::path& path : folders) {
    const model::ModelConfig config = model::read_hf_config(path).model;
    const HfFolder folder(path);
    const VerifyReport report = verify_complete(folder, config);
    EXPECT_TRUE(report.is_complete()) << to_text(report);
    for (const model::TensorSpec& spec : model::tensors(config)) {
      if (spec.component == model::Component::mtp) continue;  // transformers drops these
      std::vector<float> values(static_cast<std::size_t>(spec.elements()));
      folder.read(config, spec, values);
      EXPECT_TRUE(std::ranges::all_of(values, [](float x) { return std::isfinite(x); }))
          << spec.name;
    }
  }
}

TEST(GoldenCheckpoints, InputsAreTokenIds) {
  const std::vector<fs::path> folders = golden_models();
  ASSERT_GE(folders.size(), 5U);
  for (const fs::path& path : folders) {
    const model::ModelConfig config = model::read_hf_config(path).model;
    const SafetensorsFile file(path / "inputs.safetensors");
    const TensorInfo& info = file.info("input_ids");
    std::vector<std::int64_t> ids(static_cast<std::size_t>(info.elements()));
    file.read_integers("input_ids", ids);
    EXPECT_TRUE(std::ranges::all_of(ids, [&](std::int64_t id) {
      return id >= 0 && id < config.vocab;
    })) << path;
  }
}

}  // namespace
}  // namespace moestro::checkpoint
