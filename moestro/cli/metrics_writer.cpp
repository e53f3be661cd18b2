#include "moestro/cli/metrics_writer.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "moestro/core/error.h"
#include "moestro/core/json.h"
#include "moestro/core/log.h"
#include "moestro/core/text.h"

namespace moestro::cli {
namespace {

template <class T>
std::string number(T value) {
  return std::isfinite(value) ? exact(value) : "null";
}

std::string moe_object(const runtime::MoeReport& moe) {
  return fmt::format(R"({{"max_over_mean":{},"gini":{},"dead_experts":{},"aux_loss":{}}})",
                     number(moe.max_over_mean), number(moe.gini), moe.dead_experts,
                     number(moe.aux_loss));
}

struct Line {
  std::int64_t step = 0;
  std::optional<float> loss;
};

/// A metrics line, or nothing when the text is none.
std::optional<Line> line_of(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) {
    return std::nullopt;
  }
  Line line{.step = json["step"].get<std::int64_t>()};
  if (json.contains("loss") && json["loss"].is_number()) line.loss = json["loss"].get<float>();
  return line;
}

/// Whether a line may be the beginning of one of ours.
bool may_be_cut_off(std::string_view line) {
  constexpr std::string_view kBeginning = R"({"step":)";
  return line.substr(0, kBeginning.size()) == kBeginning.substr(0, line.size());
}

/// What a metrics file holds for a run that goes on at some step.
struct Past {
  std::string kept;  // the lines before that step
  Line last;         // of those
  bool is_empty = true;
};

/// A broken last line is what a crash leaves: it goes.
Past past_of(const std::string& old, std::int64_t first_step, const std::string& path) {
  Past past;
  const std::vector<std::string> lines = split(old, '\n');
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    const std::optional<Line> line = line_of(lines[i]);
    if (!line && (i + 1 < lines.size() || !may_be_cut_off(lines[i]))) {
      throw input_error(fmt::format("{}:{}", path, i + 1),
                        "expected a metrics file or none, got other text; name another file in "
                        "output.metrics");
    }
    if (!line) continue;
    past.is_empty = false;
    if (line->step >= first_step) continue;
    past.kept += lines[i] + '\n';
    if (line->step >= past.last.step) past.last = *line;
  }
  return past;
}

/// Whether the file's last step has its loss among those of the steps before `first_step`.
bool goes_on_in(const Past& past, std::int64_t first_step, const std::vector<float>& losses) {
  if (losses.empty()) return true;
  const std::int64_t steps_back = first_step - past.last.step;  // 1: the last of the losses
  const auto count = static_cast<std::int64_t>(losses.size());
  if (steps_back < 1 || steps_back > count) return false;
  return past.last.loss == losses[static_cast<std::size_t>(count - steps_back)];
}

void set_aside(const std::filesystem::path& path) {
  std::filesystem::path aside;
  const auto is_taken = [&] {  // also by a link that leads nowhere
    return std::filesystem::exists(std::filesystem::symlink_status(aside));
  };
  for (int i = 1; aside.empty() || is_taken(); ++i) {
    aside = fmt::format("{}.earlier-{}", path.string(), i);
  }
  std::error_code code;
  std::filesystem::rename(path, aside, code);
  if (code)
    throw io_error(path.string(), "cannot be moved to {}: {}", aside.string(), code.message());
  log_warning("the metrics of another run are now in {}", aside.string());
}

FileLock lock_of(const std::filesystem::path& path) {
  std::error_code ignored;  // whoever opens the lock says so
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), ignored);
  std::optional<FileLock> lock =
      FileLock::take(path.parent_path() / fmt::format(".{}.lock", path.filename().string()));
  if (lock) return *std::move(lock);
  throw input_error("output.metrics",
                    "expected a file that no other run writes, got \"{}\", which one is writing; "
                    "wait for it to end, or name another",
                    path.string());
}

/// Whether a path leads to where a standard stream of this process goes.
bool is_standard_stream(const std::filesystem::path& path) {
  return is_in_place(path, STDOUT_FILENO) || is_in_place(path, STDERR_FILENO);
}

}  // namespace

std::string metrics_line(const runtime::StepReport& r) {
  std::string line = fmt::format(
      R"({{"step":{},"loss":{},"tokens":{},"tokens_per_second":{},"step_seconds":{},)"
      R"("flops_per_second":{},"mfu":{},"grad_norm":{},"lr":{})",
      r.step, number(r.loss), r.tokens, number(r.tokens_per_second), number(r.step_seconds),
      number(r.flops_per_second), number(r.mfu), number(r.grad_norm), number(r.lr));
  if (r.validation_loss)
    line += fmt::format(R"(,"validation_loss":{})", number(*r.validation_loss));
  if (r.moe) line += fmt::format(R"(,"moe":{})", moe_object(*r.moe));
  return line + R"(,"bytes_sent":{}})";
}

void require_writable_metrics(const std::filesystem::path& path) {
  std::error_code code;
  const bool is_folder = std::filesystem::is_directory(path, code);
  const std::filesystem::path target = behind_links(path);
  const std::filesystem::path parent = target.has_parent_path() ? target.parent_path() : ".";
  // A device or pipe is written to where it is; a file is replaced, which takes its folder.
  const bool is_replaced = !std::filesystem::is_other(path, code);
  const std::string problem = is_folder ? "it is a folder"
                              : is_replaced && is_standard_stream(path)
                                  ? "a standard stream goes into it"
                              : is_replaced ? why_not_writable(parent)
                                            : "";
  if (problem.empty()) return;
  throw input_error("output.metrics",
                    "expected a file that can be written, got \"{}\": {}; name another",
                    path.string(), problem);
}

void require_other_than_output(const std::filesystem::path& path) {
  if (!is_in_place(path, STDOUT_FILENO)) return;
  throw input_error("output.metrics",
                    "expected another file than standard output, which holds one JSON document "
                    "with --json, got \"{}\"; name a file, or drop --json",
                    path.string());
}

MetricsWriter::MetricsWriter(const std::filesystem::path& path, std::int64_t first_step,
                             const std::vector<float>& recent_losses)
    : path_(behind_links(path)) {
  std::error_code code;
  const auto status = std::filesystem::status(path_, code);
  // A device or pipe (/dev/stderr) has no past to keep and must not be replaced by a file.
  if (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status)) {
    lock_.emplace(lock_of(path_));
    remove_leftovers(path_);
    const std::string old = std::filesystem::exists(status) ? read_file(path_) : std::string();
    const Past past = past_of(old, first_step, path.string());
    const bool is_of_this_run = first_step > 1 && goes_on_in(past, first_step, recent_losses);
    if (!past.is_empty && !is_of_this_run) set_aside(path_);
    write_file_atomically(path_, is_of_this_run ? past.kept : "");
  }
  file_.emplace(path_);
}

void MetricsWriter::write(const runtime::StepReport& report) {
  if (lock_ && !file_->is_in_place()) {
    log_warning("{} was removed or replaced while the run goes on: its lines begin at step {}",
                path_.string(), report.step);
    file_.emplace(path_);
  }
  file_->append(metrics_line(report) + '\n');
}

}  // namespace moestro::cli
