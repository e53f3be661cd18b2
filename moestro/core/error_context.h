#pragma once
// Errors about a file that another file names: the place that names it comes first.
//
//   in_context("run.toml:4 data.text", [&] { return read_text("a.txt"); });
//   error: [run.toml:4 data.text] a.txt: expected a file, but there is none; check the path

#include <string_view>

#include "moestro/core/error.h"

namespace moestro {

/// The error of `where` that says what another one says, after the place that one names; but for
/// the key that `where` ends in, which is not said twice.
[[nodiscard]] Error led_to(std::string_view where, const Error& error);

/// What `work` returns. Its errors about what was asked for (bad input, infeasible) begin with
/// `where`, if that is not empty.
template <class Work>
auto in_context(std::string_view where, Work work) {
  try {
    return work();
  } catch (const Error& error) {
    const bool is_asked_for =
        error.kind() == ErrorKind::input || error.kind() == ErrorKind::infeasible;
    if (!is_asked_for || where.empty()) throw;
    throw led_to(where, error);
  }
}

}  // namespace moestro
