#pragma once
// What a finished training run has to say, for people and for programs.

#include <cstdint>
#include <string>

#include "moestro/core/json.h"
#include "moestro/runtime/trainer.h"

namespace moestro::cli {

/// Sums over the steps of a run, for its mean rates: training alone, no validation, no saving.
struct RunTotals {
  std::int64_t tokens = 0;
  double seconds = 0.0;
  double flops = 0.0;
};
void add(RunTotals& totals, const runtime::StepReport& step);

/// Losses beside the unigram entropy, speed, memory, checkpoint, sample.
[[nodiscard]] std::string summary_text(const runtime::RunReport& run,
                                       const runtime::TrainResult& result, const RunTotals& totals);

/// Keys: format, version, model, parameters, active_parameters, steps, first_step, final_loss,
/// validation_loss, validation_tokens, unigram_entropy, tokens, tokens_per_second,
/// flops_per_second, gemm_peak_flops_per_second, gemm_peak_core_share, mfu, training_seconds,
/// validation_seconds, checkpoint_seconds, threads, dtype, peak_rss_bytes, interrupted, checkpoint,
/// sample. What was not computed or measured is null.
[[nodiscard]] Json summary_json(const runtime::RunReport& run, const runtime::TrainResult& result,
                                const RunTotals& totals);

}  // namespace moestro::cli
