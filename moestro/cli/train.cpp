// moestro train RUN.toml: reads the run file, shows the run, writes its metrics.

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "moestro/cli/command.h"
#include "moestro/cli/interrupt.h"
#include "moestro/cli/metrics_writer.h"
#include "moestro/cli/options.h"
#include "moestro/cli/progress.h"
#include "moestro/cli/train_summary.h"
#include "moestro/core/error_context.h"
#include "moestro/core/log.h"
#include "moestro/runtime/trainer.h"

namespace moestro::cli {
namespace {

struct TrainArguments {
  std::string file;
  std::vector<std::string> overrides;
  CommonOptions common;
};

bool parse_train(const Arguments& arguments, TrainArguments& parsed) {
  CLI::App app("Trains a model as RUN.toml says (docs/options.md lists its keys).",
               "moestro train");
  app.add_option("RUN.toml", parsed.file, "the run file")->required();
  app.add_option("--set", parsed.overrides, "override one key of the run file; may be repeated")
      ->type_name("SECTION.KEY=VALUE")
      ->allow_extra_args(false);
  add_common_options(app, parsed.common);
  return parse(app, arguments, parsed.common);
}

Schedule schedule_of(const runtime::RunConfig& config) {
  return {.steps = config.train.steps,
          .validate_every = config.train.validate_every,
          .save_every = config.checkpoint.every};
}

/// While it lives, whatever else is printed begins on a line of its own.
class OpenLineGuard {
 public:
  explicit OpenLineGuard(Progress& progress) : progress_(progress) {
    set_before_log_line([this] { progress_.finish(); });
  }
  OpenLineGuard(const OpenLineGuard&) = delete;
  OpenLineGuard& operator=(const OpenLineGuard&) = delete;
  ~OpenLineGuard() {
    set_before_log_line({});
    progress_.finish();
  }

 private:
  Progress& progress_;
};

/// What follows a run from its start to its summary.
struct Audience {
  Progress progress;
  std::unique_ptr<MetricsWriter> metrics = nullptr;
  runtime::RunReport run = {};
  RunTotals totals = {};
  bool shows_progress = true;
};

runtime::TrainHooks hooks_of(Audience& audience, const runtime::RunConfig& config) {
  runtime::TrainHooks hooks;
  hooks.on_start = [&audience, metrics_path = config.output.metrics,
                    metrics_key = config.where("output.metrics"),
                    steps = config.train.steps](const runtime::RunReport& run) {
    audience.run = run;
    if (run.first_step > steps) return;  // no step is left: metrics stay as they are
    if (!metrics_path.empty()) {
      audience.metrics = in_context(metrics_key, [&] {
        return std::make_unique<MetricsWriter>(metrics_path, run.first_step, run.recent_losses);
      });
    }
    if (audience.shows_progress) audience.progress.start(run);
  };
  hooks.on_step = [&audience](const runtime::StepReport& step) {
    add(audience.totals, step);
    if (audience.metrics) audience.metrics->write(step);
    if (audience.shows_progress) audience.progress.step(step);
  };
  hooks.on_checkpoint = [&audience](const std::string& folder, double seconds) {
    if (audience.shows_progress) audience.progress.checkpoint(folder, seconds);
  };
  return hooks;
}

}  // namespace

int train(const Arguments& arguments) {
  TrainArguments parsed;
  if (!parse_train(arguments, parsed)) return kDone;
  const runtime::RunConfig config = runtime::read_run_config(parsed.file, parsed.overrides);

  if (!config.output.metrics.empty()) {
    in_context(config.where("output.metrics"), [&] {
      require_writable_metrics(config.output.metrics);
      if (parsed.common.json) require_other_than_output(config.output.metrics);
    });
  }
  Audience audience{.progress = Progress(error_screen(), schedule_of(config)),
                    .shows_progress = !parsed.common.quiet};
  const InterruptGuard interrupt(!config.checkpoint.folder.empty());
  runtime::TrainHooks hooks = hooks_of(audience, config);
  hooks.stop = &interrupt.stop();
  const runtime::TrainResult result = [&] {
    const OpenLineGuard guard(audience.progress);
    return runtime::train(config, hooks);
  }();

  if (parsed.common.json) {
    print_json(summary_json(audience.run, result, audience.totals));
  } else {
    print(summary_text(audience.run, result, audience.totals));
  }
  flush_output();  // while a second signal can still end a process whose output nobody reads
  return kDone;
}

}  // namespace moestro::cli
