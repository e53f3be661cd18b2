#include "moestro/cli/metrics_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "moestro/core/error.h"
#include "moestro/core/file.h"
#include "moestro/core/json.h"
#include "moestro/core/rng.h"
#include "tests/core/temporary_folder.h"

namespace moestro::cli {
namespace {

using ::testing::HasSubstr;

runtime::StepReport report_of(std::int64_t step) {
  runtime::StepReport report;
  report.step = step;
  report.loss = 2.3F;
  report.tokens = 4096;
  report.tokens_per_second = 1e4;
  report.step_seconds = 0.4096;
  report.lr = 1e-3;
  return report;
}

/// Steps in a metrics file, in order.
std::string steps_in(const std::filesystem::path& path) {
  std::string steps;
  const std::string text = read_file(path);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    steps += parse_json(text.substr(begin, end - begin), "line")["step"].dump() + " ";
    begin = end + 1;
  }
  return steps;
}

TEST(MetricsLine, HasTheKeysProgramsRead) {
  runtime::StepReport report = report_of(3);
  report.moe =
      runtime::MoeReport{.max_over_mean = 1.5, .gini = 0.2, .dead_experts = 1, .aux_loss = 2};
  report.validation_loss = 1.25F;
  EXPECT_EQ(
      metrics_line(report),
      R"({"step":3,"loss":2.3,"tokens":4096,"tokens_per_second":10000,"step_seconds":0.4096,)"
      R"("flops_per_second":0,"mfu":0,"grad_norm":0,"lr":0.001,"validation_loss":1.25,)"
      R"("moe":{"max_over_mean":1.5,"gini":0.2,"dead_experts":1,"aux_loss":2},"bytes_sent":{}})");
}

TEST(MetricsLine, LossReadsBackAsTheSameFloat) {
  Rng rng(1);
  for (int i = 0; i < 1000; ++i) {
    runtime::StepReport report;
    report.loss = static_cast<float>(std::exp(rng.normal() * 10.0));
    report.grad_norm = rng.normal();
    const Json json = parse_json(metrics_line(report), "line");
    EXPECT_EQ(static_cast<float>(json["loss"].get<double>()), report.loss);
    EXPECT_EQ(json["grad_norm"].get<double>(), report.grad_norm);
  }
}

TEST(MetricsLine, WritesNullForWhatIsNotFinite) {
  runtime::StepReport report;
  report.loss = std::numeric_limits<float>::quiet_NaN();
  report.grad_norm = std::numeric_limits<double>::infinity();
  const Json json = parse_json(metrics_line(report), "line");
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_TRUE(json["grad_norm"].is_null());
}

TEST(MetricsWriter, WritesEveryLineAtOnce) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "new/metrics.jsonl";
  MetricsWriter writer(path, 1, {});
  writer.write(report_of(1));
  EXPECT_EQ(steps_in(path), "1 ");
  writer.write(report_of(2));
  EXPECT_EQ(steps_in(path), "1 2 ");
}

TEST(MetricsWriter, DropsStepsThatAResumedRunRepeats) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "m";
  for (const std::int64_t first : {1, 3}) {
    MetricsWriter writer(path, first, {});
    for (std::int64_t step = first; step < first + 4; ++step) writer.write(report_of(step));
  }
  EXPECT_EQ(steps_in(path), "1 2 3 4 5 6 ");
}

TEST(MetricsWriter, GoesOnWhereTheFileIsRemovedOrReplaced) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "m";
  MetricsWriter writer(path, 1, {});
  writer.write(report_of(1));
  testing::internal::CaptureStderr();
  std::filesystem::rename(path, folder.path() / "old");
  writer.write(report_of(2));
  EXPECT_EQ(steps_in(path), "2 ");
  std::filesystem::rename(folder.path() / "old", path);
  writer.write(report_of(3));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("begin at step 3"));
  EXPECT_EQ(steps_in(path), "1 3 ");
}

TEST(MetricsWriter, LeavesLinksWhereTheyAre) {
  const test::TemporaryFolder folder;
  const auto target = folder.file("target", "{\"step\":1}\n");
  const auto link = folder.path() / "link";
  std::filesystem::create_symlink("target", link);
  MetricsWriter writer(link, 2, {});
  writer.write(report_of(2));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(steps_in(target), "1 2 ");
  const auto early = folder.path() / "early";  // before there is what it leads to
  std::filesystem::create_symlink("new", early);
  MetricsWriter(early, 1, {}).write(report_of(1));
  EXPECT_TRUE(std::filesystem::is_symlink(early));
  EXPECT_EQ(steps_in(folder.path() / "new"), "1 ");
}

TEST(MetricsWriter, RemovesWhatCrashesLeft) {
  const test::TemporaryFolder folder;
  const auto path = folder.file("m", "{\"step\":1}\n");
  const auto leftover = folder.file("m.partial.123", "{\"st");
  const auto others = folder.file("m.partial.123x", "mine");
  const MetricsWriter writer(path, 2, {});
  EXPECT_FALSE(std::filesystem::exists(leftover));
  EXPECT_TRUE(std::filesystem::exists(others));
  EXPECT_EQ(steps_in(path), "1 ");
}

TEST(MetricsWriter, SetsTheFileAsideForAFreshRun) {
  const test::TemporaryFolder folder;
  const auto path = folder.file("m", "{\"step\":1}\n{\"step\":2}\n");
  MetricsWriter(path, 1, {}).write(report_of(1));
  EXPECT_EQ(steps_in(path), "1 ");
  EXPECT_EQ(steps_in(folder.path() / "m.earlier-1"), "1 2 ");
  { const MetricsWriter begun(path, 1, {}); }
  EXPECT_EQ(steps_in(folder.path() / "m.earlier-2"), "1 ");
  const MetricsWriter again(path, 1, {});
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "m.earlier-3")) << "it was empty";
}

runtime::StepReport report_of(std::int64_t step, float loss) {
  runtime::StepReport report = report_of(step);
  report.loss = loss;
  return report;
}

TEST(MetricsWriter, SetsTheFileOfAnotherRunAsideWhenItIsResumed) {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "metrics.jsonl";
  {
    MetricsWriter writer(path, 1, {});
    for (const float step : {1.0F, 2.0F, 3.0F, 4.0F}) {
      writer.write(report_of(static_cast<std::int64_t>(step), 6.0F - step));
    }
  }
  MetricsWriter(path, 4, {4.0F, 3.0F}).write(report_of(4));
  EXPECT_EQ(steps_in(path), "1 2 3 4 ") << "its own";
  MetricsWriter(path, 6, {2.3F, 1.0F}).write(report_of(6));
  EXPECT_EQ(steps_in(path), "1 2 3 4 6 ") << "its own, without the line of step 5";
  MetricsWriter(path, 4, {4.0F, 3.1F}).write(report_of(4));
  EXPECT_EQ(steps_in(path), "4 ") << "one that had another loss there";
  EXPECT_EQ(steps_in(path.string() + ".earlier-1"), "1 2 3 4 6 ");
  MetricsWriter(path, 9, {2.3F, 2.3F}).write(report_of(9));
  EXPECT_EQ(steps_in(path), "9 ") << "one that ended before";
  EXPECT_EQ(steps_in(path.string() + ".earlier-2"), "4 ");
}

TEST(MetricsWriter, SetsALineWithoutItsEndAside) {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder.file("metrics.jsonl", R"({"step":1,"loss":5})");
  MetricsWriter(path, 1, {}).write(report_of(1));
  EXPECT_EQ(steps_in(path), "1 ");
  EXPECT_EQ(read_file(path.string() + ".earlier-1"), R"({"step":1,"loss":5})");
}

TEST(MetricsWriter, PassesOverALinkThatLeadsNowhere) {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder.file("metrics.jsonl", "{\"step\":1,\"loss\":5}\n");
  std::filesystem::create_symlink("metrics.jsonl.earlier-1", path.string() + ".earlier-1");
  MetricsWriter(path, 1, {}).write(report_of(1));
  EXPECT_EQ(steps_in(path.string() + ".earlier-2"), "1 ");
}

TEST(MetricsWriter, DropsALineThatACrashCutOff) {
  const test::TemporaryFolder folder;
  const auto path = folder.file("m", "{\"step\":1}\n{\"step\":2,\"lo");
  MetricsWriter(path, 2, {}).write(report_of(2));
  EXPECT_EQ(steps_in(path), "1 2 ");
}

TEST(MetricsWriter, KeepsOtherRunsOutWhileItLives) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "m";
  {
    MetricsWriter writer(path, 1, {});
    writer.write(report_of(1));
    EXPECT_THROW(MetricsWriter(path, 1, {}), Error);
    writer.write(report_of(2));
  }
  EXPECT_EQ(steps_in(path), "1 2 ");
  MetricsWriter(path, 3, {}).write(report_of(3));
  EXPECT_EQ(steps_in(path), "1 2 3 ");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / ".m.lock"));
}

TEST(MetricsWriter, RefusesToReplaceOtherFiles) {
  const test::TemporaryFolder folder;
  for (const char* text : {"dear diary\nsecond line\n", "dear diary", R"({"model_type": "x"})"}) {
    const auto path = folder.file("notes.txt", text);
    try {
      MetricsWriter writer(path, 1, {});
      ADD_FAILURE() << "replaced the file: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input);
      EXPECT_THAT(error.what(), HasSubstr("notes.txt:1] expected a metrics file"));
    }
    EXPECT_EQ(read_file(path), text);
  }
}

TEST(MetricsWriter, WritesToDevicesWithoutReplacingThem) {
  MetricsWriter("/dev/null", 1, {}).write(report_of(1));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(RequireWritableMetrics, AcceptsFilesToComeAndDevices) {
  const test::TemporaryFolder folder;
  require_writable_metrics(folder.path() / "new/metrics.jsonl");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path() / "new"));
  require_writable_metrics(folder.file("m", "{\"step\":1}\n"));
  EXPECT_EQ(steps_in(folder.path() / "m"), "1 ");
  require_writable_metrics("/dev/null");
}

TEST(RequireWritableMetrics, RefusesWhatCannotBeWrittenAsBadInput) {
  const test::TemporaryFolder folder;
  const auto file = folder.file("text.txt", "abc");
  for (const auto& path : {file / "m", folder.path(), std::filesystem::path("/proc/m"),
                           std::filesystem::path("/proc/absent/m")}) {
    try {
      require_writable_metrics(path);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input);
      EXPECT_THAT(error.what(), HasSubstr("[output.metrics] expected a file that can be written"));
    }
  }
}

/// Redirected into a file, /dev/stdout itself would be replaced by one.
TEST(RequireWritableMetrics, RefusesTheFileAStandardStreamGoesInto) {
  const test::TemporaryFolder folder;
  const auto link = folder.path() / "stdout";
  std::filesystem::create_symlink("/proc/self/fd/1", link);
  std::string message = "no error";
  testing::internal::CaptureStdout();  // into a file
  try {
    require_writable_metrics(link);
  } catch (const Error& error) {
    message = error.what();
  }
  static_cast<void>(testing::internal::GetCapturedStdout());
  EXPECT_THAT(message, HasSubstr("a standard stream goes into it"));
}

/// Lets files of this process grow to so many bytes at most, while it lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);  // as the program does: writing then fails
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit lower{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &lower);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST(MetricsWriter, LeavesNoHalfLineWhereTheDiskEnds) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "m";
  MetricsWriter writer(path, 1, {});
  writer.write(report_of(1));
  {
    const FileSizeLimit limit(std::filesystem::file_size(path) + 20);
    EXPECT_THROW(writer.write(report_of(2)), Error);
  }
  EXPECT_EQ(read_file(path), metrics_line(report_of(1)) + "\n");
}

TEST(MetricsWriter, ReportsAFullDisk) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full here";
  MetricsWriter writer("/dev/full", 1, {});
  EXPECT_THROW(writer.write(report_of(1)), Error);
}

}  // namespace
}  // namespace moestro::cli
