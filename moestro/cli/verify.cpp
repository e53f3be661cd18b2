// moestro verify CKPT: is the checkpoint complete? moestro verify --against DIR: does the model
// compute what reference outputs say?

#include "moestro/runtime/verify.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>

#include "moestro/checkpoint/hf_folder.h"
#include "moestro/checkpoint/training_state.h"
#include "moestro/checkpoint/verify_report.h"
#include "moestro/cli/command.h"
#include "moestro/cli/options.h"
#include "moestro/core/error.h"
#include "moestro/model/hf_config.h"

namespace moestro::cli {
namespace {

struct VerifyArguments {
  std::string checkpoint;
  std::string model;
  std::string against;
  std::vector<std::string> overrides;
  CommonOptions common;
};

bool parse_verify(const Arguments& arguments, VerifyArguments& parsed) {
  CLI::App app(
      "Checks that a checkpoint holds every tensor once, with its shape and finite numbers; or, "
      "with --against, that the model computes what reference outputs say.",
      "moestro verify");
  CLI::Option* checkpoint =
      app.add_option("CHECKPOINT", parsed.checkpoint,
                     "folder with config.json and safetensors, or with the checkpoints of a run");
  app.add_option("--model", parsed.model, "expect this model instead of the folder's config.json")
      ->needs(checkpoint);
  CLI::Option* against =
      app.add_option("--against", parsed.against, "folder with a model, its inputs and outputs")
          ->excludes(checkpoint);
  app.add_option("--set", parsed.overrides,
                 "how to run it: train.dtype, train.recompute, train.threads or "
                 "train.defer_weight_gradients; may be repeated")
      ->type_name("SECTION.KEY=VALUE")
      ->allow_extra_args(false)
      ->needs(against);
  add_common_options(app, parsed.common);
  if (!parse(app, arguments, parsed.common)) return false;
  if (parsed.checkpoint.empty() && parsed.against.empty()) {
    throw input_error(app.get_name(),
                      "expected a checkpoint or --against DIR, got neither; see {} "
                      "--help",
                      app.get_name());
  }
  return true;
}

void set_if_known(Json& json, const char* key, const std::optional<double>& value) {
  if (value) json[key] = *value;
}

Json comparison_json(const runtime::VerifyResult& result) {
  Json json = {{"format", "moestro.verify_against"},
               {"version", 1},
               {"logits_max_rel", result.logits_max_rel},
               {"hidden_max_rel", result.hidden_max_rel},
               {"loss_abs", result.loss_abs},
               {"gradient_max_rel", result.gradient_max_rel},
               {"worst_tensor", result.worst_tensor}};
  set_if_known(json, "aux_loss_abs", result.aux_loss_abs);
  set_if_known(json, "steps_loss_max_abs", result.steps_loss_max_abs);
  set_if_known(json, "steps_grad_norm_max_rel", result.steps_grad_norm_max_rel);
  const runtime::VerifyTolerance& t = result.tolerance;
  json["tolerance"] = {{"logits_max_rel", t.logits},
                       {"hidden_max_rel", t.logits},
                       {"loss_abs", t.loss},
                       {"gradient_max_rel", t.gradient},
                       {"aux_loss_abs", t.aux_loss},
                       {"steps_loss_max_abs", t.steps_loss},
                       {"steps_grad_norm_max_rel", t.steps_grad_norm}};
  json["within_tolerance"] = result.within_tolerance;
  return json;
}

std::string comparison_text(const runtime::VerifyResult& result) {
  std::string text;
  const auto line = [&text](const char* name, const std::optional<double>& value, double tolerance,
                            const std::string& measure) {
    if (!value) return;
    text += fmt::format("{:<11}{:.2e} of at most {:.3g}, {}{}\n", name, *value, tolerance, measure,
                        *value <= tolerance ? "" : "  <- outside");
  };
  const runtime::VerifyTolerance& t = result.tolerance;
  line("logits", result.logits_max_rel, t.logits, "relative to the largest");
  line("hidden", result.hidden_max_rel, t.logits, "relative to the largest");
  line("loss", result.loss_abs, t.loss, "absolute");
  line("gradients", result.gradient_max_rel, t.gradient,
       "relative to the largest of each tensor; worst: " + result.worst_tensor);
  line("aux loss", result.aux_loss_abs, t.aux_loss, "absolute");
  line("steps", result.steps_loss_max_abs, t.steps_loss, "difference of a loss, absolute");
  line("steps", result.steps_grad_norm_max_rel, t.steps_grad_norm,
       "difference of a gradient norm, relative");
  return text + (result.within_tolerance ? "within tolerance\n" : "outside tolerance\n");
}

int compare(const VerifyArguments& parsed) {
  const runtime::VerifyResult result =
      runtime::verify_against(parsed.against, runtime::read_verify_options(parsed.overrides));
  if (parsed.common.json) {
    print_json(comparison_json(result));
  } else {
    print(comparison_text(result));
  }
  return result.within_tolerance ? kDone : kFailed;
}

/// Damage that lets nothing more be told is a finding, too.
checkpoint::VerifyReport unreadable(const std::filesystem::path& folder, const std::string& why) {
  checkpoint::VerifyReport report;
  report.folder = folder.string();
  report.unreadable = why;
  return report;
}

checkpoint::VerifyReport report_on(const std::filesystem::path& folder, const std::string& model) {
  std::optional<model::HfConfig> expected;
  if (!model.empty()) expected = model::resolve_model(model, {}, "--model");
  checkpoint::require_readable_files(folder);
  // What a run wrote is judged with its config.json; one that came from elsewhere is input.
  const bool is_of_run = checkpoint::is_of_run(folder);
  if (!expected && !is_of_run) expected = model::read_hf_config(folder);
  try {
    const model::HfConfig own = is_of_run ? model::read_hf_config(folder) : *expected;
    return checkpoint::verify_complete(checkpoint::HfFolder(folder),
                                       expected ? expected->model : own.model);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    return unreadable(folder, error.what());
  }
}

int prove_complete(const VerifyArguments& parsed) {
  const std::filesystem::path folder = checkpoint::resolve_newest_step(parsed.checkpoint);
  const checkpoint::VerifyReport report = report_on(folder, parsed.model);
  if (parsed.common.json) {
    print_json(checkpoint::to_json(report));
  } else {
    print(checkpoint::to_text(report));
  }
  return report.is_complete() ? kDone : kFailed;
}

}  // namespace

int verify(const Arguments& arguments) {
  VerifyArguments parsed;
  if (!parse_verify(arguments, parsed)) return kDone;
  return parsed.against.empty() ? prove_complete(parsed) : compare(parsed);
}

}  // namespace moestro::cli
