#include "moestro/runtime/checkpoints.h"

#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>
#include <span>
#include <unordered_map>

#include "moestro/checkpoint/training_state.h"
#include "moestro/core/error.h"
#include "moestro/core/log.h"
#include "moestro/core/text.h"
#include "moestro/layers/weights.h"

namespace moestro::runtime {
namespace {

/// Every bound tensor by name, with the moments of its parameter (null for selection biases).
struct StoredTensor {
  layers::Binding binding;
  Moments* moments = nullptr;
};
using StoredTensors = std::unordered_map<std::string, StoredTensor>;

StoredTensors stored_tensors(LoadedModel& model, Optimizer& optimizer,
                             std::vector<model::TensorSpec>& order) {
  std::unordered_map<const layers::Parameter*, Moments*> moments;
  for (std::size_t i = 0; i < optimizer.parameters.size(); ++i) {
    moments[optimizer.parameters[i]] = &optimizer.moments[i];
  }
  StoredTensors tensors;
  for (layers::Binding& binding : layers::bindings(model.decoder.config, model.decoder.weights)) {
    order.push_back(binding.spec);
    Moments* found = binding.parameter == nullptr ? nullptr : moments.at(binding.parameter);
    const std::string name = binding.spec.name;
    tensors.emplace(name, StoredTensor{std::move(binding), found});
  }
  return tensors;
}

std::span<float> piece(const at::Tensor& tensor, const layers::Binding& binding) {
  return {tensor.data_ptr<float>() + binding.first,
          static_cast<std::size_t>(binding.spec.elements())};
}

Json to_json(const DataIdentity& identity) {
  return Json{{"seq_len", identity.seq_len},
              {"seed", identity.seed},
              {"tokenizer", identity.tokenizer},
              {"fingerprint", identity.fingerprint},
              {"windows", identity.windows}};
}

/// A place in the data means nothing in other data.
void check_identity(const Json& stored, const DataIdentity& identity, const std::string& where) {
  const auto require = [&](const char* key, const std::string& was, const std::string& is) {
    if (was == is) return;
    throw input_error(where,
                      "expected {}, with which the checkpoint was written, got {}; go back to it, "
                      "or name another checkpoint.folder and begin there from these weights "
                      "(model.load = \"{}\")",
                      fmt::format("{}{}", key, was), is, where);
  };
  require("data.seq_len = ", stored["seq_len"].dump(), std::to_string(identity.seq_len));
  require("data.tokenizer = ", stored["tokenizer"].dump(), Json(identity.tokenizer).dump());
  if (stored["fingerprint"] != identity.fingerprint) {
    require("the training text (data.text, less what is held out)", "", "another");
  }
}

void check_position(const Progress& progress, std::int64_t windows, const std::string& where) {
  if (progress.position.offset < windows) return;
  throw input_error(
      where, "expected a position in the {} windows of the data, got {}; the file is damaged",
      windows, progress.position.offset);
}

void check_model(const model::HfConfig& stored, const LoadedModel& model,
                 const std::string& where) {
  const auto described = [](const model::HfConfig& config) {
    return parse_json(checkpoint::saved_config(config.json, checkpoint::Dtype::f32), config.source);
  };
  if (described(stored) != described(model.source)) {
    throw input_error(where,
                      "the checkpoint is of another model than {}; use another "
                      "checkpoint.folder, or checkpoint.resume = false",
                      model.source.source);
  }
}

/// The small files of a checkpoint, which say whether it belongs to this run.
struct Description {
  Json data;
  Settings settings;
  Progress progress;
  model::HfConfig config;
};

Description read_description(const std::filesystem::path& folder) {
  const std::string missing = checkpoint::missing_file(folder);
  if (!missing.empty()) throw input_error(folder.string(), "expected a file {}, got none", missing);
  const Json state = checkpoint::read_training_state(folder);
  Description description{.data = state.at("data")};
  if (state.contains("settings")) description.settings = state["settings"].get<Settings>();
  description.progress = {
      .step = state.at("step").get<std::int64_t>(),
      .tokens_seen = state.at("tokens_seen").get<std::int64_t>(),
      .position = data::position_from_json(state.at("position"), folder.string())};
  if (state.contains("recent_losses")) {
    description.progress.recent_losses = state["recent_losses"].get<std::vector<float>>();
  }
  description.config = model::read_hf_config(folder);
  return description;
}

void load_tensors(const std::filesystem::path& folder, LoadedModel& model, Optimizer& optimizer) {
  load_weights(folder, model.decoder);
  const checkpoint::SafetensorsFile file(folder / checkpoint::kOptimizerFile);
  std::vector<model::TensorSpec> order;
  const StoredTensors stored = stored_tensors(model, optimizer, order);
  for (const auto& [name, tensor] : stored) {
    if (tensor.moments == nullptr) continue;
    checkpoint::read_moments(file, tensor.binding.spec,
                             piece(tensor.moments->first, tensor.binding),
                             piece(tensor.moments->second, tensor.binding));
  }
}

/// What is wrong with a checkpoint that `read` reads, without what the reader advises; empty if
/// nothing is.
template <class Read>
std::string damage_found_by(Read read) {
  try {
    read();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    const std::string message = error.what();
    return message.substr(0, message.rfind("; "));
  }
  return "";
}

[[noreturn]] void refuse_all(const std::string& root, const std::vector<std::string>& damaged,
                             const std::string& newest_problem) {
  throw input_error(root,
                    "expected a checkpoint to resume from, got damaged ones only, the newest "
                    "because of {}; move or delete {}, or set checkpoint.resume = false, to start "
                    "from the beginning",
                    newest_problem, join(damaged, ", "));
}

}  // namespace

std::string fingerprint(std::span<const data::Token> tokens) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;  // FNV-1a, a token at a time
  for (const data::Token token : tokens) {
    hash = (hash ^ static_cast<std::uint64_t>(token)) * 0x100000001B3ULL;
  }
  return fmt::format("{:016x}", hash);
}

std::string save_checkpoint(const std::string& root, const RunIdentity& identity,
                            const Progress& progress, LoadedModel& model, Optimizer& optimizer) {
  checkpoint::TrainingTensors tensors;
  const StoredTensors stored = stored_tensors(model, optimizer, tensors.specs);
  tensors.weights = [&](const model::TensorSpec& spec) {
    const layers::Binding& binding = stored.at(spec.name).binding;
    return std::span<const float>(piece(binding.tensor, binding));
  };
  tensors.exp_avg = [&](const model::TensorSpec& spec) {
    const StoredTensor& t = stored.at(spec.name);
    return std::span<const float>(piece(t.moments->first, t.binding));
  };
  tensors.exp_avg_sq = [&](const model::TensorSpec& spec) {
    const StoredTensor& t = stored.at(spec.name);
    return std::span<const float>(piece(t.moments->second, t.binding));
  };
  const Json state{{"step", progress.step},
                   {"tokens_seen", progress.tokens_seen},
                   {"recent_losses", progress.recent_losses},
                   {"position", data::to_json(progress.position)},
                   {"data", to_json(identity.data)},
                   {"settings", identity.settings}};
  const auto folder = checkpoint::step_folder(root, progress.step);
  checkpoint::save_training_checkpoint(folder, model.source.json, state, tensors);
  return folder.string();
}

std::optional<Resumption> load_newest_checkpoint(const std::string& folder,
                                                 const RunIdentity& identity, LoadedModel& model,
                                                 Optimizer& optimizer) {
  Resumption found;
  std::vector<std::string> problems;
  for (const std::filesystem::path& step : checkpoint::step_folders(folder)) {
    found.folder = step.string();
    checkpoint::require_readable_files(step);
    checkpoint::check_version(step);
    Description description;
    std::string problem = damage_found_by([&] { description = read_description(step); });
    if (problem.empty()) {
      check_identity(description.data, identity.data, found.folder);
      check_model(description.config, model, found.folder);
      problem = damage_found_by([&] {
        check_position(description.progress, identity.data.windows, found.folder);
        load_tensors(step, model, optimizer);
      });
    }
    if (problem.empty()) {
      for (std::size_t i = 0; i < problems.size(); ++i) {
        log_warning("{} is damaged: {}; it is passed over and stays until its step is saved again",
                    found.damaged[i], problems[i]);
      }
      found.progress = description.progress;
      found.settings = description.settings;
      found.seed = description.data["seed"].get<std::int64_t>();
      return found;
    }
    found.damaged.push_back(found.folder);
    problems.push_back(problem);
  }
  if (!problems.empty()) refuse_all(folder, found.damaged, problems.front());
  return std::nullopt;
}

void report_changes(const Resumption& from, const RunIdentity& identity) {
  std::vector<std::string> changes;
  for (const auto& [key, value] : identity.settings) {
    const auto old = from.settings.find(key);
    if (old == from.settings.end() || old->second == value) continue;
    changes.push_back(fmt::format("{} was {}, is {}{}", key, printable(old->second, 60), value,
                                  key.starts_with("model.") ? " (not used)" : ""));
  }
  if (!changes.empty()) log_info("{}: resumed with changes: {}", from.folder, join(changes, "; "));
  if (from.seed == identity.data.seed) return;
  log_warning(
      "{}: train.seed was {}, is {}: the data come in another order; in this epoch some "
      "sequences come twice and others not at all",
      from.folder, from.seed, identity.data.seed);
}

}  // namespace moestro::runtime
