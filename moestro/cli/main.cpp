// The program: the only place that catches, so that every error ends as one line and an exit code.

#include <cxxabi.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>
#include <typeinfo>

#include "moestro/cli/command.h"
#include "moestro/cli/options.h"
#include "moestro/core/error.h"
#include "moestro/core/text.h"

namespace {

constexpr std::string_view kOutOfMemory =
    "error: out of memory: the machine, or a limit of the process (ulimit -v), gives no more; use "
    "a smaller model, batch or seq_len\n";

constexpr std::string_view kNoFolder =
    "error: [current folder] expected one that exists, got one that was removed; change to another "
    "(cd)\n";

/// Without allocating anything.
[[noreturn]] void end_with(std::string_view message, int code) {
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, message.data(), message.size());
  std::_Exit(code);
}

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): on_terminate gets no argument
bool g_is_in_main = false;

/// Ends the program where nothing can be caught: in an initialiser that runs before main, in a
/// function that must not throw. Allocates nothing.
[[noreturn]] void on_terminate() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  // Before main nothing but an exception ends here; without memory even that is not made.
  const bool has_no_memory = type == nullptr ? !g_is_in_main : *type == typeid(std::bad_alloc);
  if (has_no_memory) end_with(kOutOfMemory, moestro::cli::kFailed);
  __gnu_cxx::__verbose_terminate_handler();
  std::abort();  // not reached; the handler does it
}

/// Libraries look for their files from the current folder, and end the program if there is none.
void require_current_folder() {
  std::array<char, PATH_MAX> path{};
  const bool is_gone = ::getcwd(path.data(), path.size()) == nullptr && errno == ENOENT;
  if (is_gone) end_with(kNoFolder, moestro::cli::kBadInput);
}

void before_libraries() {
  std::set_terminate(on_terminate);
  require_current_folder();
}

// Shared libraries allocate, and MKL wants a current folder, in their initialisers, which run
// before those of the program. Only what is listed in this section runs before them.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
[[gnu::section(".preinit_array"), gnu::used]] void (*g_before_libraries)() = before_libraries;

/// Where a standard stream is closed, the next file to be opened would be it, and take the progress
/// of a run among its own lines. What is put there instead refuses what is read or written.
void occupy_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    // The lowest free number, which is this one, since those below are taken.
    [[maybe_unused]] const int opened =
        ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

int exit_code(moestro::ErrorKind kind) {
  switch (kind) {
    case moestro::ErrorKind::input:
      return moestro::cli::kBadInput;
    case moestro::ErrorKind::infeasible:
      return moestro::cli::kInfeasible;
    case moestro::ErrorKind::io:
    case moestro::ErrorKind::comm:
    case moestro::ErrorKind::internal:
      break;
  }
  return moestro::cli::kFailed;
}

/// On one line, whatever the names of files in it.
void print_line(std::string_view message) {
  moestro::cli::print_error(
      fmt::format("error: {}\n", moestro::printable(message, std::string_view::npos)));
}

int report(const moestro::Error& error) {
  const bool is_ours = error.kind() == moestro::ErrorKind::internal;
  print_line(fmt::format("{}{}", error.what(),
                         is_ours ? "; this is a bug in moestro, please report it" : ""));
  return exit_code(error.kind());
}

}  // namespace

int main(int argc, char** argv) {
  g_is_in_main = true;
  occupy_closed_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that grows too large is an error of its writer
  try {
    const int code = moestro::cli::run({argv + (argc > 0 ? 1 : 0), argv + argc});
    moestro::cli::flush_output();
    return code;
  } catch (const moestro::Error& error) {
    return report(error);
  } catch (const std::bad_alloc&) {
    moestro::cli::print_error(kOutOfMemory);
  } catch (const std::exception& error) {
    print_line(fmt::format("unexpected failure: {}", error.what()));
  }
  return moestro::cli::kFailed;
}
