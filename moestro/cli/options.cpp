#include "moestro/cli/options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "moestro/core/error.h"
#include "moestro/core/log.h"
#include "moestro/core/text.h"

namespace moestro::cli {
namespace {

/// The long names of all options of a verb: "--json", "--seq".
std::vector<std::string> spellings(const CLI::App& app) {
  std::vector<std::string> all;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) all.push_back("--" + name);
  }
  return all;
}

[[noreturn]] void reject_extra(const CLI::App& app, const std::string& extra) {
  const std::string name = extra.substr(0, extra.find('='));
  const std::string close = name.rfind("--", 0) == 0 ? nearest(name, spellings(app)) : "";
  throw input_error(app.get_name(), "expected no argument \"{}\"; {}", printable(extra, 60),
                    close.empty() ? fmt::format("see {} --help", app.get_name())
                                  : fmt::format("did you mean {}?", close));
}

/// The library tells the option at fault in its prose only: "--set requires --against".
[[noreturn]] void reject_arguments(const CLI::App& app, const CLI::ParseError& error) {
  const std::string kind = error.get_name();
  const std::string what = printable(error.what(), 300);
  const std::string first = what.substr(0, what.find_first_of(": "));
  const std::string last = what.substr(what.rfind(' ') + 1);
  const std::string see_help = fmt::format("see {} --help", app.get_name());
  if (kind == "RequiredError") {
    throw input_error(app.get_name(), "expected {}, got none; {}", first, see_help);
  }
  if (kind == "RequiresError") {
    throw input_error(first, "expected {}, too, got none; {}", last, see_help);
  }
  if (kind == "ExcludesError") {
    throw input_error(first, "expected no {} beside it, got both; drop one", last);
  }
  const std::size_t equals = what.find(" = ");
  if (kind == "ConversionError" && equals != std::string::npos) {  // only of flags: --json=maybe
    const std::string flag = what.substr(what.find("--"), equals - what.find("--"));
    throw input_error(flag, "expected no value, got \"{}\"; drop it", what.substr(equals + 3));
  }
  const CLI::Option* option = app.get_option_no_throw(first);
  if (kind == "ArgumentMismatch" && option != nullptr) {
    const int given = static_cast<int>(option->count());
    if (given <= option->get_items_expected_max()) {
      throw input_error(first, "expected a value, got none; {}", see_help);
    }
    throw input_error(first, "expected one value, got {}; drop all but one", given);
  }
  throw input_error(app.get_name(), "expected other arguments: {}; {}", what, see_help);
}

void set_level(const CommonOptions& options) {
  set_log_level(options.verbose ? LogLevel::verbose
                : options.quiet ? LogLevel::warning
                                : LogLevel::info);
}

}  // namespace

void add_common_options(CLI::App& app, CommonOptions& options) {
  app.add_flag("--json", options.json, "print one JSON document and nothing else");
  app.add_flag("--quiet", options.quiet, "print the result, warnings and errors only");
  app.add_flag("--verbose", options.verbose, "print details, too");
}

std::int64_t whole_number(std::string_view option, std::string_view text,
                          const WholeNumbers& accepted) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, number);
  const bool is_whole = code == std::errc() && stop == end;
  if (is_whole && number >= accepted.low && number <= accepted.high) return number;
  throw input_error(option, "expected a whole number >= {} and <= {}, got \"{}\"; write e.g. {} {}",
                    accepted.low, accepted.high, printable(text, 60), option, accepted.example);
}

bool parse(CLI::App& app, const Arguments& arguments, const CommonOptions& options) {
  Arguments reversed = arguments;  // the order CLI11 wants
  std::reverse(reversed.begin(), reversed.end());
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    print(app.help());
    return false;
  } catch (const CLI::ExtrasError&) {
    const std::vector<std::string> extras = app.remaining();
    reject_extra(app, extras.empty() ? "--" : extras.front());
  } catch (const CLI::ParseError& error) {
    // An option nobody knows leaves its value, which then breaks a rule for arguments.
    for (const std::string& extra : app.remaining()) {
      if (extra.starts_with("--")) reject_extra(app, extra);
    }
    reject_arguments(app, error);
  }
  if (options.quiet && options.verbose) {
    throw input_error(app.get_name(), "expected one of --quiet and --verbose, got both; drop one");
  }
  set_level(options);
  return true;
}

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void print_json(const Json& json) {
  print(json.dump(2, ' ', false, Json::error_handler_t::replace));
  print("\n");
}

void print_error(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void flush_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw io_error("standard output", "cannot write all results; is the disk full?");
  }
}

}  // namespace moestro::cli
