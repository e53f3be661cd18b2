#pragma once
// Writing a model as a Hugging Face folder that transformers loads.
//
//   save_hf_folder("out", config_json, model::tensors(config), weights, {.dtype = Dtype::bf16});

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "moestro/checkpoint/dtype.h"
#include "moestro/core/units.h"
#include "moestro/model/tensors.h"

namespace moestro::checkpoint {

/// Gives the values of a tensor, valid until the next call: the caller's own memory, or a buffer
/// that the callback fills. Shape: spec.elements(). Called once per tensor.
using TensorValues = std::function<std::span<const float>(const model::TensorSpec& spec)>;

struct SaveOptions {
  Dtype dtype = Dtype::f32;    // F32 or BF16
  Bytes max_shard_bytes{5e9};  // of tensor data per file; a larger tensor has a file of its own
};

/// Which tensors go into which file: as many as fit, in order, at least one.
/// Result: per file, indices into `specs`. Errors: internal, if max_shard_bytes is not positive.
[[nodiscard]] std::vector<std::vector<std::size_t>> split_into_shards(
    const std::vector<model::TensorSpec>& specs, const SaveOptions& options);

/// What a checkpoint keeps of a config.json: `dtype` and `torch_dtype`, where it has them, name the
/// dtype of the saved weights, in which transformers loads them; `quantization_config` and
/// `compression_config` are gone, since the weights are plain. Every other byte as it is.
[[nodiscard]] std::string saved_config(std::string_view config_json, Dtype dtype);

/// Writes config.json (saved_config of the text HfConfig::json) and the tensors into an existing
/// folder: one model.safetensors, or shards model-00001-of-0000N.safetensors with
/// model.safetensors.index.json. Errors: io.
void write_hf_files(const std::filesystem::path& folder, std::string_view config_json,
                    const std::vector<model::TensorSpec>& specs, const TensorValues& values,
                    const SaveOptions& options);

/// The same, as a new folder that appears only when complete and replaces a checkpoint of that
/// name. Errors: as AtomicFolder and write_hf_files.
void save_hf_folder(const std::filesystem::path& folder, std::string_view config_json,
                    const std::vector<model::TensorSpec>& specs, const TensorValues& values,
                    const SaveOptions& options = {});

}  // namespace moestro::checkpoint
