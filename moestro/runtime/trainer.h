#pragma once
// Training in one process: the step loop, with everything a caller wants to see of it.

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "moestro/runtime/run_config.h"

namespace moestro::runtime {

/// Whether this build can train (it has torch). Without, the functions here throw Error(input)
/// naming the CMake option.
[[nodiscard]] bool is_available();

/// How the router loaded the experts in one step, over all MoE layers.
struct MoeReport {
  double max_over_mean = 0.0;     // worst layer: tokens of the busiest expert / mean
  double gini = 0.0;              // mean over layers
  std::int64_t dead_experts = 0;  // experts without a token, summed over layers
  double aux_loss = 0.0;          // mean over layers and micro-batches, before its coefficient
};

/// One training step.
struct StepReport {
  std::int64_t step = 0;    // from 1
  float loss = 0.0F;        // mean cross-entropy per token before the update, nats
  std::int64_t tokens = 0;  // tokens of this step
  double step_seconds = 0.0;
  double tokens_per_second = 0.0;
  double flops_per_second = 0.0;  // model FLOPs (no recomputation)
  double mfu = 0.0;               // flops_per_second / measured GEMM peak
  double grad_norm = 0.0;         // before clipping
  double lr = 0.0;
  std::optional<MoeReport> moe;          // absent for models without routed experts
  std::optional<float> validation_loss;  // nats per token, when validated after this step
  double validation_seconds = 0.0;       // not in step_seconds
};

/// What is known before the first step.
struct RunReport {
  std::string model;  // one line: family, layers, experts
  std::int64_t parameters = 0;
  std::int64_t active_parameters = 0;
  std::int64_t train_tokens = 0;            // in the data
  double epochs = 0.0;                      // passes over them, by the last step
  std::int64_t held_out_tokens = 0;         // in the data
  std::int64_t validation_tokens = 0;       // of these, predicted in a validation
  double unigram_entropy = 0.0;             // of their own frequencies, nats per token
  double flops_per_token = 0.0;             // forward + backward
  double gemm_peak_flops_per_second = 0.0;  // measured in this process, this dtype and thread count
  double gemm_peak_core_share =
      1.0;  // of the cores' time, that this process could get when it began
  int threads = 1;
  std::string dtype;                 // what is computed in, after any fallback
  std::int64_t first_step = 1;       // > 1 when resumed; > train.steps: no step is left
  std::string resumed_from;          // folder of the checkpoint, empty if none
  std::vector<float> recent_losses;  // of the steps before the first, that the checkpoint knows
};

struct TrainResult {
  std::int64_t steps = 0;                // done in this run
  std::optional<float> final_loss;       // of the last of them
  std::optional<float> validation_loss;  // the last
  std::int64_t validation_step = 0;      // after which step it was taken
  double validation_seconds = 0.0;
  double checkpoint_seconds = 0.0;
  bool interrupted = false;              // by `stop`
  std::string checkpoint;                // folder of the last checkpoint, empty if none
  std::string sample;                    // generated text, empty if not asked for
  std::optional<double> peak_rss_bytes;  // absent: the system does not say
};

struct TrainHooks {
  std::function<void(const RunReport&)> on_start;
  std::function<void(const StepReport&)> on_step;
  std::function<void(const std::string& folder, double seconds)> on_checkpoint;
  // Set: finish the step, give up a validation or a sample that is under way, save, return.
  const std::atomic<bool>* stop = nullptr;
};

/// Runs what `config` says. A run whose steps are done already says so and does what follows the
/// last step, from the newest checkpoint: validation and sample. It saves nothing.
/// Errors: input for anything the user can fix, infeasible for a model or a text larger than the
/// memory, io for disks.
[[nodiscard]] TrainResult train(const RunConfig& config, const TrainHooks& hooks);

}  // namespace moestro::runtime
