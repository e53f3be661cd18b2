#include "moestro/checkpoint/save.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "moestro/checkpoint/atomic_folder.h"
#include "moestro/checkpoint/safetensors.h"
#include "moestro/checkpoint/safetensors_writer.h"
#include "moestro/core/error.h"
#include "moestro/core/file.h"
#include "moestro/core/json.h"

namespace moestro::checkpoint {
namespace {

std::string shard_name(std::size_t shard, std::size_t shards) {
  if (shards == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards);
}

void write_shard(const std::filesystem::path& file, const std::vector<model::TensorSpec>& specs,
                 const std::vector<std::size_t>& chosen, const TensorValues& values, Dtype dtype) {
  std::vector<TensorDeclaration> declarations;
  declarations.reserve(chosen.size());
  for (const std::size_t i : chosen) declarations.push_back({specs[i].name, dtype, specs[i].shape});
  SafetensorsWriter writer(file, std::move(declarations));
  for (const std::size_t i : chosen) writer.write_floats(specs[i].name, values(specs[i]));
  writer.finish();
}

/// Sorted by tensor like transformers' own.
void write_index(const std::filesystem::path& folder, const std::vector<model::TensorSpec>& specs,
                 const std::vector<std::vector<std::size_t>>& shards, Dtype dtype) {
  std::map<std::string, std::string> weight_map;
  std::size_t total = 0;
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    for (const std::size_t i : shards[shard]) {
      weight_map[specs[i].name] = shard_name(shard, shards.size());
      total += bytes_of(dtype, specs[i].shape);
    }
  }
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  write_file_atomically(folder / "model.safetensors.index.json", index.dump(2) + "\n");
}

}  // namespace

std::vector<std::vector<std::size_t>> split_into_shards(const std::vector<model::TensorSpec>& specs,
                                                        const SaveOptions& options) {
  MOESTRO_CHECK(options.max_shard_bytes > Bytes{0.0}, "shards of {}",
                to_string(options.max_shard_bytes));
  std::vector<std::vector<std::size_t>> shards(1);
  Bytes filled{0.0};
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const Bytes bytes{static_cast<double>(bytes_of(options.dtype, specs[i].shape))};
    if (!shards.back().empty() && filled + bytes > options.max_shard_bytes) {
      shards.emplace_back();
      filled = Bytes{0.0};
    }
    shards.back().push_back(i);
    filled += bytes;
  }
  return shards;
}

void write_hf_files(const std::filesystem::path& folder, std::string_view config_json,
                    const std::vector<model::TensorSpec>& specs, const TensorValues& values,
                    const SaveOptions& options) {
  write_file_atomically(folder / "config.json", config_json);
  const auto shards = split_into_shards(specs, options);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    write_shard(folder / shard_name(i, shards.size()), specs, shards[i], values, options.dtype);
  }
  if (shards.size() > 1) write_index(folder, specs, shards, options.dtype);
}

void save_hf_folder(const std::filesystem::path& folder, std::string_view config_json,
                    const std::vector<model::TensorSpec>& specs, const TensorValues& values,
                    const SaveOptions& options) {
  AtomicFolder target(folder);
  write_hf_files(target.staging(), config_json, specs, values, options);
  target.commit();
}

}  // namespace moestro::checkpoint
