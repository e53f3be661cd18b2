#pragma once
// A training run as the user writes it (run.toml): plain data with the defaults in place. Names,
// ranges and help of every key are declared once, in run_config.cpp, from which reading, --set,
// and docs/options.md follow.

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "moestro/core/fields.h"

namespace moestro::runtime {

enum class Dtype { f32, bf16 };
enum class Recompute { none, layer };
enum class LrSchedule { constant, linear, cosine };
enum class Layout { colocated, disaggregated };
/// How micro-batches pass through pipeline stages. With one stage all are the same.
enum class PipelineSchedule {
  gpipe,
  one_f_one_b,
  interleaved,
  interleaved_zero_bubble,
  zb_h1,
  zb_h2,
  zero_bubble_v,
  dualpipe,
  dualpipe_v,
  af_pipe
};

struct ModelSection {
  std::string config;  // path of a config.json, folder, or built-in name: start from random weights
  std::string load;    // folder with a Hugging Face or moestro checkpoint: start from its weights
  std::int64_t init_seed = 1;
};

struct DataSection {
  std::vector<std::string> text;             // UTF-8 files
  std::vector<std::string> validation_text;  // held-out files; empty: the tail of `text`
  double validation_fraction = 0.05;         // of every text file, when validation_text is empty
  std::string tokenizer = "byte";
  std::int64_t seq_len = 256;
};

struct TrainSection {
  std::int64_t steps = 100;
  std::int64_t global_batch = 16;  // sequences per step
  std::int64_t micro_batch = 1;    // sequences per shard and micro-batch
  std::int64_t shards = 1;         // a global micro-batch is shards * micro_batch sequences
  std::int64_t seed = 1;
  Dtype dtype = Dtype::f32;
  Recompute recompute = Recompute::none;
  std::int64_t threads = 0;             // 0: all cores
  std::int64_t validate_every = 0;      // steps; 0: only at the end
  std::int64_t validation_batches = 8;  // global batches' worth of sequences, at most
};

struct OptimizerSection {  // AdamW
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;  // on tensors of two or more dimensions
  double clip = 1.0;          // global gradient norm; 0: no clipping
  std::int64_t warmup_steps = 0;
  LrSchedule schedule = LrSchedule::cosine;
  double min_lr = 0.0;
};

struct BalanceSection {
  double aux_loss = 0.0;         // coefficient of the load-balancing loss
  double z_loss = 0.0;           // coefficient of the router z-loss
  double bias_update = 0.0;      // rate of the auxiliary-loss-free selection-bias update
  double capacity_factor = 0.0;  // 0: no token is dropped
};

struct ParallelSection {
  Layout layout = Layout::colocated;
  std::int64_t pp = 1;
  std::int64_t chunks = 1;
  std::int64_t dp = 1;
  std::int64_t ep = 1;
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  std::string all_to_all = "auto";
};

struct CheckpointSection {
  std::string folder;      // empty: no checkpoints
  std::int64_t every = 0;  // steps; 0: only at the end
  std::int64_t keep = 0;   // the newest so many; 0: all
  bool resume = true;      // continue from the newest complete checkpoint in `folder`
};

struct OutputSection {
  std::string metrics;        // JSON-lines file; empty: none
  std::string trace;          // empty: none
  std::string sample_prompt;  // text to continue after training; empty: no sample
  std::int64_t sample_tokens = 200;
};

struct RunConfig {
  ModelSection model;
  DataSection data;
  TrainSection train;
  OptimizerSection optimizer;
  BalanceSection balance;
  ParallelSection parallel;
  CheckpointSection checkpoint;
  OutputSection output;

  std::filesystem::path file;  // it was read from; empty: made by a program
  Origins origins;             // of the keys that were set

  /// "run.toml:7 train.steps": what an error about a key starts with.
  [[nodiscard]] std::string where(std::string_view key) const;
};

/// Reads run.toml and applies `--set key.path=value` overrides in order. Relative paths in the file
/// become relative to the file's folder; those in overrides to the current folder.
/// Errors: input, naming file, line and key, with the nearest key or the allowed values.
[[nodiscard]] RunConfig read_run_config(const std::filesystem::path& path,
                                        const std::vector<std::string>& overrides);

/// "section.key" -> value, as a run file writes it.
using Settings = std::map<std::string, std::string>;

/// The settings that numbers of a run depend on and that may be changed when it is resumed: steps,
/// batches, dtype, optimizer, balancing; and where its first weights came from, which then counts
/// no more.
[[nodiscard]] Settings numeric_settings(const RunConfig& config);

/// Every key with type, default, range and help, as Markdown (docs/options.md).
[[nodiscard]] std::string describe_run_options();

}  // namespace moestro::runtime
