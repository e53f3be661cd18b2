#pragma once
// A Hugging Face checkpoint folder: model.safetensors, or shards with model.safetensors.index.json.
// config.json is read by model/hf_config.h.
//
//   const HfFolder folder("Mixtral-8x7B");
//   for (const model::TensorSpec& spec : model::tensors(config)) folder.read(config, spec, values);

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "moestro/checkpoint/safetensors.h"
#include "moestro/model/tensors.h"

namespace moestro::checkpoint {

/// Where a wanted tensor is stored: a contiguous part of a tensor on disk.
struct TensorLocation {
  std::string name;                 // tensor on disk
  std::vector<std::int64_t> shape;  // its whole shape, as expected
  std::int64_t first_element = 0;
};

/// Whether there is a tensor of that name.
using HasTensor = std::function<bool(const std::string& name)>;

/// Where a tensor of the model is among those that `has` knows: under its own name, or inside a
/// stacked one as model::alternative_locations says; nullopt if nowhere.
[[nodiscard]] std::optional<TensorLocation> locate(const model::ModelConfig& config,
                                                   const model::TensorSpec& spec,
                                                   const HasTensor& has);
/// The tensors of the model that hold `spec` together: itself, or the matrices of single experts
/// (model::expert_pieces) where `has` knows some of those and no stacked tensor.
[[nodiscard]] std::vector<model::TensorSpec> stored_pieces(const model::ModelConfig& config,
                                                           const model::TensorSpec& spec,
                                                           const HasTensor& has);

class HfFolder {
 public:
  /// Maps all files. If there are both a single file and an index, the single file counts, as in
  /// transformers. Errors: input, if there are neither; if the index is malformed, names a shard
  /// that is absent or outside the folder, or lists a tensor that its shard lacks; if a tensor is
  /// in two shards; and as SafetensorsFile.
  explicit HfFolder(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const std::vector<SafetensorsFile>& files() const { return files_; }
  /// All tensors, sorted.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] bool has(std::string_view name) const;
  /// The file that holds a tensor. Errors: input, if there is no such tensor.
  [[nodiscard]] const SafetensorsFile& file_of(std::string_view name) const;
  /// Errors: input, if there is no such tensor.
  [[nodiscard]] const TensorInfo& info(std::string_view name) const;
  /// Converts elements of a tensor. Errors: as info and SafetensorsFile::read_floats.
  void read_floats(std::string_view name, std::span<float> out, std::int64_t first = 0) const;

  /// Where the folder holds a tensor, and in which pieces: as the functions above.
  [[nodiscard]] std::optional<TensorLocation> locate(const model::ModelConfig& config,
                                                     const model::TensorSpec& spec) const;
  [[nodiscard]] std::vector<model::TensorSpec> stored_pieces(const model::ModelConfig& config,
                                                             const model::TensorSpec& spec) const;
  /// Reads a tensor of the model as float, in the layout of `spec`. Reading the embedding of a
  /// model with tied embeddings also checks a head that is stored nevertheless.
  /// Shapes: out has spec.elements(). Errors: input, if it is nowhere, has another shape (expected
  /// and got are named), is no float type or holds numbers that are not finite; if a stored tied
  /// head differs from the embedding.
  void read(const model::ModelConfig& config, const model::TensorSpec& spec,
            std::span<float> out) const;

 private:
  void add_file(const std::filesystem::path& file);
  void add_shards(const std::filesystem::path& index);

  std::filesystem::path path_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, std::size_t> index_;  // name -> place in files_
};

/// Refuses quantised weights, which read() would take for missing or for tensors of another type.
/// `place` names the quantisation's key in messages. Errors: input, if a tensor is of no float
/// type.
void require_plain_weights(const HfFolder& folder, std::string_view place,
                           std::string_view quantization);

/// The name of a head that is stored beside embeddings which config.json ties; empty if none is.
[[nodiscard]] std::string tied_head(const HfFolder& folder, const model::ModelConfig& config);

/// Whether two tensors of a folder hold the same values. Errors: as HfFolder::info.
[[nodiscard]] bool has_equal_values(const HfFolder& folder, std::string_view a, std::string_view b);

}  // namespace moestro::checkpoint
