#include "moestro/model/describe.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "moestro/core/table.h"
#include "moestro/core/text.h"

namespace moestro::model {
namespace {

/// What the FLOPs of a model are printed in: one unit for all, so that rows compare.
struct FlopUnit {
  const char* name;
  double value;
  [[nodiscard]] std::string column() const { return fmt::format("{}/token", name); }
  [[nodiscard]] std::string operator()(Flops flops) const {
    return fmt::format("{:.3f}", flops.value() / value);
  }
};

/// GFLOP, or the largest unit of which a small model takes at least one.
FlopUnit flop_unit(const Ledger& ledger) {
  constexpr FlopUnit kUnits[] = {{"GFLOP", 1e9}, {"MFLOP", 1e6}, {"kFLOP", 1e3}};
  for (const FlopUnit& unit : kUnits) {
    if (ledger.flops.value() >= unit.value) return unit;
  }
  return {"FLOP", 1.0};
}

std::string share(double part, double whole) {
  return whole > 0.0 ? fmt::format("{:.1f} %", 100.0 * part / whole) : "";
}

std::int64_t count_layers(const ModelConfig& model, FfnKind ffn) {
  return std::count_if(model.layers.begin(), model.layers.end(),
                       [&](const LayerConfig& layer) { return layer.ffn == ffn; });
}

/// What the file holds that the numbers leave out.
std::string exceptions_text(const HfConfig& config) {
  std::string text;
  if (!config.quantization.empty()) {
    text += fmt::format("weights: counted as if unquantised; the file's own are stored as {}\n",
                        config.quantization);
  }
  if (!config.left_out.empty()) {
    text += fmt::format("not counted: {}\n", join(config.left_out, ", "));
  }
  return text;
}

std::string shape_text(const HfConfig& config) {
  const ModelConfig& model = config.model;
  const RouterConfig& router = model.moe.router;
  std::string text = fmt::format("{}: {}, {} layers, hidden {}, vocabulary {}{}\n",
                                 printable(config.source, config.source.size()),
                                 printable(model.model_type), model.layers.size(), model.hidden,
                                 model.vocab, model.tied_embeddings ? ", tied embeddings" : "");
  const std::int64_t moe_layers = count_layers(model, FfnKind::moe);
  if (moe_layers > 0) {
    text += fmt::format("experts: {} per layer in {} layers, top {}, width {}", router.experts,
                        moe_layers, router.top_k, model.moe.expert_width);
    if (model.moe.shared_width > 0)
      text += fmt::format(", shared width {}", model.moe.shared_width);
    text += "\n";
  }
  return text + exceptions_text(config);
}

std::string parameter_table(const ParameterLedger& params) {
  Table table({"parameters", "total", "share", "active per token"},
              {Align::left, Align::right, Align::right, Align::right});
  for (const ComponentParameters& part : params.by_component) {
    if (part.component == Component::mtp || part.count.total == 0) continue;
    table.row({to_string(part.component), with_thousands(part.count.total),
               share(static_cast<double>(part.count.total), static_cast<double>(params.total)),
               with_thousands(part.count.active)});
  }
  table.rule();
  table.row({"total", with_thousands(params.total), "", with_thousands(params.active)});
  table.row({"without input embedding", "", "", with_thousands(params.active_without_embedding)});
  if (params.mtp > 0) {
    table.row({"multi-token prediction, apart", with_thousands(params.mtp), "", ""});
  }
  if (params.mtp_copies > 0) {
    table.row({"  its embedding and head copies", with_thousands(params.mtp_copies), "", ""});
  }
  return table.to_string();
}

std::string layer_table(const Ledger& ledger) {
  const FlopUnit unit = flop_unit(ledger);
  Table table({"layers of a kind", "layers", "parameters each", "active each",
               fmt::format("{} each", unit.column())},
              {Align::left, Align::right, Align::right, Align::right, Align::right});
  for (const LayerKind& kind : ledger.layer_kinds) {
    table.row({kind.name, with_thousands(kind.layers), with_thousands(kind.per_layer.total),
               with_thousands(kind.per_layer.active), unit(kind.flops_per_layer)});
  }
  return table.to_string();
}

std::string flop_table(const Ledger& ledger) {
  const FlopUnit unit = flop_unit(ledger);
  Table table({fmt::format("forward + backward at {} tokens", ledger.seq), unit.column(), "share"},
              {Align::left, Align::right, Align::right});
  for (const FlopTerm& term : ledger.flop_terms) {
    if (term.flops.value() > 0.0) {
      table.row({term.name, unit(term.flops), share(term.flops.value(), ledger.flops.value())});
    }
  }
  table.rule();
  table.row({"total", unit(ledger.flops), ""});
  return table.to_string();
}

/// Empty for models without Mamba-2 layers.
std::string megatron_table(const Ledger& ledger) {
  if (ledger.megatron_differences.empty()) return "";
  const FlopUnit unit = flop_unit(ledger);
  Table table({"Megatron's counter (Mamba-2 of width 2 x hidden)", unit.column()},
              {Align::left, Align::right});
  Flops total = ledger.flops;
  for (const FlopTerm& term : ledger.megatron_differences) {
    table.row({fmt::format("{}, difference", term.name),
               fmt::format("{:+.3f}", term.flops.value() / unit.value)});
    total += term.flops;
  }
  table.rule();
  table.row({"total as Megatron counts", unit(total)});
  return fmt::format("\n{}", table.to_string());
}

Json count_json(const ParameterCount& count) {
  return Json{{"total", count.total}, {"active", count.active}};
}

Json model_json(const HfConfig& config) {
  const ModelConfig& model = config.model;
  Json json;
  json["source"] = printable(config.source, config.source.size());
  json["model_type"] = printable(model.model_type);
  json["family"] = to_string(model.family);
  json["layers"] = model.layers.size();
  json["moe_layers"] = count_layers(model, FfnKind::moe);
  json["dense_layers"] = count_layers(model, FfnKind::dense);
  json["hidden"] = model.hidden;
  json["vocab"] = model.vocab;
  json["experts"] = model.moe.router.experts;
  json["top_k"] = model.moe.router.top_k;
  json["expert_width"] = model.moe.expert_width;
  json["shared_width"] = model.moe.shared_width;
  json["dense_width"] = model.dense_width;
  json["max_positions"] = model.max_positions;
  json["tied_embeddings"] = model.tied_embeddings;
  json["mtp_layers"] = model.mtp.layers;
  json["quantization"] = config.quantization.empty() ? Json() : Json(config.quantization);
  json["not_counted"] = config.left_out;
  return json;
}

Json params_json(const ParameterLedger& params) {
  Json json;
  json["total"] = params.total;
  json["active"] = params.active;
  json["active_without_embedding"] = params.active_without_embedding;
  json["mtp_copies"] = params.mtp_copies;
  Json& total = json["by_component"] = Json::object();
  Json& active = json["active_by_component"] = Json::object();
  for (const ComponentParameters& part : params.by_component) {
    total[to_string(part.component)] = part.count.total;
    if (part.component != Component::mtp) active[to_string(part.component)] = part.count.active;
  }
  return json;
}

Json flops_json(const Ledger& ledger) {
  Json json;
  json["model"] = ledger.flops.value();
  Json& terms = json["by_component"] = Json::object();
  for (const FlopTerm& term : ledger.flop_terms) terms[term.name] = term.flops.value();
  if (ledger.megatron_differences.empty()) return json;
  Json& differences = json["megatron_difference"] = Json::object();
  for (const FlopTerm& term : ledger.megatron_differences) {
    differences[term.name] = term.flops.value();
  }
  return json;
}

}  // namespace

std::string describe_text(const HfConfig& config, const Ledger& ledger) {
  return fmt::format("{}\n{}\n{}\n{}{}", shape_text(config), parameter_table(ledger.params),
                     layer_table(ledger), flop_table(ledger), megatron_table(ledger));
}

Json describe_json(const HfConfig& config, const Ledger& ledger) {
  Json json;
  json["format"] = "moestro.describe";
  json["version"] = 1;
  json["model"] = model_json(config);
  json["seq"] = ledger.seq;
  json["params"] = params_json(ledger.params);
  json["flops_per_token"] = flops_json(ledger);
  Json& kinds = json["layer_kinds"] = Json::array();
  for (const LayerKind& kind : ledger.layer_kinds) {
    kinds.push_back(Json{{"kind", kind.name},
                         {"layers", kind.layers},
                         {"params", count_json(kind.per_layer)},
                         {"flops_per_token", kind.flops_per_layer.value()}});
  }
  return json;
}

}  // namespace moestro::model
