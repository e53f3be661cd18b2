#pragma once
// Getting a decoder from where its weights are: a Hugging Face folder, a checkpoint, or a seed.

#include <filesystem>
#include <functional>
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

/// What a caller demands of a model, asked before memory is taken for it; throws if it refuses.
using ModelCheck = std::function<void(const model::ModelConfig&)>;

/// Reads config.json and every tensor of a folder. Errors: input, if the model is not trainable
/// here; infeasible, if it does not fit into memory; input, if a tensor is missing or has another
/// shape; in this order.
[[nodiscard]] LoadedModel load_model(const std::filesystem::path& folder);

/// What [model] of a run asks for: weights of `load` (of its newest checkpoint, if it is the folder
/// of a run), or `config` drawn from `init_seed`. Errors: as above, at the place of the key.
[[nodiscard]] LoadedModel load_model(const RunConfig& config, const ModelCheck& check = {});

/// Reads the weights of a decoder that exists. Errors: as load_model.
void load_weights(const std::filesystem::path& folder, Decoder& decoder);

}  // namespace moestro::runtime
