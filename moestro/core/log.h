#pragma once
// Levelled log to standard error. Standard output belongs to results alone.
//
//   log_warning("bf16 is not supported by this CPU; computing in f32");

#include <fmt/core.h>

#include <functional>
#include <string_view>
#include <utility>

namespace moestro {

enum class LogLevel { quiet, warning, info, verbose };

/// Sets what is printed from now on; the command line calls it once.
void set_log_level(LogLevel level);
[[nodiscard]] LogLevel log_level();

/// Calls `function` before every line from now on: it ends a line that something else has begun on
/// standard error. None: nothing is called.
void set_before_log_line(std::function<void()> function);

namespace internal {
void log_line(LogLevel level, std::string_view message);
}

template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  internal::log_line(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  internal::log_line(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_verbose(fmt::format_string<Args...> format, Args&&... args) {
  internal::log_line(LogLevel::verbose, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace moestro
