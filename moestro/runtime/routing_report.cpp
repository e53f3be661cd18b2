#include "moestro/runtime/routing_report.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>

namespace moestro::runtime {
namespace {

std::int64_t total_of(const std::vector<std::int64_t>& counts) {
  std::int64_t total = 0;
  for (const std::int64_t n : counts) total += n;
  return total;
}

}  // namespace

StepRouting sum_routing(const std::vector<layers::RoutingRecord>& records) {
  StepRouting routing;
  for (const layers::RoutingRecord& record : records) {
    LayerRouting& layer = routing[record.layer];
    layer.expert_tokens.resize(record.expert_tokens.size());
    for (std::size_t e = 0; e < record.expert_tokens.size(); ++e) {
      layer.expert_tokens[e] += record.expert_tokens[e];
    }
    layer.aux_loss_sum += record.aux_loss;
    ++layer.micro_batches;
  }
  return routing;
}

double gini(std::vector<std::int64_t> counts) {
  std::sort(counts.begin(), counts.end());
  const auto n = static_cast<double>(counts.size());
  const auto total = static_cast<double>(total_of(counts));
  if (total == 0.0) return 0.0;
  double weighted = 0.0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    weighted += (2.0 * static_cast<double>(i + 1) - n - 1.0) * static_cast<double>(counts[i]);
  }
  return weighted / (n * total);
}

std::optional<MoeReport> summarise(const StepRouting& routing) {
  if (routing.empty()) return std::nullopt;
  MoeReport report;
  for (const auto& [index, layer] : routing) {
    const auto& counts = layer.expert_tokens;
    const double mean = static_cast<double>(total_of(counts)) / static_cast<double>(counts.size());
    const auto most = static_cast<double>(*std::max_element(counts.begin(), counts.end()));
    if (mean > 0.0) report.max_over_mean = std::max(report.max_over_mean, most / mean);
    report.gini += gini(counts) / static_cast<double>(routing.size());
    report.dead_experts += std::count(counts.begin(), counts.end(), 0);
    report.aux_loss += layer.aux_loss_sum / static_cast<double>(layer.micro_batches) /
                       static_cast<double>(routing.size());
  }
  return report;
}

void update_selection_biases(const StepRouting& routing, double rate,
                             layers::ModelWeights& weights) {
  for (const auto& [index, layer] : routing) {
    const at::Tensor& bias = weights.layers[static_cast<std::size_t>(index)].moe.selection_bias;
    if (!bias.defined()) continue;
    auto* value = bias.data_ptr<float>();
    const auto experts = static_cast<std::int64_t>(layer.expert_tokens.size());
    const std::int64_t total = total_of(layer.expert_tokens);
    for (std::size_t e = 0; e < layer.expert_tokens.size(); ++e) {
      const std::int64_t load = layer.expert_tokens[e] * experts;  // compared with `total` exactly
      const double direction = load < total ? 1.0 : load > total ? -1.0 : 0.0;
      value[e] += static_cast<float>(rate * direction);
    }
  }
}

}  // namespace moestro::runtime
