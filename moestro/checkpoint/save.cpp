#include "moestro/checkpoint/save.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
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

/// Takes back the comma, with the spaces behind it, that the text so far ends with.
void drop_last_comma(std::string& json) {
  const std::size_t last = json.find_last_not_of(" \t\r\n");
  if (last != std::string::npos && json[last] == ',') json.resize(last);
}

/// Gives members of objects, at any depth, another value: `edit`, asked with key and first
/// character, returns its text, nullopt to leave the member alone, or empty text to remove it with
/// the comma behind or before it. Every other byte stays: numbers that JSON lacks (Infinity) would
/// not survive being parsed and printed.
template <class Edit>
std::string edit_members(std::string_view json, const Edit& edit) {
  std::string result;
  std::size_t copied = 0;
  for (std::size_t i = json.find('"'); i < json.size();) {
    std::size_t next = end_of_string(json, i);
    const std::size_t colon = skip_spaces(json, next);
    const bool is_key = i > 0 && colon < json.size() && json[colon] == ':';
    const std::size_t value = skip_spaces(json, colon + 1);
    const auto text = is_key ? edit(json.substr(i, next - i), json.substr(value, 1)) : std::nullopt;
    if (text) {
      next = end_of_value(json, value);
      result.append(json.substr(copied, (text->empty() ? i : value) - copied)).append(*text);
      const std::size_t comma = skip_spaces(json, next);
      const bool has_comma = comma < json.size() && json[comma] == ',';
      if (text->empty() && has_comma) next = skip_spaces(json, comma + 1);
      if (text->empty() && !has_comma) drop_last_comma(result);
      copied = next;
    }
    i = json.find('"', next);
  }
  return result.append(json.substr(copied));
}

}  // namespace

std::string saved_config(std::string_view config_json, Dtype dtype) {
  using Text = std::optional<std::string>;
  return edit_members(config_json, [&](std::string_view key, std::string_view start) -> Text {
    const bool is_dtype = key == "\"dtype\"" || key == "\"torch_dtype\"";
    if (is_dtype && start == "\"") return fmt::format("\"{}\"", torch_name(dtype));
    const bool quantises = key == "\"quantization_config\"" || key == "\"compression_config\"";
    return quantises ? Text("") : std::nullopt;
  });
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
  write_file_atomically(folder / "config.json", saved_config(config_json, options.dtype));
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
