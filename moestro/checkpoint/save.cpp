#include "moestro/checkpoint/save.h"

#include <algorithm>
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

const char* torch_name(Dtype dtype) {
  return dtype == Dtype::bf16 ? "bfloat16" : "float32";
}

/// The end of the JSON string that begins at `begin`, its quotes included.
std::size_t end_of_string(std::string_view json, std::size_t begin) {
  std::size_t i = begin + 1;
  while (i < json.size() && json[i] != '"') i += json[i] == '\\' ? 2 : 1;
  return std::min(i + 1, json.size());
}

std::size_t skip_spaces(std::string_view json, std::size_t i) {
  return std::min(json.find_first_not_of(" \t\r\n", i), json.size());
}

/// The end of the JSON value that begins at `begin`.
std::size_t end_of_value(std::string_view json, std::size_t begin) {
  int depth = 0;
  for (std::size_t i = begin; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') {
      i = end_of_string(json, i) - 1;
      if (depth == 0) return i + 1;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return i;
      if (--depth == 0) return i + 1;
    } else if (c == ',' && depth == 0) {
      return i;
    }
  }
  return json.size();
}

/// Removes the member whose key begins at `begin` > 0, with the comma behind or before it, and
/// returns where the text goes on.
std::size_t remove_member(std::string& json, std::size_t begin) {
  const std::size_t value = skip_spaces(json, skip_spaces(json, end_of_string(json, begin)) + 1);
  std::size_t end = end_of_value(json, value);
  const std::size_t next = skip_spaces(json, end);
  if (next < json.size() && json[next] == ',') {
    end = skip_spaces(json, next + 1);
  } else {
    const std::size_t before = json.find_last_not_of(" \t\r\n", begin - 1);
    if (before != std::string::npos && json[before] == ',') begin = before;
  }
  json.erase(begin, end - begin);
  return begin;
}

}  // namespace

std::string without_quantization(std::string_view config_json) {
  std::string json(config_json);
  for (std::size_t i = json.find('"'); i < json.size();) {
    std::size_t end = end_of_string(json, i);
    const std::string_view text = std::string_view(json).substr(i, end - i);
    const std::size_t colon = skip_spaces(json, end);
    const bool is_key = i > 0 && colon < json.size() && json[colon] == ':';
    if (is_key && (text == "\"quantization_config\"" || text == "\"compression_config\"")) {
      end = remove_member(json, i);
    }
    i = json.find('"', end);
  }
  return json;
}

std::string with_dtype(std::string_view config_json, Dtype dtype) {
  std::string result;
  std::size_t copied = 0;
  // Edited as text: numbers that JSON lacks (Infinity) would not survive being parsed and printed.
  for (std::size_t i = config_json.find('"'); i < config_json.size();) {
    const std::size_t end = end_of_string(config_json, i);
    const std::string_view text = config_json.substr(i, end - i);
    const std::size_t colon = skip_spaces(config_json, end);
    const bool is_key = colon < config_json.size() && config_json[colon] == ':';
    if (is_key && (text == "\"dtype\"" || text == "\"torch_dtype\"")) {
      const std::size_t value = skip_spaces(config_json, colon + 1);
      if (value < config_json.size() && config_json[value] == '"') {
        result.append(config_json.substr(copied, value - copied));
        result.append(fmt::format("\"{}\"", torch_name(dtype)));
        copied = end_of_string(config_json, value);
      }
    }
    i = config_json.find('"', std::max(end, copied));
  }
  return result.append(config_json.substr(copied));
}

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
  write_file_atomically(folder / "config.json",
                        with_dtype(without_quantization(config_json), options.dtype));
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
