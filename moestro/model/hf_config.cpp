#include "moestro/model/hf_config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "moestro/core/error.h"
#include "moestro/core/file.h"
#include "moestro/core/json.h"
#include "moestro/core/log.h"
#include "moestro/core/text.h"
#include "moestro/model/internal/built_in_models.h"
#include "moestro/model/internal/families.h"
#include "moestro/model/internal/known_keys.h"

namespace moestro::model {
namespace {

using internal::ConfigObject;
using internal::Findings;

/// model_type -> the class that files of the type name, and the function that reads the family.
struct FamilyReader {
  std::string_view model_type;
  std::string_view architecture;
  ModelConfig (*read)(const ConfigObject&);
};

constexpr auto kReaders = std::to_array<FamilyReader>({
    {"deepseek", "DeepseekForCausalLM", internal::read_deepseek_v1},
    {"deepseek_v2", "DeepseekV2ForCausalLM", internal::read_deepseek_v2},
    {"deepseek_v3", "DeepseekV3ForCausalLM", internal::read_deepseek_v3},
    {"glm4_moe", "Glm4MoeForCausalLM", internal::read_glm4_moe},
    {"gpt_oss", "GptOssForCausalLM", internal::read_gpt_oss},
    {"granitemoe", "GraniteMoeForCausalLM", internal::read_granitemoe},
    {"kimi_k2", "DeepseekV3ForCausalLM", internal::read_deepseek_v3},
    {"llama4", "Llama4ForConditionalGeneration", internal::read_llama4},
    {"llama4_text", "Llama4ForCausalLM", internal::read_llama4},
    {"mixtral", "MixtralForCausalLM", internal::read_mixtral},
    {"nemotron_h", "NemotronHForCausalLM", internal::read_nemotron_h},
    {"olmoe", "OlmoeForCausalLM", internal::read_olmoe},
    {"phimoe", "PhimoeForCausalLM", internal::read_phimoe},
    {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", internal::read_qwen3_5_moe},
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", internal::read_qwen3_5_moe},
    {"qwen3_moe", "Qwen3MoeForCausalLM", internal::read_qwen3_moe},
    {"qwen3_next", "Qwen3NextForCausalLM", internal::read_qwen3_next},
});

const FamilyReader& find_reader(const ConfigObject& config) {
  const std::string model_type = config.text({"model_type"});
  std::vector<std::string> names;
  for (const FamilyReader& reader : kReaders) {
    if (reader.model_type == model_type) return reader;
    names.emplace_back(reader.model_type);
  }
  const std::string shown = printable(model_type);
  const std::string suggestion = nearest(shown, names);
  throw config.error(
      "model_type",
      "expected a family of MoE models ({}), got \"{}\"{}; other families are not supported",
      join(names, ", "), shown, suggestion.empty() ? "" : fmt::format(", perhaps {}", suggestion));
}

/// The object that describes the class with the head decides: the root of Qwen3.5, the text model
/// of Llama 4. `root` and `text` are one object in flat files.
bool read_tying(const ConfigObject& root, const ConfigObject& text, Family family) {
  constexpr std::string_view kKey = "tie_word_embeddings";
  const bool root_decides = family == Family::qwen3_5_moe;
  const ConfigObject& giver = root_decides ? root : text;
  const ConfigObject& other = root_decides ? text : root;
  // The files of Llama 4 leave it out.
  const bool ties =
      family == Family::llama4 ? giver.flag_or({kKey}, false) : giver.flag_or_class({kKey}, false);
  // transformers writes false beside a true that counts, but not the other way round.
  if (!ties && other.find({kKey}) != nullptr && other.flag({kKey})) {
    root.findings().overrides.push_back(
        fmt::format("{}{} = false{} overrides {}{} = true", giver.path(), kKey,
                    giver.mentions({kKey}) ? "" : ", though absent,", other.path(), kKey));
  }
  if (family == Family::nemotron_h && ties) {
    giver.note_doubt(kKey, *giver.find({kKey}),
                     "counted with a head of its own, which transformers keeps");
    return false;
  }
  return ties;
}

/// Classes without the head of a language model, or with another one.
void check_head(const ConfigObject& root, std::string_view architecture) {
  if (architecture.ends_with("LMHeadModel")) return;
  constexpr std::string_view kEndings[] = {"Classification", "QuestionAnswering", "MultipleChoice",
                                           "Model"};
  const bool has_other_head =
      std::any_of(std::begin(kEndings), std::end(kEndings),
                  [&](std::string_view ending) { return architecture.ends_with(ending); });
  if (!has_other_head) return;
  root.note_doubt("architectures", *root.find({"architectures"}),
                  "the head of a language model is counted, whatever this class has");
}

/// The class the file names; derived classes are unknown here, those of other families an error.
std::string read_architecture(const ConfigObject& root, const FamilyReader& reader) {
  const std::vector<std::string> architectures = root.texts({"architectures"});
  if (architectures.empty()) return "";
  for (const FamilyReader& other : kReaders) {
    const bool is_named = std::find(architectures.begin(), architectures.end(),
                                    other.architecture) != architectures.end();
    if (is_named && other.read != reader.read) {
      throw root.error(
          "architectures",
          "expected a class of {} (model_type), like {}, got {}; correct one of the two",
          reader.model_type, reader.architecture, other.architecture);
    }
  }
  check_head(root, architectures.front());
  return architectures.front();
}

/// So many keys are spelled out in a warning, since it is one line.
constexpr std::size_t kMaxListed = 16;

std::string listed(std::vector<std::string> notes, std::string_view separator = ", ") {
  if (notes.size() <= kMaxListed) return join(notes, separator);
  const std::size_t more = notes.size() - kMaxListed;
  notes.resize(kMaxListed);
  return fmt::format("{} and {} more", join(notes, separator), more);
}

std::string counted(std::size_t n, std::string_view thing) {
  return fmt::format("{} {}{}", n, thing, n == 1 ? "" : "s");
}

/// What only verbose mode says: all that was passed over, in full.
void report_details(const Findings& findings, const std::string& source) {
  const auto say = [&](const char* what, const std::vector<std::string>& keys) {
    if (!keys.empty()) log_verbose("{}: {}: {}", source, what, join(keys, ", "));
  };
  say("keys that do not matter here", findings.ignored_keys);
  say("keys absent, in their usual meaning", findings.usual_defaults);
  if (findings.unknown_keys.size() > kMaxListed) say("all unknown keys", findings.unknown_keys);
}

/// Says something once, or makes an error of it: [source] expected ..., got ...; remedy.
void say_or_throw(const std::vector<std::string>& what, bool strict, const Error& error,
                  const std::string& warning) {
  if (what.empty()) return;
  if (strict) throw error;
  log_warning("{}", warning);
}

/// Says once what is worth saying, or makes an error of it.
void report(const Findings& findings, const std::string& source, bool strict) {
  const std::string unknown = listed(findings.unknown_keys);
  say_or_throw(
      findings.unknown_keys, strict,
      input_error(source, "expected only known keys, got {}; remove or correct them", unknown),
      fmt::format("{}: ignoring keys that mean nothing here: {}", source, unknown));
  const std::string defaults = join(findings.class_defaults, ", ");
  const std::string keys = counted(findings.class_defaults.size(), "key");
  say_or_throw(
      findings.class_defaults, strict,
      input_error(source,
                  "expected every value to be given, got {} less; write down what "
                  "transformers would assume: {}",
                  keys, defaults),
      fmt::format("{}: {} absent, taken from transformers' defaults: {}", source, keys, defaults));
  const std::string overrides = join(findings.overrides, ", ");
  say_or_throw(findings.overrides, strict,
               input_error(source, "expected keys that agree, got {}; make them agree", overrides),
               fmt::format("{}: {}", source, overrides));
  const std::string doubts = listed(findings.doubts, "; ");
  say_or_throw(
      findings.doubts, strict,
      input_error(source, "expected values as models have them, got {}; correct them", doubts),
      fmt::format("{}: surely not what is meant: {}", source, doubts));
}

/// How the checkpoint of the file stores weights, if not plainly.
std::string read_quantization(const ConfigObject& config) {
  for (const std::string_view key : {"quantization_config", "compression_config"}) {
    const auto object = config.object(key);
    if (!object || object->json().empty()) continue;
    const Json* method = object->find({"quant_method"});
    return method != nullptr && method->is_string() ? printable(method->get<std::string>())
                                                    : "another type";
  }
  return "";
}

/// Parts of a multi-modal file beside the text model.
std::vector<std::string> other_parts(const ConfigObject& root) {
  std::vector<std::string> parts;
  for (const std::string_view key : {"vision_config", "audio_config"}) {
    const Json* part = root.find({key});
    if (part != nullptr && !part->empty()) parts.emplace_back(key);
  }
  return parts;
}

/// Fills what the file says about the model into `config`.
void read_model(HfConfig& config, bool strict) {
  Findings findings;
  const Json json = parse_json(config.json, config.source, findings.numbers);
  const ConfigObject root(json, config.source, "", findings);
  const auto nested = root.object("text_config");
  const ConfigObject& text = nested ? *nested : root;
  const FamilyReader& outer = find_reader(root);
  const FamilyReader& reader = text.mentions({"model_type"}) ? find_reader(text) : outer;
  if (nested && reader.read != outer.read) {
    throw text.error("model_type", "expected the text part of {}, got {}; is this the right file?",
                     outer.model_type, reader.model_type);
  }
  // First: keys of another family would seem to be missing.
  std::string architecture = read_architecture(root, outer);
  config.model = reader.read(text);
  config.model.model_type = outer.model_type;
  config.model.architecture = std::move(architecture);
  config.model.tied_embeddings = read_tying(root, text, config.model.family);
  config.model.is_nested = nested.has_value();
  internal::check_model(text, config.model);
  config.left_out = other_parts(root);
  config.quantization = read_quantization(root);
  if (nested && config.quantization.empty()) config.quantization = read_quantization(text);
  if (nested) check_outer_keys(root, text);
  find_unknown_keys(root);
  if (nested) find_unknown_keys(text);
  config.noise = findings.noise;
  report(findings, config.source, strict);
  report_details(findings, config.source);
}

}  // namespace

HfConfig parse_hf_config(std::string_view json, std::string_view source,
                         const HfConfigOptions& options) {
  HfConfig config;
  config.source = source;
  config.json = json;
  read_model(config, options.strict);
  return config;
}

HfConfig read_hf_config(const std::filesystem::path& file_or_folder,
                        const HfConfigOptions& options) {
  std::filesystem::path path = file_or_folder;
  std::error_code ignored;  // an unreadable path is reported by read_file
  if (std::filesystem::is_directory(path, ignored)) path /= "config.json";
  constexpr std::size_t kMaxBytes = std::size_t{1} << 24;  // labels of a vocabulary fit in
  return parse_hf_config(read_file(path, kMaxBytes), path.string(), options);
}

namespace {

/// Whether something is there, be it unreadable; names that are no paths are not.
bool is_path(const std::filesystem::path& path) {
  std::error_code code;
  return std::filesystem::exists(path, code) || code == std::errc::permission_denied ||
         code == std::errc::too_many_symbolic_link_levels;
}

}  // namespace

HfConfig resolve_model(std::string_view model, const HfConfigOptions& options,
                       std::string_view where) {
  const std::filesystem::path path(model);
  if (is_path(path)) return read_hf_config(path, options);
  for (const internal::BuiltInModel& file : internal::built_in_model_files()) {
    if (file.name == model) return parse_hf_config(file.json, file.name, options);
  }
  if (model.find('/') != model.npos || model.ends_with(".json")) {
    throw input_error(where,
                      "expected a config.json or a folder that holds one, but there is no \"{}\"; "
                      "check the path",
                      printable(model));
  }
  const std::vector<std::string> names = built_in_models();
  const std::string shown = printable(model);
  const std::string suggestion = model.size() <= shown.size() ? nearest(shown, names) : "";
  throw input_error(where,
                    "expected a config.json, a folder that holds one, or a built-in name, got "
                    "\"{}\"{}; built-in names: {}",
                    shown, suggestion.empty() ? "" : fmt::format(" (did you mean {}?)", suggestion),
                    join(names, ", "));
}

std::vector<std::string> built_in_models() {
  std::vector<std::string> names;
  for (const internal::BuiltInModel& file : internal::built_in_model_files()) {
    names.emplace_back(file.name);
  }
  return names;
}

}  // namespace moestro::model
