// moestro describe MODEL: parameters and FLOPs per token.

#include "moestro/model/describe.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "moestro/checkpoint/training_state.h"
#include "moestro/cli/command.h"
#include "moestro/cli/options.h"
#include "moestro/core/log.h"

namespace moestro::cli {

namespace {

constexpr std::int64_t kLongest = std::int64_t{1} << 40;  // whose FLOPs can still be counted

/// "Built-in models: a, b,\n  c", in lines that fit a terminal.
std::string list_of_models() {
  constexpr std::size_t kWidth = 78;
  std::string text = "Built-in models:";
  std::size_t column = text.size();
  const std::vector<std::string> names = model::built_in_models();
  for (const std::string& name : names) {
    const std::string word = name + (&name == &names.back() ? "" : ",");
    const bool fits = column + 1 + word.size() <= kWidth;
    text += (fits ? " " : "\n  ") + word;
    column = (fits ? column + 1 : 2) + word.size();
  }
  return text;
}

/// The newest checkpoint of a folder of a run; any other name as it is.
std::string newest_checkpoint(const std::string& name) {
  std::error_code code;
  const std::filesystem::path folder = name;
  if (!std::filesystem::is_directory(folder, code)) return name;
  if (std::filesystem::exists(folder / "config.json", code)) return name;
  return checkpoint::find_newest_checkpoint(folder).value_or(folder).string();
}

}  // namespace

int describe(const Arguments& arguments) {
  CLI::App app("Parameters and model FLOPs per token of a model, by component.",
               "moestro describe");
  app.footer(list_of_models());
  std::string name;
  std::optional<std::int64_t> seq;
  bool without_mtp = false;
  model::HfConfigOptions reading;
  CommonOptions common;
  app.add_option("MODEL", name, "config.json, a folder that holds one, or a built-in name")
      ->required();
  app.add_option_function<std::string>(
         "--seq",
         [&seq](const std::string& text) {
           seq = whole_number("--seq", text, {.low = 1, .high = kLongest, .example = 4096});
         },
         "tokens per sequence (default: 4096, or the model's longest)")
      ->type_name("INT");
  app.add_flag("--no-mtp", without_mtp, "leave multi-token prediction out of the FLOPs");
  app.add_flag("--strict", reading.strict, "make errors of unknown keys and of assumed values");
  add_common_options(app, common);
  app.get_option("--quiet")->description("print the result and errors only");
  app.get_option("--verbose")->description("print, too, which keys are ignored or assumed");
  if (!parse(app, arguments, common)) return kDone;
  if (common.quiet) set_log_level(LogLevel::quiet);

  const model::HfConfig config = model::resolve_model(newest_checkpoint(name), reading);
  const std::int64_t length = seq ? *seq : model::default_sequence_length(config.model);
  const model::Ledger ledger = model::make_ledger(config.model, length, {.with_mtp = !without_mtp});
  if (config.model.max_positions > 0 && length > config.model.max_positions) {
    log_warning("--seq {} is more than the model's max_position_embeddings = {}", length,
                config.model.max_positions);
  }
  if (common.json) {
    print_json(model::describe_json(config, ledger));
  } else {
    print(model::describe_text(config, ledger));
  }
  return kDone;
}

}  // namespace moestro::cli
