#pragma once
// Which keys of a config.json mean something here, and which are known not to matter.

#include "moestro/model/internal/config_object.h"

namespace moestro::model::internal {

/// Adds every key of `config` that no family knows to the findings, with the nearest known one.
void find_unknown_keys(const ConfigObject& config);

/// The same for a rope_parameters or rope_scaling object.
void find_unknown_rope_keys(const ConfigObject& rope);

}  // namespace moestro::model::internal
