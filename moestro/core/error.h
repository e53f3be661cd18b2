#pragma once
// Errors: what ends a command. One exception type with a kind; outcomes a caller must handle
// (a finding, one plan of many that does not fit) are values, never exceptions.
//
//   throw input_error("run.toml:7 train.steps", "expected a whole number > 0, got {}; write e.g.
//   100", n);
//
// A message reads "[where] what was expected, got <value>; <what to do>".

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace moestro {

/// Who can do something about an error.
enum class ErrorKind {
  input,       ///< the user can fix it (exit code 2)
  infeasible,  ///< what was asked for is sound, but this machine cannot do it (exit code 3)
  io,          ///< the system refused: disk, permission (exit code 1)
  comm,        ///< a peer or the network failed: restart from a checkpoint (exit code 1)
  internal,    ///< our bug (exit code 1)
};

/// The one exception type of the project.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string_view where, std::string_view message);
  [[nodiscard]] ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

/// Makes the error for something the user can fix; `where` names file, line and key.
template <class... Args>
[[nodiscard]] Error input_error(std::string_view where, fmt::format_string<Args...> format,
                                Args&&... args) {
  return Error(ErrorKind::input, where, fmt::format(format, std::forward<Args>(args)...));
}

/// Makes the error for what this machine cannot do; `where` names who asks for it.
template <class... Args>
[[nodiscard]] Error infeasible_error(std::string_view where, fmt::format_string<Args...> format,
                                     Args&&... args) {
  return Error(ErrorKind::infeasible, where, fmt::format(format, std::forward<Args>(args)...));
}

/// Makes the error for what the system refused; `where` names the file.
template <class... Args>
[[nodiscard]] Error io_error(std::string_view where, fmt::format_string<Args...> format,
                             Args&&... args) {
  return Error(ErrorKind::io, where, fmt::format(format, std::forward<Args>(args)...));
}

namespace internal {
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);
}  // namespace internal

}  // namespace moestro

/// Guards a public entry point, always on: throws Error(internal) with the formatted message.
#define MOESTRO_CHECK(condition, ...)                                                              \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      ::moestro::internal::check_failed(__FILE__, __LINE__, #condition, fmt::format(__VA_ARGS__)); \
    }                                                                                              \
  } while (false)

/// States an invariant no user input can break; on in all but release builds.
#ifdef NDEBUG
#define MOESTRO_ASSERT(condition) static_cast<void>(sizeof(!(condition)))
#else
#define MOESTRO_ASSERT(condition)                                                       \
  do {                                                                                  \
    if (!(condition)) {                                                                 \
      ::moestro::internal::check_failed(__FILE__, __LINE__, #condition, std::string()); \
    }                                                                                   \
  } while (false)
#endif
