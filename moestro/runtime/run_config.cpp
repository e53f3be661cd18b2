#include "moestro/runtime/run_config.h"

#include "moestro/core/error.h"
#include "moestro/core/fields.h"
#include "moestro/core/file.h"
#include "moestro/core/text.h"
#include "moestro/runtime/option_words.h"

namespace moestro::runtime {
namespace {

// Upper limits keep products of sizes far from overflow and reject slips of the keyboard.
constexpr double kMaxSteps = 1e9;
constexpr double kMaxSequences = 65536;
constexpr double kMaxSeqLen = 1048576;
constexpr double kMaxThreads = 1024;
constexpr std::int64_t kMaxValidationBatches = 1'000'000;  // times global_batch fits 64 bits
constexpr double kMaxSampleTokens = 1e6;
// Arithmetic is f32: beyond these, weights turn into infinities some steps later, and the error
// then could only guess at what was wrong.
constexpr double kMaxRate = 1e3;         // of learning, of weight decay
constexpr double kMaxCoefficient = 1e3;  // of a balancing loss
constexpr double kMaxBeta = 0.999999;    // 1 - beta is left with few bits in f32
constexpr double kMinEps = 1e-20;        // squares of gradients below it vanish in f32
constexpr double kMaxEps = 1.0;
constexpr double kMinF32 = 1e-30;  // smaller ones vanish in a product or two

FieldSection model_section(ModelSection& model) {
  return {"model",
          "What is trained. Exactly one of `config` and `load`.",
          {{"config", path_or_name(model.config),
            "start from random weights: a config.json, a folder with one, or a built-in name"},
           {"load", path(model.load),
            "start from the weights in this checkpoint, or in the newest of a run's folder"},
           {"init_seed", &model.init_seed, "seed of the random weights", at_least(0)}}};
}

FieldSection data_section(DataSection& data) {
  return {"data",
          "What it is trained on.",
          {{"text", paths(data.text), "UTF-8 text files, read as one after the other"},
           {"validation_text", paths(data.validation_text),
            "held-out files; without any, the tail of every training file is held out"},
           {"validation_fraction", &data.validation_fraction,
            "part of every training file to hold out when `validation_text` is empty",
            from_below(0.0, 1.0)},
           {"tokenizer", path_or_name(data.tokenizer), "`byte`: one token per byte"},
           {"seq_len", &data.seq_len, "tokens per sequence", between(1, kMaxSeqLen)}}};
}

FieldSection train_section(TrainSection& train) {
  return {"train",
          "How long, how much at a time, and in which arithmetic. A step takes `global_batch` "
          "sequences, `micro_batch * shards` at a time.",
          {{"steps", &train.steps, "optimizer steps", between(1, kMaxSteps)},
           {"global_batch", &train.global_batch, "sequences per step", between(1, kMaxSequences)},
           {"micro_batch", &train.micro_batch, "sequences per shard and micro-batch",
            between(1, kMaxSequences)},
           {"shards", &train.shards,
            "how a micro-batch is cut; fixes the auxiliary loss, whatever computes it",
            between(1, kMaxSequences)},
           {"seed", &train.seed, "seed of the order of the data", at_least(0)},
           {"dtype", dtype_choice(train.dtype),
            "arithmetic; weights and optimizer state are f32 in both"},
           {"recompute", recompute_choice(train.recompute),
            "`layer`: keep only the input of each layer and compute it again for the gradient"},
           {"threads", &train.threads, "CPU threads; 0: all cores", between(0, kMaxThreads)},
           {"validate_every", &train.validate_every,
            "steps between validations; 0: only at the end", at_least(0)},
           {"validation_batches", &train.validation_batches,
            "at most this many global batches of held-out sequences per validation",
            between(1, kMaxValidationBatches)}}};
}

FieldSection optimizer_section(OptimizerSection& optimizer) {
  return {
      "optimizer",
      "AdamW.",
      {{"lr", &optimizer.lr, "highest learning rate", between(0, kMaxRate)},
       {"betas", &optimizer.betas, "decay of the two moment averages", between(0, kMaxBeta)},
       {"eps", &optimizer.eps, "added to the root of the second moment", between(kMinEps, kMaxEps)},
       {"weight_decay", &optimizer.weight_decay, "on tensors of two or more dimensions",
        between(0, kMaxRate)},
       {"clip", &optimizer.clip, "largest global gradient norm; 0: no clipping", at_least(0)},
       {"warmup_steps", &optimizer.warmup_steps, "steps from 0 to `lr`, linearly", at_least(0)},
       {"schedule", lr_schedule_choice(optimizer.schedule), "from `lr` to `min_lr` after that"},
       {"min_lr", &optimizer.min_lr, "learning rate of the last step", between(0, kMaxRate)}}};
}

FieldSection balance_section(BalanceSection& balance) {
  return {
      "balance",
      "What keeps the experts evenly loaded. Coefficients in a config.json are not used.",
      {{"aux_loss", &balance.aux_loss,
        "coefficient of the load-balancing loss in Megatron's form: per MoE layer E * sum over "
        "experts of (share of the token slots * mean score), over the tokens of a shard's "
        "micro-batch, summed over layers; 1 a layer when balanced. transformers' form is k times "
        "that, averaged over layers: its coefficient times k / layers is about the same here",
        between(0, kMaxCoefficient)},
       {"z_loss", &balance.z_loss,
        "coefficient of the router z-loss: the mean over tokens of logsumexp(logits)^2, summed "
        "over "
        "layers",
        between(0, kMaxCoefficient)},
       {"bias_update", &balance.bias_update,
        "balancing without a loss: after every optimizer step the selection bias of an expert with "
        "less than the mean load grows by so much, of one with more falls",
        between(0, kMaxCoefficient)},
       {"capacity_factor", &balance.capacity_factor,
        "limit of the tokens an expert takes; 0 (none: every token reaches its experts), other "
        "values are refused",
        at_least(0)}}};
}

FieldSection parallel_section(ParallelSection& parallel) {
  return {"parallel",
          "How many workers share the model: one. Values that need several are refused.",
          {{"layout", layout_choice(parallel.layout),
            "attention and experts on the same ranks (`colocated`) or apart, which is refused"},
           {"pp", &parallel.pp, "pipeline stages; 1, other values are refused", at_least(1)},
           {"chunks", &parallel.chunks, "pipeline chunks per worker; 1, other values are refused",
            at_least(1)},
           {"dp", &parallel.dp, "data-parallel ranks; 1, other values are refused", at_least(1)},
           {"ep", &parallel.ep, "expert-parallel ranks; 1, other values are refused", at_least(1)},
           {"schedule", pipeline_schedule_choice(parallel.schedule),
            "order of a pipeline's work; all are the same with one stage"},
           {"all_to_all", &parallel.all_to_all,
            "how tokens travel between ranks; `auto`, other values are refused"}}};
}

FieldSection checkpoint_section(CheckpointSection& checkpoint) {
  return {
      "checkpoint",
      "Where the weights go.",
      {{"folder", path(checkpoint.folder), "folder of the checkpoints; empty: none"},
       {"every", &checkpoint.every, "steps between checkpoints; 0: only at the end", at_least(0)},
       {"keep", &checkpoint.keep, "how many of the newest stay when one is saved; 0: all",
        at_least(0)},
       {"resume", &checkpoint.resume,
        "continue from the newest complete checkpoint in `folder`, if there is one"}}};
}

FieldSection output_section(OutputSection& output) {
  return {
      "output",
      "What else is written.",
      {{"metrics", path(output.metrics), "JSON-lines file, one object per step; empty: none"},
       {"trace", path(output.trace), "timeline of the run; empty (none), other values are refused"},
       {"sample_prompt", &output.sample_prompt,
        "text to continue after training, drawn at temperature 0.8 with train.seed; empty: no "
        "sample"},
       {"sample_tokens", &output.sample_tokens, "length of that continuation",
        between(0, kMaxSampleTokens)}}};
}

Fields fields(RunConfig& config) {
  return {model_section(config.model),           data_section(config.data),
          train_section(config.train),           optimizer_section(config.optimizer),
          balance_section(config.balance),       parallel_section(config.parallel),
          checkpoint_section(config.checkpoint), output_section(config.output)};
}

/// The value of a key, as it is written where the key is set.
template <class Number>
std::string written(const RunConfig& config, std::string_view key, Number value) {
  return moestro::written(config.origins, key, static_cast<double>(value));
}

void check_model_and_data(const RunConfig& config) {
  if (config.model.config.empty() && config.model.load.empty()) {
    throw input_error(config.where("model.config"),
                      "expected a model, got none; write e.g. config = \"qwen3-30b-a3b\", or "
                      "load = \"a checkpoint folder\"");
  }
  if (!config.model.config.empty() && !config.model.load.empty()) {
    throw input_error(config.where("model.load"),
                      "expected one of model.config and model.load, got both; remove one");
  }
  if (config.data.text.empty()) {
    throw input_error(config.where("data.text"),
                      "expected at least one text file, got none; write e.g. text = [\"a.txt\"]");
  }
  const bool holds_out =
      !config.data.validation_text.empty() || config.data.validation_fraction > 0;
  if (config.train.validate_every > 0 && !holds_out) {
    throw input_error(config.where("train.validate_every"),
                      "expected 0 without held-out text, got {}; name data.validation_text or "
                      "raise data.validation_fraction",
                      written(config, "train.validate_every", config.train.validate_every));
  }
}

void check_batches(const RunConfig& config) {
  const TrainSection& train = config.train;
  const std::int64_t unit = train.micro_batch * train.shards;
  const std::int64_t below = train.global_batch / unit * unit;
  if (below == train.global_batch) return;
  const std::string choices =
      below == 0 ? std::to_string(unit) : fmt::format("{} or {}", below, below + unit);
  throw input_error(config.where("train.global_batch"),
                    "expected a multiple of micro_batch * shards = {} * {} = {}, got {}; write {}",
                    train.micro_batch, train.shards, unit,
                    written(config, "train.global_batch", train.global_batch), choices);
}

/// Numbers that f32 arithmetic would take for 0.
void check_vanishing(const RunConfig& config) {
  const std::pair<const char*, double> numbers[] = {
      {"optimizer.lr", config.optimizer.lr},
      {"optimizer.weight_decay", config.optimizer.weight_decay},
      {"optimizer.clip", config.optimizer.clip},
      {"optimizer.min_lr", config.optimizer.min_lr},
      {"balance.aux_loss", config.balance.aux_loss},
      {"balance.z_loss", config.balance.z_loss},
      {"balance.bias_update", config.balance.bias_update}};
  for (const auto& [key, number] : numbers) {
    if (number == 0.0 || number >= kMinF32) continue;
    throw input_error(config.where(key),
                      "expected 0 or a number >= {}, got {}; write 0 if it is meant",
                      exact(kMinF32), written(config, key, number));
  }
}

void check_optimizer(const RunConfig& config) {
  const OptimizerSection& optimizer = config.optimizer;
  if (optimizer.min_lr <= optimizer.lr) return;
  throw input_error(config.where("optimizer.min_lr"), "expected at most lr = {}, got {}; lower it",
                    written(config, "optimizer.lr", optimizer.lr),
                    written(config, "optimizer.min_lr", optimizer.min_lr));
}

void check_parallel(const RunConfig& config) {
  const ParallelSection& parallel = config.parallel;
  const std::pair<const char*, std::int64_t> degrees[] = {{"parallel.pp", parallel.pp},
                                                          {"parallel.chunks", parallel.chunks},
                                                          {"parallel.dp", parallel.dp},
                                                          {"parallel.ep", parallel.ep}};
  for (const auto& [key, degree] : degrees) {
    if (degree == 1) continue;
    throw input_error(config.where(key),
                      "expected 1, got {}; this version trains in one process (train.shards cuts "
                      "a batch the same way)",
                      written(config, key, degree));
  }
  if (parallel.layout != Layout::colocated) {
    throw input_error(config.where("parallel.layout"),
                      "expected \"colocated\", got \"disaggregated\"; this version trains in one "
                      "process");
  }
  if (parallel.all_to_all != "auto") {
    throw input_error(config.where("parallel.all_to_all"),
                      "expected \"auto\", got \"{}\"; this version trains in one process, which "
                      "exchanges nothing",
                      printable(parallel.all_to_all, 60));
  }
}

/// Keys whose other values later versions will have a meaning for.
void check_not_yet(const RunConfig& config) {
  if (config.balance.capacity_factor != 0.0) {
    throw input_error(config.where("balance.capacity_factor"),
                      "expected 0, got {}; this version drops no tokens",
                      written(config, "balance.capacity_factor", config.balance.capacity_factor));
  }
  if (!config.output.trace.empty()) {
    throw input_error(config.where("output.trace"),
                      "expected \"\", got \"{}\"; this version writes no trace of a run",
                      printable(config.output.trace, 60));
  }
}

/// Whether a metrics file would be where a run keeps its steps or what it hides (its lock), or
/// would take the place of their folder. Both paths are whole.
bool is_in_the_way(const std::filesystem::path& metrics, const std::filesystem::path& folder) {
  const std::filesystem::path inside = metrics.lexically_relative(folder);
  if (inside == "." || inside.filename() == "..") return true;
  if (inside.empty() || *inside.begin() == "..") return false;
  const std::string first = inside.begin()->string();
  const bool has_lock_of_run = inside == "moestro";  // ".moestro.lock"
  return first.starts_with("step-") || first.starts_with(".") || has_lock_of_run;
}

void check_metrics_place(const RunConfig& config) {
  if (config.output.metrics.empty() || config.checkpoint.folder.empty()) return;
  const auto as_written = [](const std::string& path) {
    return std::filesystem::absolute(path + "/").lexically_normal().parent_path();
  };
  const auto resolved = [&](const std::string& path) {
    std::error_code code;
    const auto whole =
        std::filesystem::weakly_canonical(std::filesystem::absolute(behind_links(path)), code);
    return code ? as_written(path) : as_written(whole.string());
  };
  const std::string& metrics = config.output.metrics;
  const std::string& folder = config.checkpoint.folder;
  if (!is_in_the_way(as_written(metrics), as_written(folder)) &&
      !is_in_the_way(resolved(metrics), resolved(folder))) {
    return;
  }
  throw input_error(config.where("output.metrics"),
                    "expected a file outside the checkpoints (checkpoint.folder itself and in it "
                    "step-*, hidden files and \"moestro\" are taken), got \"{}\"; name another",
                    metrics);
}

void check(const RunConfig& config) {
  check_model_and_data(config);
  check_batches(config);
  check_vanishing(config);
  check_optimizer(config);
  check_parallel(config);
  check_not_yet(config);
  check_metrics_place(config);
  const std::pair<const char*, std::int64_t> of_a_folder[] = {
      {"checkpoint.every", config.checkpoint.every}, {"checkpoint.keep", config.checkpoint.keep}};
  for (const auto& [key, value] : of_a_folder) {
    if (value == 0 || !config.checkpoint.folder.empty()) continue;
    throw input_error(config.where(key),
                      "expected 0 without checkpoint.folder, got {}; name a folder, or write 0",
                      written(config, key, value));
  }
}

}  // namespace

std::string RunConfig::where(std::string_view key) const {
  return moestro::where(origins, file, key);
}

RunConfig read_run_config(const std::filesystem::path& path,
                          const std::vector<std::string>& overrides) {
  RunConfig config;
  config.file = path;
  config.origins = read_fields(path, overrides, fields(config));
  check(config);
  return config;
}

Settings numeric_settings(const RunConfig& config) {
  RunConfig copy = config;  // fields() binds what it may write to
  // The seed orders the data, which a checkpoint knows apart (DataIdentity).
  const auto matters = [](const std::string& key) {
    return key == "model.load" || key == "model.init_seed" || key == "train.steps" ||
           key == "train.global_batch" || key == "train.micro_batch" || key == "train.shards" ||
           key == "train.dtype" || key.starts_with("optimizer.") || key.starts_with("balance.");
  };
  Settings settings = field_values(fields(copy));
  std::erase_if(settings, [&](const auto& entry) { return !matters(entry.first); });
  return settings;
}

std::string describe_run_options() {
  RunConfig config;
  return "# Options of a run file\n\n"
         "Every key of the file that `moestro train RUN.toml` reads. All have a default except the "
         "model and the text.\n"
         "`--set section.key=value` overrides one. Relative paths are relative to the file; in "
         "`--set`, to the current folder.\nA path may begin with `~/`, the home folder.\n\n" +
         fields_to_markdown(fields(config));
}

}  // namespace moestro::runtime
