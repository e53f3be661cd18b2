#include "moestro/core/log.h"

#include <atomic>
#include <cstdio>
#include <string>

#include "moestro/core/text.h"

namespace moestro {
namespace {
// The level is the one process-wide setting: threads that log cannot be handed one each.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<LogLevel> g_level{LogLevel::info};
}  // namespace

void set_log_level(LogLevel level) {
  g_level = level;
}
LogLevel log_level() {
  return g_level;
}

namespace internal {
void log_line(LogLevel level, std::string_view message) {
  if (level > g_level.load()) return;
  // One write per line, so that lines of several threads do not mix.
  std::string line(level == LogLevel::warning ? "warning: " : "");
  line += printable(message, std::string_view::npos);
  line.push_back('\n');
  std::fwrite(line.data(), 1, line.size(), stderr);
}
}  // namespace internal
}  // namespace moestro
