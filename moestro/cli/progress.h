#pragma once
// What a user sees of a training run: what is trained, a line that updates in place on a terminal
// (and plain lines, not one per step, elsewhere), and the summary.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "moestro/core/json.h"
#include "moestro/runtime/trainer.h"

namespace moestro::cli {

/// Where progress is shown.
struct Screen {
  std::function<void(std::string_view)> write;
  bool is_terminal = false;
  std::function<int()> width;  // columns, asked before every line
};
/// Standard error.
[[nodiscard]] Screen error_screen();

/// "1h02m", "3m20s", "12s", "1.5s".
[[nodiscard]] std::string duration_text(double seconds);

/// One step in at most `width` columns: what matters least is left out first.
[[nodiscard]] std::string progress_line(const runtime::StepReport& report, std::int64_t last_step,
                                        double eta_seconds, int width);

/// Several lines: model, data, machine.
[[nodiscard]] std::string start_text(const runtime::RunReport& run);

/// When a run validates and saves: every so many steps (0: never) and after the last.
struct Schedule {
  std::int64_t steps = 0;
  std::int64_t validate_every = 0;
  std::int64_t save_every = 0;
};

/// Shows a run as it goes. Time is counted in the seconds that are reported, so that tests need no
/// clock.
class Progress {
 public:
  Progress(Screen screen, const Schedule& schedule);

  void start(const runtime::RunReport& run);
  void step(const runtime::StepReport& report);
  void checkpoint(const std::string& folder, double seconds);
  /// Ends the line that updates in place. Call it before anything else is printed.
  void finish();

 private:
  /// Of some steps.
  struct Pace {
    std::int64_t tokens = 0;
    double seconds = 0.0;
  };

  [[nodiscard]] bool is_due(const runtime::StepReport& report) const;
  /// The step, with the rates of all since the last one that was shown.
  void show(runtime::StepReport report, const Pace& pace);
  void print_line(const std::string& line);
  /// Of the steps after this one, and of the validations and checkpoints among them, as long as
  /// those before took.
  [[nodiscard]] double eta_seconds(std::int64_t step) const;

  Screen screen_;
  Schedule schedule_;
  std::int64_t first_step_ = 1;
  double unigram_entropy_ = 0.0;
  double elapsed_seconds_ = 0.0;
  double average_step_seconds_ = 0.0;
  double validation_seconds_ = 0.0;  // of the last
  double checkpoint_seconds_ = 0.0;
  double shown_at_seconds_ = 0.0;
  std::int64_t shown_step_ = 0;
  Pace since_shown_;
  bool has_open_line_ = false;
};

}  // namespace moestro::cli
