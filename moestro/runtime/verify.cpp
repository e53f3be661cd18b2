#include "moestro/runtime/verify.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "moestro/checkpoint/safetensors.h"
#include "moestro/core/error.h"
#include "moestro/core/json.h"
#include "moestro/core/text.h"
#include "moestro/kernels/cross_entropy.h"
#include "moestro/runtime/compute.h"
#include "moestro/runtime/model_loading.h"
#include "moestro/runtime/optimizer.h"
#include "moestro/runtime/reference_gradients.h"

namespace moestro::runtime {
namespace {

using checkpoint::SafetensorsFile;
using checkpoint::TensorInfo;

/// Tolerances when computing in bf16: eight bits of mantissa through a whole decoder, in which a
/// token near a tie may choose another expert. transformers' own bf16 run of a small Mixtral strays
/// from its f32 run by 9e-2 of the largest hidden state and 2e-1 of the largest gradient.
constexpr VerifyTolerance kBf16Tolerance{.logits = 1.5e-1,
                                         .gradient = 3e-1,
                                         .loss = 1e-2,
                                         .aux_loss = 1e-2,
                                         .steps_loss = 3e-2,
                                         .steps_grad_norm = 1e-1};

std::vector<float> floats(const SafetensorsFile& file, const std::string& name) {
  std::vector<float> values(static_cast<std::size_t>(file.info(name).elements()));
  file.read_floats(name, values);
  const auto bad = std::find_if_not(values.begin(), values.end(),
                                    [](float value) { return std::isfinite(value); });
  if (bad != values.end()) {
    throw input_error(file.path().string() + " " + name,
                      "expected finite numbers, got {} at element {}; make the reference anew",
                      std::isnan(*bad) ? "NaN" : "an infinity", bad - values.begin());
  }
  return values;
}

std::vector<float> floats(const SafetensorsFile& file, const std::string& name,
                          const std::vector<std::int64_t>& shape) {
  const TensorInfo& info = file.info(name);
  if (info.shape != shape) {
    throw input_error(file.path().string() + " " + name, "expected shape {}, got {}",
                      checkpoint::shape_text(shape), checkpoint::shape_text(info.shape));
  }
  return floats(file, name);
}

double number(const SafetensorsFile& file, const std::string& name) {
  const TensorInfo& info = file.info(name);
  if (info.elements() != 1) {
    throw input_error(file.path().string() + " " + name, "expected one number, got shape {}",
                      checkpoint::shape_text(info.shape));
  }
  return static_cast<double>(floats(file, name)[0]);
}

double largest(const std::vector<float>& values) {
  double most = 0.0;
  for (const float value : values) most = std::max(most, std::abs(static_cast<double>(value)));
  return most;
}

/// Largest difference relative to the largest expected entry, or to `floor` where that is larger.
double relative_difference(const float* ours, const std::vector<float>& expected,
                           double floor = 0.0) {
  double difference = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double d = std::abs(static_cast<double>(ours[i]) - static_cast<double>(expected[i]));
    difference = std::isnan(d) ? std::numeric_limits<double>::infinity() : std::max(difference, d);
  }
  if (difference == 0.0) return 0.0;
  const double scale = std::max(floor, largest(expected));
  return scale == 0.0 ? std::numeric_limits<double>::infinity() : difference / scale;
}

/// The batch of the reference, its labels, and how it is run.
struct Reference {
  std::filesystem::path folder;
  at::Tensor ids, labels;  // [T]
  layers::Context context;
  double scale = 0.0;  // 1 / predicted tokens
  Recompute recompute = Recompute::none;
};

Reference read_reference(const std::filesystem::path& folder, const Compute& compute,
                         std::int64_t vocab) {
  const SafetensorsFile inputs(folder / "inputs.safetensors");
  const TensorInfo& info = inputs.info("input_ids");
  if (info.shape.size() != 2 || info.shape[0] < 1 || info.shape[1] < 2) {
    throw input_error((folder / "inputs.safetensors").string() + " input_ids",
                      "expected [sequences, length >= 2], got {}",
                      checkpoint::shape_text(info.shape));
  }
  Reference reference;
  reference.folder = folder;
  reference.context.batch = info.shape[0];
  reference.context.seq = info.shape[1];
  reference.context.dtype = compute.dtype;
  reference.ids = at::empty({info.elements()}, at::kLong);
  auto* ids = reference.ids.data_ptr<std::int64_t>();
  inputs.read_integers("input_ids", std::span(ids, static_cast<std::size_t>(info.elements())));
  if (std::any_of(ids, ids + info.elements(), [&](auto id) { return id < 0 || id >= vocab; })) {
    throw input_error((folder / "inputs.safetensors").string() + " input_ids",
                      "expected ids in 0 .. {}, the model's vocabulary", vocab - 1);
  }
  // The label of a position is the next token; the last position of a sequence has none.
  const at::Tensor rows = reference.ids.view(info.shape);
  const at::Tensor none = at::full({info.shape[0], 1}, kernels::kIgnoredLabel, at::kLong);
  reference.labels = at::cat({rows.narrow(1, 1, info.shape[1] - 1), none}, 1).flatten();
  reference.scale = 1.0 / static_cast<double>(info.shape[0] * (info.shape[1] - 1));
  return reference;
}

/// transformers' load_balancing_loss_func: all layers' tokens concatenated,
/// experts * sum_e f_e P_e with f_e summed over the top-k slots.
double concatenated_aux_loss(const std::vector<layers::RoutingRecord>& records) {
  if (records.empty()) return 0.0;
  const std::size_t experts = records.front().expert_tokens.size();
  double sum = 0.0, tokens = 0.0;
  for (const auto& record : records) tokens += static_cast<double>(record.tokens);
  for (std::size_t e = 0; e < experts; ++e) {
    double count = 0.0, score = 0.0;
    for (const auto& record : records) {
      count += static_cast<double>(record.expert_tokens[e]);
      score += record.score_sum[e];
    }
    sum += count / tokens * (score / tokens);
  }
  return static_cast<double>(experts) * sum;
}

void compare_outputs(Decoder& decoder, const Reference& reference, const SafetensorsFile& expected,
                     VerifyResult& result) {
  HiddenStates hidden;
  std::vector<layers::RoutingRecord> records;
  layers::Context context = reference.context;
  context.routing = &records;
  const at::Tensor ours = logits(decoder, context, reference.ids, {.hidden = &hidden});
  const auto shape = [&](const at::Tensor& rows) {  // [T, width] there
    return std::vector<std::int64_t>{reference.context.batch, reference.context.seq, rows.size(1)};
  };
  const std::vector<float> theirs = floats(expected, "logits", shape(ours));
  result.logits_max_rel = relative_difference(ours.data_ptr<float>(), theirs);
  result.tolerance.loss *= std::max(1.0, largest(theirs));
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    const std::string name = fmt::format("hidden.{}", i);
    // transformers gives the last layer's after its norm, which references leave out.
    if (i + 1 == decoder.config.layers.size() && !expected.has(name)) continue;
    const double difference =
        relative_difference(hidden[i].data_ptr<float>(), floats(expected, name, shape(hidden[i])));
    result.hidden_max_rel = std::max(result.hidden_max_rel, difference);
  }
  if (expected.has("aux_loss")) {
    result.aux_loss_abs = std::abs(concatenated_aux_loss(records) - number(expected, "aux_loss"));
  }
}

void refuse_unused_gradients(const SafetensorsFile& expected, const std::set<std::string>& used) {
  for (const std::string& name : expected.names()) {
    if (name.starts_with("grad.") && !used.contains(name)) {
      throw input_error(expected.path().string(), "{} is a gradient of no tensor of the model",
                        name);
    }
  }
}

/// A gradient that is zero in exact arithmetic (the router's, where one expert is chosen and its
/// weight normalised) is rounding noise on both sides, and float32 cannot tell it from zero better
/// than 1e-7 of the gradients it is a difference of. So no tensor is measured against less than
/// this share of the model's largest gradient: a tolerance of 1e-4 then never asks for more than
/// float32's rounding.
constexpr double kGradientNoise = 1e-3;

double gradient_floor(const SafetensorsFile& expected) {
  double most = 0.0;
  for (const std::string& name : expected.names()) {
    if (name.starts_with("grad.")) most = std::max(most, largest(floats(expected, name)));
  }
  return kGradientNoise * most;
}

void compare_gradients(Decoder& decoder, const SafetensorsFile& expected, VerifyResult& result) {
  std::set<std::string> used;
  const double floor = gradient_floor(expected);
  for (const layers::Binding& binding : layers::bindings(decoder.config, decoder.weights)) {
    if (binding.parameter == nullptr) continue;
    layers::finish_gradient(*binding.parameter);
    const std::vector<float> values =
        read_reference_gradient(decoder.config, binding.spec, expected, used);
    const double difference = relative_difference(binding.gradient(), values, floor);
    if (difference >= result.gradient_max_rel) {
      result.gradient_max_rel = difference;
      result.worst_tensor = binding.spec.name;
    }
  }
  refuse_unused_gradients(expected, used);
}

double run_step(Decoder& decoder, const Reference& reference, bool defer) {
  layers::GradientQueue queue;
  layers::Context context = reference.context;
  if (defer) context.queue = &queue;
  const double loss = forward_backward(decoder, context, reference.ids, reference.labels,
                                       reference.scale, reference.recompute);
  queue.run();
  return loss;
}

OptimizerSection optimizer_of(const Json& steps) {
  OptimizerSection section;
  section.lr = steps.at("lr").get<double>();
  section.betas = {steps.at("betas").at(0).get<double>(), steps.at("betas").at(1).get<double>()};
  section.eps = steps.at("eps").get<double>();
  section.weight_decay = steps.at("weight_decay").get<double>();
  section.clip = steps.at("clip_global_norm").get<double>();
  section.schedule = LrSchedule::constant;
  return section;
}

/// As std::max, but a NaN stays.
double worse(double a, double b) {
  return std::isnan(b) || b > a ? b : a;
}

struct ExpectedSteps {
  OptimizerSection optimizer;
  std::vector<double> losses, grad_norms;
};

/// The only ones there are here; a file that names none means them.
void require_known_optimizer(const Json& json, const std::filesystem::path& path) {
  const std::pair<const char*, const char*> names[] = {
      {"optimizer", "AdamW"}, {"weight_decay_on", "tensors of two or more dimensions"}};
  for (const auto& [key, expected] : names) {
    const Json name = json.is_object() ? json.value(key, Json(expected)) : Json();
    if (name == expected) continue;
    throw input_error(fmt::format("{} {}", path.string(), key),
                      "expected \"{}\", got {}; no other is known", expected,
                      printable(name.dump(), 60));
  }
}

ExpectedSteps read_steps(const std::filesystem::path& path) {
  const Json json = read_json_file(path);
  require_known_optimizer(json, path);
  try {
    ExpectedSteps steps{optimizer_of(json), json.at("losses").get<std::vector<double>>(),
                        json.at("grad_norms").get<std::vector<double>>()};
    if (!steps.losses.empty() && steps.losses.size() == steps.grad_norms.size()) return steps;
  } catch (const Json::exception&) {
    throw input_error(path.string(),
                      "expected lr, two betas, eps, weight_decay, clip_global_norm (numbers), "
                      "losses and grad_norms (lists of numbers); add what is missing");
  }
  throw input_error(path.string(),
                    "expected losses, and as many grad_norms; write both for every step");
}

void compare_steps(Decoder& decoder, const Reference& reference, bool defer, VerifyResult& result) {
  const ExpectedSteps expected = read_steps(reference.folder / "steps.json");
  const auto count = static_cast<std::int64_t>(expected.losses.size());
  Optimizer optimizer =
      make_optimizer(expected.optimizer, count, layers::parameters(decoder.weights));
  // What is left of the gradients of a loss that has become 0 is rounding.
  constexpr double kNormNoise = 1e-6;
  const double least_norm =
      kNormNoise * *std::max_element(expected.grad_norms.begin(), expected.grad_norms.end());
  double loss_difference = 0.0, norm_difference = 0.0;
  for (std::int64_t step = 1; step <= count; ++step) {
    begin_gradients(optimizer);
    const double loss = run_step(decoder, reference, defer);
    const double norm = update(optimizer, step, loss);
    const auto i = static_cast<std::size_t>(step - 1);
    loss_difference = worse(loss_difference, std::abs(loss - expected.losses[i]));
    const double expected_norm = expected.grad_norms[i];
    const double scale = std::max(std::abs(expected_norm), least_norm);
    norm_difference = worse(norm_difference,
                            norm == expected_norm ? 0.0 : std::abs(norm - expected_norm) / scale);
  }
  result.steps_loss_max_abs = loss_difference;
  result.steps_grad_norm_max_rel = norm_difference;
}

bool is_within(const VerifyResult& r, const VerifyTolerance& t) {
  return r.logits_max_rel <= t.logits && r.hidden_max_rel <= t.logits && r.loss_abs <= t.loss &&
         r.gradient_max_rel <= t.gradient && r.aux_loss_abs.value_or(0.0) <= t.aux_loss &&
         r.steps_loss_max_abs.value_or(0.0) <= t.steps_loss &&
         r.steps_grad_norm_max_rel.value_or(0.0) <= t.steps_grad_norm;
}

}  // namespace

VerifyResult verify_against(const std::filesystem::path& folder, const VerifyOptions& options) {
  const Compute compute = set_up_compute(options.dtype, options.threads);
  LoadedModel loaded = load_model(folder);
  Decoder& decoder = loaded.decoder;
  prepare_for_training(decoder, compute.dtype);
  Reference reference = read_reference(folder, compute, decoder.config.vocab);
  reference.recompute = options.recompute;
  const SafetensorsFile expected(folder / "expected.safetensors");

  VerifyResult result;
  result.tolerance = compute.dtype == at::kFloat ? VerifyTolerance{} : kBf16Tolerance;
  compare_outputs(decoder, reference, expected, result);
  const double loss = run_step(decoder, reference, options.defer_weight_gradients);
  result.loss_abs = std::abs(loss - number(expected, "loss"));
  compare_gradients(decoder, expected, result);
  // A link that leads nowhere is no absent file: reading it says so.
  if (std::filesystem::exists(std::filesystem::symlink_status(folder / "steps.json"))) {
    compare_steps(decoder, reference, options.defer_weight_gradients, result);
  }
  result.within_tolerance = is_within(result, result.tolerance);
  return result;
}

}  // namespace moestro::runtime
