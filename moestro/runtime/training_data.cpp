#include "moestro/runtime/training_data.h"

#include <filesystem>

#include "moestro/core/error.h"
#include "moestro/core/error_context.h"
#include "moestro/data/text.h"
#include "moestro/runtime/memory.h"

namespace moestro::runtime {
namespace {

void append(std::vector<data::Token>& stream, const data::Tokenizer& tokenizer,
            std::string_view text) {
  const std::vector<data::Token> ids = data::encode(tokenizer, text);
  stream.insert(stream.end(), ids.begin(), ids.end());
}

/// Text whose tokens alone exceed the machine. Pipes do not say how much comes.
void check_memory(const RunConfig& config) {
  double bytes = 0.0;
  for (const auto* files : {&config.data.text, &config.data.validation_text}) {
    for (const std::string& file : *files) {
      std::error_code unknown;  // whoever reads the file says so
      const std::uintmax_t size = std::filesystem::file_size(file, unknown);
      if (!unknown) bytes += static_cast<double>(size);
    }
  }
  const Bytes needed(bytes * sizeof(data::Token));
  if (!is_too_much(needed)) return;
  throw infeasible_error(config.where("data.text"),
                         "expected text that fits, got {} whose tokens take {} of the {} this "
                         "machine has free; use less text or a larger machine",
                         to_string(Bytes(bytes)), to_string(needed), to_string(available_memory()));
}

}  // namespace

TrainingData load_training_data(const RunConfig& config, std::int64_t model_vocab) {
  const DataSection& section = config.data;
  const auto read = [&](const char* key, const std::string& file) {
    return in_context(config.where(key), [&] { return data::read_text(file); });
  };
  TrainingData result;
  result.tokenizer = data::make_tokenizer(section.tokenizer, config.where("data.tokenizer"));
  if (result.tokenizer.vocab_size > model_vocab) {
    throw input_error(
        config.where(config.model.load.empty() ? "model.config" : "model.load"),
        "expected a vocabulary of at least {}, the ids of data.tokenizer = \"{}\", got "
        "{}; choose a model with a larger vocab_size",
        result.tokenizer.vocab_size, section.tokenizer, model_vocab);
  }
  check_memory(config);
  const bool has_own_validation = !section.validation_text.empty();
  const double fraction = has_own_validation ? 0.0 : section.validation_fraction;
  for (const std::string& file : section.text) {
    const std::string text = read("data.text", file);
    const data::TextSplit split = data::split_held_out(text, fraction);
    append(result.training, result.tokenizer, split.training);
    append(result.validation, result.tokenizer, split.held_out);
  }
  for (const std::string& file : section.validation_text) {
    append(result.validation, result.tokenizer, read("data.validation_text", file));
  }
  const std::int64_t vocab = result.tokenizer.vocab_size;
  result.unigram_entropy = data::unigram_entropy(data::token_counts(result.validation, vocab));
  return result;
}

}  // namespace moestro::runtime
