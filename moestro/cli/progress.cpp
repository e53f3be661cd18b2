#include "moestro/cli/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "moestro/core/text.h"
#include "moestro/core/units.h"
#include "moestro/kernels/gemm_peak.h"

namespace moestro::cli {
namespace {

constexpr int kDefaultWidth = 80;
constexpr double kTerminalPeriod = 0.1;  // seconds: faster than that nobody reads
constexpr double kPlainPeriod = 5.0;     // seconds between lines of a log, at first
constexpr double kPlainShare = 0.05;     // of the steps, or of the time so far, between lines later
constexpr double kAveraging = 0.9;       // weight of the past in the step time behind the ETA
constexpr std::string_view kClearLine = "\r\x1b[K";

int terminal_width() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kDefaultWidth;
  return size.ws_col;
}

/// A piece of the line; pieces of the highest rank are left out first when space is short.
struct Piece {
  std::string text;
  int rank;
};

std::string fit(std::vector<Piece> pieces, int width) {
  const auto total = [&] {
    std::size_t columns = 0;
    for (const Piece& piece : pieces) columns += piece.text.size() + 2;
    return static_cast<int>(columns) - 2;
  };
  while (pieces.size() > 1 && total() > width) {
    pieces.erase(std::max_element(pieces.begin(), pieces.end(),
                                  [](const Piece& a, const Piece& b) { return a.rank < b.rank; }));
  }
  std::string line;
  for (const Piece& piece : pieces) {
    if (!line.empty()) line += "  ";
    line += piece.text;
  }
  return line.substr(0, static_cast<std::size_t>(std::max(width, 0)));
}

/// How often something that is done every so many steps, and after the last, comes after `step`.
std::int64_t times_after(std::int64_t step, std::int64_t last, std::int64_t every) {
  if (step >= last) return 0;
  if (every == 0) return 1;
  return (last + every - 1) / every - step / every;
}

/// Why MFU, whose peak is that of an idle machine, may be low; empty where nobody else used the
/// cores.
std::string shared_cores_text(const runtime::RunReport& run) {
  if (run.gemm_peak_core_share >= kernels::kUndisturbedShare) return "";
  return fmt::format("; other programs take {:.0f} % of the cores, which lowers MFU",
                     (1.0 - run.gemm_peak_core_share) * 100.0);
}

}  // namespace

Screen error_screen() {
  const auto write = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
  };
  return {write, ::isatty(STDERR_FILENO) == 1, terminal_width};
}

std::string duration_text(double seconds) {
  constexpr double kLongest = 1e9;  // also what NaN and infinity become
  const auto s = static_cast<std::int64_t>(
      std::isfinite(seconds) ? std::clamp(std::round(seconds), 0.0, kLongest) : kLongest);
  if (s < 10) return fmt::format("{:.1f}s", std::max(seconds, 0.0));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
}

std::string progress_line(const runtime::StepReport& report, std::int64_t last_step,
                          double eta_seconds, int width) {
  const std::string last = std::to_string(last_step);
  std::vector<Piece> pieces = {{fmt::format("step {:>{}}/{}", report.step, last.size(), last), 0},
                               {fmt::format("loss {:.4f}", report.loss), 1},
                               {fmt::format("{:.0f} tokens/s", report.tokens_per_second), 3},
                               {fmt::format("{:.3g} TFLOP/s", report.flops_per_second / 1e12), 6}};
  if (report.mfu > 0.0) pieces.push_back({fmt::format("MFU {:.1f} %", report.mfu * 100.0), 4});
  if (report.moe) pieces.push_back({fmt::format("load {:.2f}", report.moe->max_over_mean), 5});
  pieces.push_back({"ETA " + duration_text(eta_seconds), 2});
  return fit(std::move(pieces), width);
}

std::string start_text(const runtime::RunReport& run) {
  std::string text = fmt::format(
      "model    {}\n         {} parameters, {} active, {} per token\n"
      "data     {} tokens to train on ({:.3g} epochs in all), {} held out\n"
      "machine  {} threads, {}, GEMM peak {}{}\n",
      run.model, with_thousands(run.parameters), with_thousands(run.active_parameters),
      to_string(Flops(run.flops_per_token)), with_thousands(run.train_tokens), run.epochs,
      with_thousands(run.held_out_tokens), run.threads, run.dtype,
      to_string(FlopsPerSecond(run.gemm_peak_flops_per_second)), shared_cores_text(run));
  if (run.first_step > 1) {
    text += fmt::format("resumes  at step {}, from {}\n", run.first_step,
                        printable(run.resumed_from, std::string::npos));
  }
  return text;
}

Progress::Progress(Screen screen, const Schedule& schedule)
    : screen_(std::move(screen)), schedule_(schedule) {}

void Progress::start(const runtime::RunReport& run) {
  first_step_ = run.first_step;
  shown_step_ = run.first_step - 1;
  unigram_entropy_ = run.unigram_entropy;
  screen_.write(start_text(run));
}

void Progress::step(const runtime::StepReport& report) {
  since_shown_.tokens += report.tokens;
  since_shown_.seconds += report.step_seconds;
  elapsed_seconds_ += report.step_seconds + report.validation_seconds;
  average_step_seconds_ = report.step == first_step_ ? report.step_seconds
                                                     : kAveraging * average_step_seconds_ +
                                                           (1.0 - kAveraging) * report.step_seconds;
  if (report.validation_loss) validation_seconds_ = report.validation_seconds;
  if (is_due(report)) show(report, since_shown_);
  if (report.validation_loss) {
    print_line(fmt::format("step {}: validation loss {:.4f} (unigram entropy {:.4f})", report.step,
                           *report.validation_loss, unigram_entropy_));
  }
}

void Progress::checkpoint(const std::string& folder, double seconds) {
  elapsed_seconds_ += seconds;
  checkpoint_seconds_ = seconds;
  print_line("saved " + printable(folder, std::string::npos));
}

void Progress::finish() {
  if (has_open_line_) screen_.write("\n");
  has_open_line_ = false;
}

bool Progress::is_due(const runtime::StepReport& report) const {
  if (report.step == first_step_ || report.step == schedule_.steps || report.validation_loss)
    return true;
  const double waited = elapsed_seconds_ - shown_at_seconds_;
  if (screen_.is_terminal) return waited >= kTerminalPeriod;
  const auto steps = static_cast<double>(report.step - shown_step_);
  return steps >= kPlainShare * static_cast<double>(schedule_.steps - first_step_ + 1) ||
         waited >= std::max(kPlainPeriod, kPlainShare * elapsed_seconds_);
}

void Progress::show(runtime::StepReport report, const Pace& pace) {
  const double eta = eta_seconds(report.step);
  const double rate = static_cast<double>(pace.tokens) / pace.seconds;
  const double change = rate / report.tokens_per_second;
  report.tokens_per_second = rate;
  report.flops_per_second *= change;
  report.mfu *= change;
  since_shown_ = {};
  shown_at_seconds_ = elapsed_seconds_;
  shown_step_ = report.step;
  if (!screen_.is_terminal) {
    screen_.write(progress_line(report, schedule_.steps, eta, 1000) + "\n");
    return;
  }
  // One column stays free: terminals wrap when the last one is filled.
  screen_.write(fmt::format("{}{}", kClearLine,
                            progress_line(report, schedule_.steps, eta, screen_.width() - 1)));
  has_open_line_ = true;
}

double Progress::eta_seconds(std::int64_t step) const {
  const auto [last, validate_every, save_every] = schedule_;
  return average_step_seconds_ * static_cast<double>(last - step) +
         validation_seconds_ * static_cast<double>(times_after(step, last, validate_every)) +
         checkpoint_seconds_ * static_cast<double>(times_after(step, last, save_every));
}

void Progress::print_line(const std::string& line) {
  finish();
  screen_.write(line + "\n");
}

}  // namespace moestro::cli
