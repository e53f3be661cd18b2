#include "moestro/cli/train_summary.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "moestro/cli/progress.h"
#include "moestro/core/text.h"
#include "moestro/core/units.h"

namespace moestro::cli {
namespace {

double rate(double amount, double seconds) {
  return seconds > 0.0 ? amount / seconds : 0.0;
}

double mfu(const runtime::RunReport& run, const RunTotals& totals) {
  return rate(rate(totals.flops, totals.seconds), run.gemm_peak_flops_per_second);
}

/// The shortest decimal text of a float, read as a double: prints as the float would. Null where
/// there is no number.
Json widened(const std::optional<float>& value) {
  return value && std::isfinite(*value) ? Json(std::stod(exact(*value))) : Json();
}

std::string steps_text(const runtime::RunReport& run, const runtime::TrainResult& result,
                       const RunTotals& totals) {
  return fmt::format(
      "{} {} step{}, {} tokens in {}: {:.0f} tokens/s, {}, MFU {:.1f} %\n",
      result.interrupted ? "interrupted after" : "trained", result.steps,
      result.steps == 1 ? "" : "s", with_thousands(totals.tokens), duration_text(totals.seconds),
      rate(static_cast<double>(totals.tokens), totals.seconds),
      to_string(FlopsPerSecond(rate(totals.flops, totals.seconds))), mfu(run, totals) * 100.0);
}

/// What of a run's time was not spent on steps; empty if nothing was.
std::string other_times_text(const runtime::TrainResult& result) {
  std::vector<std::string> times;
  if (result.validation_seconds > 0.0) {
    times.push_back("validation " + duration_text(result.validation_seconds));
  }
  if (result.checkpoint_seconds > 0.0) {
    times.push_back("checkpoints " + duration_text(result.checkpoint_seconds));
  }
  return times.empty() ? "" : fmt::format("besides          {}\n", join(times, ", "));
}

/// Generated text may hold any bytes: control characters must not reach the terminal.
std::string safe_lines(const std::string& text) {
  std::vector<std::string> lines = split(text, '\n');
  for (std::string& line : lines) line = "  " + printable(line, std::string::npos);
  return join(lines, "\n");
}

}  // namespace

void add(RunTotals& totals, const runtime::StepReport& step) {
  totals.tokens += step.tokens;
  totals.seconds += step.step_seconds;
  totals.flops += step.flops_per_second * step.step_seconds;
}

std::string summary_text(const runtime::RunReport& run, const runtime::TrainResult& result,
                         const RunTotals& totals) {
  std::string text = result.steps > 0     ? steps_text(run, result, totals)
                     : result.interrupted ? "interrupted after 0 steps\n"
                                          : "trained no steps\n";
  text += other_times_text(result);
  if (result.final_loss) {
    text += fmt::format("training loss    {:.4f} nats per token, in the last step\n",
                        *result.final_loss);
  }
  if (result.validation_loss) {
    const std::int64_t last_step = run.first_step - 1 + result.steps;
    text += fmt::format(
        "validation loss  {:.4f}{} over {} tokens, whose unigram entropy is {:.4f}\n",
        *result.validation_loss,
        result.validation_step == last_step ? ""
                                            : fmt::format(" after step {}", result.validation_step),
        with_thousands(run.validation_tokens), run.unigram_entropy);
  }
  if (!result.checkpoint.empty()) {
    text += fmt::format("checkpoint       {}\n", printable(result.checkpoint, std::string::npos));
  }
  if (result.peak_rss_bytes) {
    text += fmt::format("peak memory      {}\n", to_string(Bytes(*result.peak_rss_bytes)));
  }
  if (!result.sample.empty()) text += fmt::format("sample:\n{}\n", safe_lines(result.sample));
  return text;
}

Json summary_json(const runtime::RunReport& run, const runtime::TrainResult& result,
                  const RunTotals& totals) {
  Json json = {{"format", "moestro.train"},
               {"version", 1},
               {"model", run.model},
               {"parameters", run.parameters},
               {"active_parameters", run.active_parameters},
               {"first_step", run.first_step},
               {"steps", result.steps},
               {"final_loss", widened(result.final_loss)},
               {"validation_loss", widened(result.validation_loss)},
               {"validation_step", result.validation_loss ? Json(result.validation_step) : Json()},
               {"validation_tokens", run.validation_tokens},
               {"unigram_entropy", run.unigram_entropy}};
  json["tokens"] = totals.tokens;
  json["tokens_per_second"] = rate(static_cast<double>(totals.tokens), totals.seconds);
  json["flops_per_second"] = rate(totals.flops, totals.seconds);
  json["gemm_peak_flops_per_second"] = run.gemm_peak_flops_per_second;
  json["gemm_peak_core_share"] = run.gemm_peak_core_share;
  json["mfu"] = mfu(run, totals);
  json["training_seconds"] = totals.seconds;
  json["validation_seconds"] = result.validation_seconds;
  json["checkpoint_seconds"] = result.checkpoint_seconds;
  json["threads"] = run.threads;
  json["dtype"] = run.dtype;
  json["peak_rss_bytes"] =
      result.peak_rss_bytes ? Json(static_cast<std::int64_t>(*result.peak_rss_bytes)) : Json();
  json["interrupted"] = result.interrupted;
  json["checkpoint"] = result.checkpoint;
  json["sample"] = result.sample;
  return json;
}

}  // namespace moestro::cli
