#include "moestro/runtime/trainer.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "moestro/checkpoint/run_folder.h"
#include "moestro/checkpoint/training_state.h"
#include "moestro/core/error.h"
#include "moestro/core/error_context.h"
#include "moestro/core/log.h"
#include "moestro/core/text.h"
#include "moestro/data/batches.h"
#include "moestro/data/text.h"
#include "moestro/kernels/gemm_peak.h"
#include "moestro/layers/weights.h"
#include "moestro/model/ledger.h"
#include "moestro/runtime/checkpoints.h"
#include "moestro/runtime/compute.h"
#include "moestro/runtime/generate.h"
#include "moestro/runtime/model_loading.h"
#include "moestro/runtime/train_step.h"
#include "moestro/runtime/training_data.h"

namespace moestro::runtime {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Everything a run holds between steps.
struct Run {
  Run() = default;
  Run(const Run&) = delete;  // the optimizer points to the model's parameters
  Run& operator=(const Run&) = delete;

  std::optional<FileLock> lock;  // of the checkpoint folder
  RunConfig config;
  const std::atomic<bool>* stop = nullptr;
  Compute compute;
  LoadedModel model;
  TrainingData data;  // but for the training tokens, which batches hold
  std::unique_ptr<data::Batches> batches;
  RunIdentity identity;
  Optimizer optimizer;
  StepPlan plan;
  RunReport report;
  Progress done;                                 // whole steps
  bool has_weights_of_done = true;               // false while a step changes them
  std::vector<std::string> damaged_checkpoints;  // passed over when resuming
  bool has_saved = false;
};

StepPlan plan_of(const RunConfig& config, const Compute& compute) {
  return {.seq_len = config.data.seq_len,
          .micro_batch = config.train.micro_batch,
          .shards = config.train.shards,
          .dtype = compute.dtype,
          .recompute = config.train.recompute,
          .balance = config.balance};
}

void check_balance(const RunConfig& config, const model::ModelConfig& model) {
  bool routes = false;
  for (const auto& layer : model.layers) routes = routes || layer.ffn == model::FfnKind::moe;
  if (config.balance.bias_update > 0.0 && !(routes && model.moe.router.has_selection_bias)) {
    throw input_error(config.where("balance.bias_update"),
                      "expected a model whose router has a selection bias, got {}; use "
                      "balance.aux_loss instead",
                      model.model_type);
  }
}

/// Measured once in a process: its runs share a machine.
kernels::GemmPeak gemm_peak(const Compute& compute) {
  static std::mutex mutex;
  static std::map<std::pair<kernels::GemmType, int>, kernels::GemmPeak> peaks;
  const auto type = compute.dtype == at::kFloat ? kernels::GemmType::f32 : kernels::GemmType::bf16;
  const std::lock_guard lock(mutex);
  const auto [peak, is_new] = peaks.try_emplace({type, compute.threads});
  if (is_new) peak->second = kernels::measure_gemm_peak(type, compute.threads);
  return peak->second;
}

/// Sequences of a validation at most.
std::int64_t validation_sequences(const RunConfig& config) {
  return config.train.validation_batches * config.train.global_batch;
}

/// What a validation predicts: all tokens but the first of the windows it takes.
std::span<const data::Token> validation_labels(const Run& run) {
  const std::span<const data::Token> text = run.data.validation;
  const auto tokens = static_cast<std::int64_t>(text.size());
  const std::int64_t windows =
      std::min(data::num_windows(tokens, run.plan.seq_len), validation_sequences(run.config));
  if (windows == 0) return {};
  return text.subspan(1, static_cast<std::size_t>(windows * run.plan.seq_len));
}

RunReport report_of(const Run& run) {
  const model::ModelConfig& config = run.model.decoder.config;
  const model::Ledger ledger =
      model::make_ledger(config, run.config.data.seq_len, {.with_mtp = false});
  RunReport report;
  report.model = fmt::format("{}: {} layers, hidden {}, vocabulary {}", config.model_type,
                             config.layers.size(), config.hidden, config.vocab);
  if (config.moe.router.experts > 0) {
    report.model +=
        fmt::format(", {} experts top-{}", config.moe.router.experts, config.moe.router.top_k);
  }
  report.parameters = ledger.params.total;
  report.active_parameters = ledger.params.active;
  report.train_tokens = static_cast<std::int64_t>(run.batches->tokens().size());
  report.epochs = static_cast<double>(run.config.train.steps) *
                  static_cast<double>(run.config.train.global_batch) /
                  static_cast<double>(run.batches->windows());
  report.held_out_tokens = static_cast<std::int64_t>(run.data.validation.size());
  const std::span<const data::Token> labels = validation_labels(run);
  report.validation_tokens = static_cast<std::int64_t>(labels.size());
  report.unigram_entropy =
      data::unigram_entropy(data::token_counts(labels, run.data.tokenizer.vocab_size));
  report.flops_per_token = ledger.flops.value();
  const kernels::GemmPeak peak = gemm_peak(run.compute);
  report.gemm_peak_flops_per_second = peak.rate.value();
  report.gemm_peak_core_share = peak.core_share;
  report.threads = run.compute.threads;
  report.dtype = run.compute.dtype_name;
  return report;
}

/// Validation that was asked for in so many words must be possible; otherwise say that it is not.
void check_validation(const RunConfig& config, const TrainingData& data) {
  const DataSection& section = config.data;
  const auto held_out = static_cast<std::int64_t>(data.validation.size());
  if (data::num_windows(held_out, section.seq_len) > 0) return;
  if (!section.validation_text.empty()) {
    throw input_error(config.where("data.validation_text"),
                      "expected at least one window of seq_len + 1 = {} tokens, got {}; use a "
                      "longer text or a shorter seq_len",
                      section.seq_len + 1, held_out);
  }
  if (section.validation_fraction > 0.0) {
    log_warning(
        "data.validation_fraction holds out {} tokens, less than one window of {}: there "
        "will be no validation loss",
        held_out, section.seq_len + 1);
  }
}

void warn_of_long_sequences(std::int64_t seq_len, std::int64_t max_positions) {
  if (max_positions == 0 || seq_len <= max_positions) return;
  log_warning("data.seq_len = {} is more than the model's max_position_embeddings = {}", seq_len,
              max_positions);
}

/// Settings that do nothing beside others.
void warn_of_idle_settings(const RunConfig& config) {
  const OptimizerSection& optimizer = config.optimizer;
  if (optimizer.schedule == LrSchedule::constant && optimizer.min_lr > 0.0) {
    log_warning("{} = {} means nothing: schedule = \"constant\" stays at lr",
                config.where("optimizer.min_lr"), optimizer.min_lr);
  }
  if (optimizer.lr > 0.0 && config.train.steps == 1 &&
      learning_rate(optimizer, config.train.steps, 1) == 0.0) {
    log_warning(
        "train.steps = 1 trains at min_lr = 0, the learning rate of the last step: nothing is "
        "learnt; raise optimizer.min_lr, or set optimizer.schedule = \"constant\"");
  }
  if (optimizer.warmup_steps > config.train.steps) {
    log_warning("{} = {} is more than train.steps = {}: lr is never reached",
                config.where("optimizer.warmup_steps"), optimizer.warmup_steps, config.train.steps);
  }
}

void warn_of_short_epochs(const data::Batches& batches, std::int64_t global_batch) {
  if (batches.windows() >= global_batch) return;
  log_warning(
      "train.global_batch = {} is more than the {} windows of the text: every step takes "
      "some of them more than once",
      global_batch, batches.windows());
}

/// What a config.json states is often its family's default, so that it is no more than noted.
void note_unused_coefficient(const model::ModelConfig& model, const BalanceSection& balance) {
  const double stated = model.moe.router.aux_loss_coefficient;
  if (stated == 0.0 || balance.aux_loss > 0.0) return;
  log_verbose(
      "the model's own coefficient of a balancing loss, {}, is not used: balance.aux_loss "
      "decides, and is 0",
      stated);
}

/// transformers would add it in training, not in evaluation.
void warn_of_noise(const model::HfConfig& source) {
  if (source.noise.empty()) return;
  log_warning("{}: training knows neither dropout nor jitter; going on without {}", source.source,
              join(source.noise, ", "));
}

RunIdentity identity_of(const Run& run) {
  RunIdentity identity{.data = {.seq_len = run.config.data.seq_len,
                                .seed = run.config.train.seed,
                                .tokenizer = run.config.data.tokenizer,
                                .fingerprint = fingerprint(run.batches->tokens()),
                                .windows = run.batches->windows()},
                       .settings = numeric_settings(run.config)};
  if (!run.data.validation.empty()) {
    identity.settings["held-out text"] =
        fmt::format("{} tokens ({})", run.data.validation.size(), fingerprint(run.data.validation));
  }
  return identity;
}

void set_up(const RunConfig& config, const TrainHooks& hooks, Run& run) {
  run.config = config;
  run.stop = hooks.stop;
  if (!config.checkpoint.folder.empty()) {
    in_context(config.where("checkpoint.folder"), [&] {
      checkpoint::prepare_run_folder(config.checkpoint.folder);
      run.lock.emplace(checkpoint::lock_run_folder(config.checkpoint.folder));
    });
  }
  run.compute = set_up_compute(config.train.dtype, static_cast<int>(config.train.threads));
  run.model =
      load_model(config, [&](const model::ModelConfig& model) { check_balance(config, model); });
  warn_of_idle_settings(config);
  warn_of_noise(run.model.source);
  Decoder& decoder = run.model.decoder;
  note_unused_coefficient(decoder.config, config.balance);
  run.data = load_training_data(config, decoder.config.vocab);
  run.batches = std::make_unique<data::Batches>(
      std::move(run.data.training),
      data::BatchOptions{.seq_len = config.data.seq_len,
                         .seed = static_cast<std::uint64_t>(config.train.seed)},
      config.where("data.text"));
  warn_of_short_epochs(*run.batches, config.train.global_batch);
  check_validation(config, run.data);
  warn_of_long_sequences(config.data.seq_len, decoder.config.max_positions);
  prepare_for_training(decoder, run.compute.dtype);
  run.optimizer =
      make_optimizer(config.optimizer, config.train.steps, layers::parameters(decoder.weights));
  run.plan = plan_of(config, run.compute);
  run.report = report_of(run);
  run.identity = identity_of(run);
}

/// Returns the folder of the checkpoint it resumes from, or empty.
std::string resume(Run& run) {
  const CheckpointSection& section = run.config.checkpoint;
  if (section.folder.empty() || !section.resume) return "";
  const auto found = in_context(run.config.where("checkpoint.folder"), [&] {
    return load_newest_checkpoint(section.folder, run.identity, run.model, run.optimizer);
  });
  if (!found) return "";
  const Progress& progress = found->progress;
  if (progress.step < run.config.train.steps) report_changes(*found, run.identity);
  run.batches->seek(progress.position, found->folder);
  run.done = progress;
  run.report.first_step = progress.step + 1;
  run.report.resumed_from = found->folder;
  run.report.recent_losses = progress.recent_losses;
  run.damaged_checkpoints = found->damaged;
  return found->folder;
}

/// Finds out now, not at the first save, that checkpoints cannot be written.
void check_room(const Run& run) {
  const CheckpointSection& section = run.config.checkpoint;
  if (section.folder.empty()) return;
  in_context(run.config.where("checkpoint.folder"), [&] {
    checkpoint::require_room(section.folder, {.first = run.report.first_step,
                                              .last = run.config.train.steps,
                                              .sets_aside = !section.resume});
  });
}

bool is_stopped(const Run& run) {
  return run.stop != nullptr && run.stop->load();
}

/// Nothing, if there is nothing to validate on, or the run is stopped.
std::optional<float> validation_loss(Run& run) {
  const data::Batch batch = data::windows_in_order(run.data.validation, run.plan.seq_len, 0,
                                                   validation_sequences(run.config));
  if (batch.sequences == 0) return std::nullopt;
  const auto loss = evaluate_batch(run.model.decoder, run.plan, batch, run.stop);
  if (!loss) return std::nullopt;
  return static_cast<float>(std::isnan(*loss) ? std::abs(*loss) : *loss);  // never prints as "-nan"
}

struct Validation {
  std::optional<float> loss;
  double seconds = 0.0;
};

Validation validate(Run& run, TrainResult& result) {
  const Clock::time_point start = Clock::now();
  const std::optional<float> loss = validation_loss(run);
  if (loss) {
    result.validation_loss = loss;
    result.validation_step = run.done.step;
  }
  const double seconds = seconds_since(start);
  result.validation_seconds += seconds;
  return {loss, seconds};
}

bool is_due(std::int64_t step, std::int64_t every) {
  return every > 0 && step % every == 0;
}

/// The losses of the last two steps, as they are reported.
std::vector<float> with_next(const std::vector<float>& losses, double next) {
  std::vector<float> last;
  if (!losses.empty()) last.push_back(losses.back());
  last.push_back(static_cast<float>(next));
  return last;
}

/// The step after those that are done.
StepReport run_step(Run& run) {
  const std::int64_t step = run.done.step + 1;
  const Clock::time_point start = Clock::now();
  const data::Batch batch = run.batches->next(run.config.train.global_batch);
  const StepOutcome outcome =
      compute_gradients(run.model.decoder, run.optimizer, run.plan, batch, step);
  Progress done = {.step = step,
                   .tokens_seen = run.done.tokens_seen + batch.sequences * batch.seq_len,
                   .position = run.batches->position(),
                   .recent_losses = with_next(run.done.recent_losses, outcome.loss)};
  run.has_weights_of_done = false;
  apply_gradients(run.model.decoder, run.optimizer, run.plan, outcome, step);
  run.done = std::move(done);
  run.has_weights_of_done = true;
  StepReport report;
  report.step = step;
  report.loss = static_cast<float>(outcome.loss);
  report.tokens = batch.sequences * batch.seq_len;
  report.step_seconds = seconds_since(start);
  report.tokens_per_second = static_cast<double>(report.tokens) / report.step_seconds;
  report.flops_per_second = report.tokens_per_second * run.report.flops_per_token;
  report.mfu = report.flops_per_second / run.report.gemm_peak_flops_per_second;
  report.grad_norm = outcome.grad_norm;
  report.lr = learning_rate(run.config.optimizer, run.config.train.steps, step);
  report.moe = summarise(outcome.routing);
  return report;
}

void write_checkpoint(Run& run, const TrainHooks& hooks, TrainResult& result) {
  const CheckpointSection& section = run.config.checkpoint;
  if (section.folder.empty()) return;
  const Clock::time_point start = Clock::now();
  // Not before there is something better: steps of an earlier run would pass for this one's.
  if (!section.resume && !run.has_saved) checkpoint::set_steps_aside(section.folder);
  run.has_saved = true;
  result.checkpoint =
      save_checkpoint(section.folder, run.identity, run.done, run.model, run.optimizer);
  const double seconds = seconds_since(start);
  result.checkpoint_seconds += seconds;
  if (hooks.on_checkpoint) hooks.on_checkpoint(result.checkpoint, seconds);
  if (std::erase(run.damaged_checkpoints, result.checkpoint) > 0) {
    log_warning("{} replaces the damaged checkpoint of that step", result.checkpoint);
  }
}

void save(Run& run, const TrainHooks& hooks, TrainResult& result) {
  write_checkpoint(run, hooks, result);
  const CheckpointSection& section = run.config.checkpoint;
  if (section.folder.empty() || section.keep == 0) return;
  checkpoint::prune_checkpoints(section.folder, run.done.step, section.keep);
}

/// Keeps what the steps so far have cost when an error ends the run. Older checkpoints stay, whose
/// weights may be better than those of a run that diverges.
void rescue(Run& run, const TrainHooks& hooks, TrainResult& result) {
  if (!run.has_weights_of_done) {
    log_warning("step {} could not be saved: the next one has begun to change it", run.done.step);
    return;
  }
  try {
    write_checkpoint(run, hooks, result);
  } catch (const std::exception& error) {
    log_warning("step {} could not be saved: {}", run.done.step, error.what());
  }
}

std::string sample(Run& run) {
  const OutputSection& output = run.config.output;
  if (output.sample_prompt.empty() || is_stopped(run)) return "";
  const std::vector<data::Token> ids = generate(
      run.model.decoder, run.compute.dtype, data::encode(run.data.tokenizer, output.sample_prompt),
      {.tokens = output.sample_tokens,
       .context_length = run.plan.seq_len,
       .seed = static_cast<std::uint64_t>(run.config.train.seed),
       .stop = run.stop});
  return data::decode(run.data.tokenizer, ids);
}

/// The most memory this process ever held, in bytes (Linux: VmHWM).
std::optional<double> peak_rss_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kib = 0.0;
    if (word == "VmHWM:" && status >> kib) return kib * 1024.0;
  }
  return std::nullopt;
}

/// The steps from the first to the last or to the one at which the run is stopped, with validations
/// and checkpoints where they are due and after the last.
void train_steps(Run& run, const TrainHooks& hooks, TrainResult& result) {
  const std::int64_t first = run.report.first_step;
  const std::int64_t last = run.config.train.steps;
  if (first > last) {
    log_warning(
        "no step is left to train: {} is at step {}; raise train.steps (now {}) to train on",
        result.checkpoint, first - 1, last);
    validate(run, result);
    return;
  }
  std::int64_t saved = first - 1;
  const std::int64_t& step = run.done.step;
  while (step < last && !is_stopped(run)) {
    try {
      StepReport report = run_step(run);
      if (step == last || is_due(step, run.config.train.validate_every)) {
        const Validation validation = validate(run, result);
        report.validation_loss = validation.loss;
        report.validation_seconds = validation.seconds;
      }
      ++result.steps;
      result.final_loss = report.loss;
      if (hooks.on_step) hooks.on_step(report);
    } catch (...) {
      if (saved < step) rescue(run, hooks, result);
      throw;
    }
    if (!is_due(step, run.config.checkpoint.every)) continue;
    save(run, hooks, result);
    saved = step;
  }
  if (saved < step) save(run, hooks, result);
}

}  // namespace

bool is_available() {
  return true;
}

TrainResult train(const RunConfig& config, const TrainHooks& hooks) {
  Run run;
  set_up(config, hooks, run);
  TrainResult result;
  result.checkpoint = resume(run);
  check_room(run);
  if (hooks.on_start) hooks.on_start(run.report);
  train_steps(run, hooks, result);
  result.sample = sample(run);
  result.interrupted = is_stopped(run);
  result.peak_rss_bytes = peak_rss_bytes();
  return result;
}

}  // namespace moestro::runtime
