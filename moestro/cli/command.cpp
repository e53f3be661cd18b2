#include "moestro/cli/command.h"

#include <fmt/core.h>

#include "moestro/cli/options.h"
#include "moestro/core/error.h"
#include "moestro/core/text.h"

namespace moestro::cli {
namespace {

std::string help_page() {
  std::string page =
      "moestro: plan, train and diagnose mixture-of-experts language models\n\n"
      "Usage: moestro <verb> [options]\n\nVerbs:\n";
  for (const Command& command : commands()) {
    page += fmt::format("  {:<10}{}\n", command.verb, command.help);
  }
  return page + "\nmoestro <verb> --help explains a verb; moestro --version prints the version.\n";
}

[[noreturn]] void reject_verb(const std::string& verb) {
  std::vector<std::string> verbs;
  for (const Command& command : commands()) verbs.emplace_back(command.verb);
  const std::string close = nearest(verb, verbs);
  throw input_error("moestro", "expected a verb, got \"{}\"; {}", printable(verb, 60),
                    close.empty() ? fmt::format("there are: {}", join(verbs, ", "))
                                  : fmt::format("did you mean \"{}\"?", close));
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> kCommands = {
      {"describe", "parameters and FLOPs of a model, by component", describe},
      {"train", "train a model as a run file says", train},
      {"verify", "check a checkpoint, or compare the model with reference outputs", verify},
      {"bench", "measure what this machine can do", bench},
  };
  return kCommands;
}

int run(const Arguments& arguments) {
  if (arguments.empty()) {
    print_error(help_page());
    return kBadInput;
  }
  const std::string& verb = arguments.front();
  if (verb == "--help" || verb == "-h" || verb == "help") {
    print(help_page());
    return kDone;
  }
  if (verb == "--version") {
    print(fmt::format("moestro {}\n", MOESTRO_VERSION));
    return kDone;
  }
  for (const Command& command : commands()) {
    if (verb == command.verb) return command.run({arguments.begin() + 1, arguments.end()});
  }
  reject_verb(verb);
}

}  // namespace moestro::cli
