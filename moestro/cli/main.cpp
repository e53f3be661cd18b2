// The program: the only place that catches, so that every error ends as one line and an exit code.

#include <fmt/core.h>

#include <exception>
#include <new>

#include "moestro/cli/command.h"
#include "moestro/cli/options.h"
#include "moestro/core/error.h"

namespace {

int report(const moestro::Error& error) {
  const bool is_ours = error.kind() == moestro::ErrorKind::internal;
  moestro::cli::print_error(
      fmt::format("error: {}{}\n", error.what(),
                  is_ours ? "; this is a bug in moestro, please report it" : ""));
  return error.kind() == moestro::ErrorKind::input ? moestro::cli::kBadInput
                                                   : moestro::cli::kFailed;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int code = moestro::cli::run({argv + (argc > 0 ? 1 : 0), argv + argc});
    moestro::cli::flush_output();
    return code;
  } catch (const moestro::Error& error) {
    return report(error);
  } catch (const std::bad_alloc&) {
    moestro::cli::print_error("error: out of memory; use a smaller model, batch or seq_len\n");
  } catch (const std::exception& error) {
    moestro::cli::print_error(fmt::format("error: unexpected failure: {}\n", error.what()));
  }
  return moestro::cli::kFailed;
}
