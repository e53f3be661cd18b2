#pragma once
// Getting a decoder from where its weights are: a Hugging Face folder, a checkpoint, or a seed.

#include <filesystem>
#include <string>

#include "moestro/model/hf_config.h"
#include "moestro/runtime/decoder.h"
#include "moestro/runtime/run_config.h"

namespace moestro::runtime {

/// A decoder and the config.json it came from (to be written beside saved weights).
struct LoadedModel {
  Decoder decoder;
  model::HfConfig source;
};

/// Reads config.json and every tensor of a folder. Errors: input, if a tensor is missing or has
/// another shape, or the model is not trainable here.
[[nodiscard]] LoadedModel load_model(const std::filesystem::path& folder);

/// What [model] of a run asks for: weights of `load` (of its newest checkpoint, if it is the folder
/// of a run), or `config` drawn from `init_seed`.
[[nodiscard]] LoadedModel load_model(const ModelSection& section);

/// Reads the weights of a decoder that exists. Errors: as load_model.
void load_weights(const std::filesystem::path& folder, Decoder& decoder);

}  // namespace moestro::runtime
