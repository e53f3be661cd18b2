#pragma once
// Reads a Hugging Face config.json into a ModelConfig: every spelling of a field, transformers v4
// and v5 names, nested text_config, hybrid layer patterns. One function per architecture family.
//
//   HfConfig config = resolve_model("deepseek-v3");        // built-in name, file or folder
//   config.model.layers.size()  ->  61
//
// A missing key that the class of transformers would fill in takes the value it has there: with a
// warning (an error with `strict`), or in verbose mode alone where absence is usual, because the
// family's published files leave the key out, too, or because the value moves no number (a
// balancing loss, which a run decides for itself). Any other missing key is an error.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "moestro/model/model_config.h"

namespace moestro::model {

struct HfConfigOptions {
  /// Unknown keys, class defaults and doubtful values end the command instead of giving a warning.
  bool strict = false;
};

/// A model description and where it came from.
struct HfConfig {
  ModelConfig model;
  std::string source;        // path or built-in name, for messages
  std::string json;          // the file as read, to be written back beside a saved checkpoint
  std::string quantization;  // how its checkpoint stores weights, "fp8"; empty: plainly
  std::vector<std::string> left_out;  // parts of the file that are no language model
  std::vector<std::string> noise;     // what its training would add: "attention_dropout = 0.1"
};

/// Reads config.json, or the config.json in a folder.
/// Errors: input, naming file and key, for malformed, missing, contradictory or impossible values.
[[nodiscard]] HfConfig read_hf_config(const std::filesystem::path& file_or_folder,
                                      const HfConfigOptions& options = {});

/// The same from text; `source` is what messages call it. Errors: as read_hf_config.
[[nodiscard]] HfConfig parse_hf_config(std::string_view json, std::string_view source,
                                       const HfConfigOptions& options = {});

/// MODEL of the command line: a file, a folder that holds config.json, or a built-in name. `where`
/// is who names it. Errors: as read_hf_config; an unknown name lists the built-in ones and the
/// nearest.
[[nodiscard]] HfConfig resolve_model(std::string_view model, const HfConfigOptions& options = {},
                                     std::string_view where = "model");

/// Names of the models in examples/models, which are part of the program; sorted.
[[nodiscard]] std::vector<std::string> built_in_models();

}  // namespace moestro::model
