#pragma once
// From the routing of a step's micro-batches to the numbers a user watches.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "moestro/layers/context.h"
#include "moestro/layers/weights.h"
#include "moestro/runtime/trainer.h"

namespace moestro::runtime {

/// One layer's routing, added over the micro-batches of a step.
struct LayerRouting {
  std::vector<std::int64_t> expert_tokens;  // [experts]
  double aux_loss_sum = 0.0;
  std::int64_t micro_batches = 0;
};

/// By layer index.
using StepRouting = std::map<int, LayerRouting>;

/// Adds the records of a step's micro-batches, layer by layer.
[[nodiscard]] StepRouting sum_routing(const std::vector<layers::RoutingRecord>& records);

/// Metrics of a step; nullopt if no layer routes.
/// Definitions: max_over_mean = busiest expert / mean, worst layer; Gini coefficient of the
/// experts' token counts, mean over layers.
[[nodiscard]] std::optional<MoeReport> summarise(const StepRouting& routing);

/// Gini coefficient of non-negative counts: 0 all equal, (n-1)/n all in one. 0 if all are 0.
[[nodiscard]] double gini(std::vector<std::int64_t> counts);

/// Moves every selection bias by rate * sign(mean load - load): experts that got less than their
/// share become more attractive. Source: Wang et al. 2024, auxiliary-loss-free load balancing,
/// algorithm 1.
void update_selection_biases(const StepRouting& routing, double rate,
                             layers::ModelWeights& weights);

}  // namespace moestro::runtime
