#pragma once
// What all verbs share: the options every verb has, parsing with errors in our form, and output.
//
//   CLI::App app("train a model", "moestro train");
//   CommonOptions common;
//   add_common_options(app, common);
//   if (!parse(app, arguments, common)) return kDone;  // --help was printed

#include <cstdint>
#include <string>
#include <string_view>

#include "moestro/cli/command.h"
#include "moestro/core/json.h"

namespace CLI {
class App;
}

namespace moestro::cli {

struct CommonOptions {
  bool json = false;     // one JSON document on standard output, nothing else there
  bool quiet = false;    // the result, warnings and errors only
  bool verbose = false;  // details, too
};

void add_common_options(CLI::App& app, CommonOptions& options);

/// What an option that takes a whole number accepts, both ends included.
struct WholeNumbers {
  std::int64_t low = 0;
  std::int64_t high = 0;
  std::int64_t example = 0;
};

/// The whole number an option was given. Errors: input, naming the option.
[[nodiscard]] std::int64_t whole_number(std::string_view option, std::string_view text,
                                        const WholeNumbers& accepted);

/// Parses the arguments of a verb and sets the log level. False: help was asked for and printed.
/// Errors: input, naming the verb or the option, and the nearest option.
[[nodiscard]] bool parse(CLI::App& app, const Arguments& arguments, const CommonOptions& options);

/// Writes a result to standard output.
void print(std::string_view text);
/// Writes a result as one JSON document to standard output; malformed text becomes U+FFFD.
void print_json(const Json& json);
/// Writes to standard error.
void print_error(std::string_view text);
/// Makes sure all results have left. Errors: io, e.g. a full disk behind a redirection.
void flush_output();

}  // namespace moestro::cli
