#include "moestro/core/error_context.h"

#include <string>

namespace moestro {

Error led_to(std::string_view where, const Error& error) {
  const std::string_view text = error.what();  // "[place] message"
  const std::size_t end = text.starts_with('[') ? text.find("] ") : std::string_view::npos;
  if (end == std::string_view::npos) return {error.kind(), where, text};
  const std::string_view place = text.substr(1, end - 1), message = text.substr(end + 2);
  if (where == place || where.ends_with(fmt::format(" {}", place))) {
    return {error.kind(), where, message};
  }
  return {error.kind(), where, fmt::format("{}: {}", place, message)};
}

}  // namespace moestro
