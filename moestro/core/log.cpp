#include "moestro/core/log.h"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <string>
#include <utility>

#include "moestro/core/text.h"

namespace moestro {
namespace {
// Process-wide, since threads that log cannot be handed a setting each.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<LogLevel> g_level{LogLevel::info};

/// Standard error is one for all threads, too.
struct BeforeLine {
  std::mutex mutex;
  std::function<void()> function;
};

BeforeLine& before_line() {
  static BeforeLine instance;
  return instance;
}
}  // namespace

void set_log_level(LogLevel level) {
  g_level = level;
}
LogLevel log_level() {
  return g_level;
}

void set_before_log_line(std::function<void()> function) {
  const std::lock_guard lock(before_line().mutex);
  before_line().function = std::move(function);
}

namespace internal {
void log_line(LogLevel level, std::string_view message) {
  if (level > g_level.load()) return;
  // One write per line, so that lines of several threads do not mix.
  std::string line(level == LogLevel::warning ? "warning: " : "");
  line += printable(message, std::string_view::npos);
  line.push_back('\n');
  const std::lock_guard lock(before_line().mutex);
  if (before_line().function) before_line().function();
  std::fwrite(line.data(), 1, line.size(), stderr);
}
}  // namespace internal
}  // namespace moestro
