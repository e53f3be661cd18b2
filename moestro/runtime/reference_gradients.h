#pragma once
// Gradients in a file of reference outputs: "grad.NAME", with NAME in any form in which files hold
// the tensor itself.

#include <set>
#include <string>
#include <vector>

#include "moestro/checkpoint/safetensors.h"
#include "moestro/model/tensors.h"

namespace moestro::runtime {

/// The gradient of a tensor of the model, in its layout: stored under its own name, as part of a
/// stacked tensor (model::alternative_locations), or as those of its experts one by one
/// (model::expert_pieces). Adds the names it took to `used`. Shape: spec.elements().
/// Errors: input, if it is nowhere or too short.
[[nodiscard]] std::vector<float> read_reference_gradient(
    const model::ModelConfig& config, const model::TensorSpec& spec,
    const checkpoint::SafetensorsFile& expected, std::set<std::string>& used);

}  // namespace moestro::runtime
