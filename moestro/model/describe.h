#pragma once
// What `moestro describe` prints: the ledger of a model as text for people or JSON for programs.

#include <string>

#include "moestro/core/json.h"
#include "moestro/model/hf_config.h"
#include "moestro/model/ledger.h"

namespace moestro::model {

/// Tables: the model's shape, parameters by component and per layer kind, FLOPs per token.
[[nodiscard]] std::string describe_text(const HfConfig& config, const Ledger& ledger);

/// Keys: model.{...}, params.{total,active,active_without_embedding,by_component,...},
/// flops_per_token.{model,by_component}, layer_kinds[]. Parameters are whole numbers, FLOPs
/// numbers.
[[nodiscard]] Json describe_json(const HfConfig& config, const Ledger& ledger);

}  // namespace moestro::model
