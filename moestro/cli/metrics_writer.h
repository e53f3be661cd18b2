#pragma once
// The metrics file of a training run: one JSON object per step and line, complete after every step.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "moestro/core/file.h"
#include "moestro/core/file_lock.h"
#include "moestro/runtime/trainer.h"

namespace moestro::cli {

/// One step as one line of JSON, without the newline. Numbers are the shortest text that reads back
/// as the same number; what is not finite becomes null.
[[nodiscard]] std::string metrics_line(const runtime::StepReport& report);

/// Finds out before a run that its metrics could not be written; creates missing parent folders.
/// Errors: input.
void require_writable_metrics(const std::filesystem::path& path);

/// Errors: input, if the file is what standard output goes to.
void require_other_than_output(const std::filesystem::path& path);

/// Appends to a metrics file and flushes every line.
class MetricsWriter {
 public:
  /// Keeps the steps before `first_step` of an existing file and drops the others, so that a
  /// resumed run leaves every step once. The file of another run is set aside, with a warning: of
  /// any, if this one begins at step 1, and otherwise one whose last step before the first is none
  /// of those with `recent_losses`, the last of which is of the step before the first (none: not
  /// known, and the file is taken for this run's). An error may have kept the last step from the
  /// file. Errors: input, if the file holds something else or another run writes it; io.
  MetricsWriter(const std::filesystem::path& path, std::int64_t first_step,
                const std::vector<float>& recent_losses);

  /// Goes on in a new file where the old one was removed or replaced, with a warning. Errors: io,
  /// e.g. a full disk; the file then ends with the step before.
  void write(const runtime::StepReport& report);

 private:
  std::filesystem::path path_;
  std::optional<FileLock> lock_;      // none for devices
  std::optional<AppendedFile> file_;  // opened once the past is in order
};

}  // namespace moestro::cli
