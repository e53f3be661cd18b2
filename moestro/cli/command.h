#pragma once
// The verbs of the command line: one table entry and one source file each. A verb gets the
// arguments after its name and returns the exit code; errors leave it as exceptions, which main.cpp
// reports.

#include <string>
#include <vector>

namespace moestro::cli {

/// Exit codes (docs/errors.md). Infeasible: the question was valid and the answer is no.
inline constexpr int kDone = 0, kFailed = 1, kBadInput = 2, kInfeasible = 3;

using Arguments = std::vector<std::string>;

struct Command {
  const char* verb;
  const char* help;  // one phrase
  int (*run)(const Arguments& arguments);
};

/// All verbs, in the order of the help page.
[[nodiscard]] const std::vector<Command>& commands();

/// Runs the verb that arguments[0] names; also `--help`, `--version`, and no argument at all.
/// Errors: input, for an unknown verb, with the nearest one; whatever the verb throws.
[[nodiscard]] int run(const Arguments& arguments);

/// The verbs, one source file each; the table above says what they do.
int describe(const Arguments& arguments);
int train(const Arguments& arguments);
int verify(const Arguments& arguments);
int bench(const Arguments& arguments);

}  // namespace moestro::cli
