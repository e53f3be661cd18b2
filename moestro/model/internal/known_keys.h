#pragma once
// Which keys of a config.json mean something here, and which are known not to matter.

#include <string>
#include <vector>

#include "moestro/model/internal/config_object.h"

namespace moestro::model::internal {

/// Adds every key of `config` that no family knows to the findings, with the nearest known one.
void find_unknown_keys(const ConfigObject& config);

/// The same for a rope_parameters or rope_scaling object.
void find_unknown_rope_keys(const ConfigObject& rope);

/// A key of the object that no family knows and that is close to one of the spellings, or empty.
[[nodiscard]] std::string unknown_key_near(const ConfigObject& config,
                                           const std::vector<std::string>& spellings);

/// Holds keys of the text model that stand at the root of a nested file against text_config: one
/// that only the root has becomes a finding. Errors: input, if they differ.
void check_outer_keys(const ConfigObject& root, const ConfigObject& text);

}  // namespace moestro::model::internal
