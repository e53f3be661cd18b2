#include "moestro/checkpoint/hf_folder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "moestro/checkpoint/usable_numbers.h"
#include "moestro/core/error.h"
#include "moestro/core/json.h"
#include "moestro/core/text.h"

namespace moestro::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kOtherWeights =
    "the file is damaged, or the training that wrote it had diverged: take other weights";
constexpr const char* kIndexFile = "model.safetensors.index.json";

bool is_there(const fs::path& path) {
  std::error_code unreadable;  // counts as absent
  return fs::exists(path, unreadable);
}

/// Tensor -> shard, as the index says. Shard names are proved to stay inside the folder.
std::map<std::string, std::string> read_weight_map(const fs::path& index) {
  const Json json = read_json_file(index);
  const auto found = json.is_object() ? json.find("weight_map") : json.end();
  if (found == json.end() || !found->is_object()) {
    throw input_error(index.string(),
                      "expected an object \"weight_map\" from tensors to shards, but there is "
                      "none; download the file again");
  }
  std::map<std::string, std::string> weight_map;
  for (const auto& [name, shard] : found->items()) {
    const std::string file = shard.is_string() ? shard.get<std::string>() : "";
    const bool is_plain_name =
        !file.empty() && file != "." && file != ".." &&
        file.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
    if (!is_plain_name) {
      throw input_error(fmt::format("{} weight_map[\"{}\"]", index.string(), printable(name)),
                        "expected the name of a file in the same folder, got {}",
                        printable(shard.dump()));
    }
    weight_map[name] = file;
  }
  return weight_map;
}

/// Compares a stored shape with the expected one.
void require_shape(const std::string& file, const TensorInfo& tensor,
                   std::span<const std::int64_t> expected) {
  if (std::equal(tensor.shape.begin(), tensor.shape.end(), expected.begin(), expected.end()))
    return;
  throw input_error(fmt::format("{} tensor \"{}\"", file, printable(tensor.name)),
                    "expected shape {}, got {}; config.json and weights do not belong together",
                    shape_text(expected), shape_text(tensor.shape));
}

}  // namespace

std::optional<TensorLocation> locate(const model::ModelConfig& config,
                                     const model::TensorSpec& spec, const HasTensor& has) {
  if (has(spec.name)) return TensorLocation{spec.name, spec.shape, 0};
  for (const model::AlternativeLocation& place : model::alternative_locations(config, spec)) {
    if (has(place.name)) return TensorLocation{place.name, place.shape, place.first_element};
  }
  return std::nullopt;
}

std::vector<model::TensorSpec> stored_pieces(const model::ModelConfig& config,
                                             const model::TensorSpec& spec, const HasTensor& has) {
  if (locate(config, spec, has)) return {spec};
  std::vector<model::TensorSpec> pieces = model::expert_pieces(config, spec);
  const bool has_any = std::any_of(pieces.begin(), pieces.end(), [&](const auto& piece) {
    return locate(config, piece, has).has_value();
  });
  return has_any ? pieces : std::vector{spec};
}

HfFolder::HfFolder(const fs::path& path) : path_(path) {
  if (is_there(path / kSingleFile)) {
    add_file(path / kSingleFile);
  } else if (is_there(path / kIndexFile)) {
    add_shards(path / kIndexFile);
  } else {
    const bool has_pickle =
        is_there(path / "pytorch_model.bin") || is_there(path / "pytorch_model.bin.index.json");
    throw input_error(path.string(), "expected a folder with {} or {}, but there is neither; {}",
                      kSingleFile, kIndexFile,
                      has_pickle
                          ? "convert pytorch_model.bin to safetensors with transformers first"
                          : "check the path, or download the weights");
  }
}

void HfFolder::add_file(const fs::path& file) {
  files_.emplace_back(file);
  for (const TensorInfo& tensor : files_.back().tensors()) {
    const auto [found, is_new] = index_.emplace(tensor.name, files_.size() - 1);
    if (is_new) continue;
    throw input_error(file.string(),
                      "expected every tensor once, but \"{}\" is also in {}; remove one of them",
                      printable(tensor.name), files_[found->second].path().filename().string());
  }
}

void HfFolder::add_shards(const fs::path& index) {
  const std::map<std::string, std::string> weight_map = read_weight_map(index);
  std::set<std::string> shards;
  for (const auto& [name, shard] : weight_map) shards.insert(shard);
  for (const std::string& shard : shards) {
    if (!is_there(path_ / shard)) {
      throw input_error(index.string(),
                        "expected the shard {}, but there is no such file; download it", shard);
    }
    add_file(path_ / shard);
  }
  for (const auto& [name, shard] : weight_map) {
    if (has(name) && file_of(name).path().filename() == shard) continue;
    throw input_error(index.string(),
                      "expected tensor \"{}\" in {}, but that shard lacks it; download index and "
                      "shards again",
                      printable(name), shard);
  }
  for (const auto& [name, place] : index_) {
    if (weight_map.contains(name)) continue;
    throw input_error(files_[place].path().string(),
                      "expected only tensors that {} lists, got \"{}\"; "
                      "download index and shards again",
                      kIndexFile, printable(name));
  }
}

std::vector<std::string> HfFolder::names() const {
  std::vector<std::string> names;
  names.reserve(index_.size());
  for (const auto& [name, place] : index_) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

bool HfFolder::has(std::string_view name) const {
  return index_.contains(std::string(name));
}

const SafetensorsFile& HfFolder::file_of(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  if (found != index_.end()) return files_[found->second];
  throw missing_tensor(path_, name, names());
}

const TensorInfo& HfFolder::info(std::string_view name) const {
  return file_of(name).info(name);
}

void HfFolder::read_floats(std::string_view name, std::span<float> out, std::int64_t first) const {
  file_of(name).read_floats(name, out, first);
}

std::optional<TensorLocation> HfFolder::locate(const model::ModelConfig& config,
                                               const model::TensorSpec& spec) const {
  return checkpoint::locate(config, spec, [&](const std::string& name) { return has(name); });
}

std::vector<model::TensorSpec> HfFolder::stored_pieces(const model::ModelConfig& config,
                                                       const model::TensorSpec& spec) const {
  return checkpoint::stored_pieces(config, spec,
                                   [&](const std::string& name) { return has(name); });
}

void HfFolder::read(const model::ModelConfig& config, const model::TensorSpec& spec,
                    std::span<float> out) const {
  const std::vector<model::TensorSpec> pieces = stored_pieces(config, spec);
  if (pieces.front().name != spec.name) {
    for (const model::TensorSpec& piece : pieces) {
      const auto elements = static_cast<std::size_t>(piece.elements());
      read(config, piece, out.first(elements));
      out = out.subspan(elements);
    }
    return;
  }
  const auto place = locate(config, spec);
  const SafetensorsFile& file = file_of(place ? place->name : spec.name);
  require_shape(file.path().string(), file.info(place->name), place->shape);
  file.read_floats(place->name, out, place->first_element);
  Unusable unusable = find_unusable(out);
  unusable.first += place->first_element;
  require_usable(unusable, kLowest, file.path().string(), place->name, kOtherWeights);
  if (spec.role != model::Role::embedding) return;
  const std::string twin = tied_head(*this, config);
  if (!twin.empty() && !has_equal_values(*this, place->name, twin)) {
    throw input_error(fmt::format("{} tensor \"{}\"", path_.string(), twin),
                      "expected the values of \"{}\", since config.json ties them, got others; set "
                      "tie_word_embeddings to false or remove the tensor",
                      place->name);
  }
}

std::string tied_head(const HfFolder& folder, const model::ModelConfig& config) {
  if (!config.tied_embeddings) return "";
  const auto place = folder.locate(config, model::head_tensor(config));
  return place ? place->name : "";
}

void require_plain_weights(const HfFolder& folder, std::string_view place,
                           std::string_view quantization) {
  for (const SafetensorsFile& file : folder.files()) {
    for (const TensorInfo& tensor : file.tensors()) {
      if (converts_to_float(tensor.dtype)) continue;
      throw input_error(place,
                        "expected weights in F32, BF16, F16 or F64, got weights quantised as {} "
                        "({} is {}); dequantise the checkpoint first, and remove this key",
                        quantization, printable(tensor.name), to_string(tensor.dtype));
    }
  }
}

bool has_equal_values(const HfFolder& folder, std::string_view a, std::string_view b) {
  constexpr std::int64_t kChunk = 1 << 16;  // elements; embeddings are too large to convert at once
  if (folder.info(a).shape != folder.info(b).shape) return false;
  std::vector<float> left(kChunk), right(kChunk);
  const std::int64_t n = folder.info(a).elements();
  for (std::int64_t first = 0; first < n; first += kChunk) {
    const auto count = static_cast<std::size_t>(std::min(kChunk, n - first));
    folder.read_floats(a, std::span(left).first(count), first);
    folder.read_floats(b, std::span(right).first(count), first);
    if (!std::equal(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(count), right.begin()))
      return false;
  }
  return true;
}

}  // namespace moestro::checkpoint
