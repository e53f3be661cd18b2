#include "moestro/core/error.h"

namespace moestro {
namespace {
std::string compose(std::string_view where, std::string_view message) {
  return where.empty() ? std::string(message) : fmt::format("[{}] {}", where, message);
}
}  // namespace

Error::Error(ErrorKind kind, std::string_view where, std::string_view message)
    : std::runtime_error(compose(where, message)), kind_(kind) {}

namespace internal {
void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  throw Error(
      ErrorKind::internal, fmt::format("{}:{}", file, line),
      fmt::format("broken invariant: {}{}{}", condition, message.empty() ? "" : ": ", message));
}
}  // namespace internal
}  // namespace moestro
