#include "moestro/runtime/training_data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "moestro/core/error.h"
#include "moestro/core/error_context.h"
#include "moestro/core/log.h"
#include "moestro/data/text.h"
#include "moestro/runtime/memory.h"

namespace moestro::runtime {
namespace {

struct TextSizes {
  double total = 0.0, largest = 0.0;  // bytes
};

/// Of the texts that say their size; pipes do not.
TextSizes sizes_of(const std::vector<std::string>& files) {
  TextSizes sizes;
  for (const std::string& file : files) {
    std::error_code unknown;  // whoever reads the file says so
    const std::uintmax_t size = std::filesystem::file_size(file, unknown);
    if (unknown) continue;
    sizes.total += static_cast<double>(size);
    sizes.largest = std::max(sizes.largest, static_cast<double>(size));
  }
  return sizes;
}

/// A text is held while its tokens are made, and these as long as the run.
void check_memory(const RunConfig& config, const TextSizes& training, const TextSizes& validation) {
  const double bytes = training.total + validation.total;
  const Bytes needed(bytes * sizeof(data::Token) + std::max(training.largest, validation.largest));
  const std::string problem = why_too_much(needed);
  if (problem.empty()) return;
  throw infeasible_error(config.where("data.text"),
                         "expected text that fits, got {} that takes {}, as tokens; use less text "
                         "or a larger machine",
                         to_string(Bytes(bytes)), problem);
}

/// So that the streams do not move as they grow, when they would take twice their memory.
void reserve_streams(TrainingData& data, double training_bytes, double validation_bytes) {
  data.training.reserve(static_cast<std::size_t>(training_bytes));
  data.validation.reserve(static_cast<std::size_t>(std::ceil(validation_bytes)));
}

data::Tokenizer tokenizer_of(const RunConfig& config, std::int64_t model_vocab) {
  const data::Tokenizer tokenizer =
      data::make_tokenizer(config.data.tokenizer, config.where("data.tokenizer"));
  if (tokenizer.vocab_size > model_vocab) {
    throw input_error(
        config.where(config.model.load.empty() ? "model.config" : "model.load"),
        "expected a vocabulary of at least {}, the ids of data.tokenizer = \"{}\", got "
        "{}; choose a model with a larger vocab_size",
        tokenizer.vocab_size, config.data.tokenizer, model_vocab);
  }
  if (!config.model.load.empty() && tokenizer.vocab_size < model_vocab) {
    log_warning(
        "{}: the model has a vocabulary of {}, data.tokenizer = \"{}\" gives ids below {}: weights "
        "that were trained with another tokenizer do not fit them",
        config.where("model.load"), model_vocab, config.data.tokenizer, tokenizer.vocab_size);
  }
  return tokenizer;
}

void warn_of_trained_validation(const RunConfig& config) {
  for (const std::string& file : config.data.validation_text) {
    const auto& trained = config.data.text;
    if (std::find(trained.begin(), trained.end(), file) == trained.end()) continue;
    log_warning("{}: {} is trained on, too: the validation loss says nothing about other text",
                config.where("data.validation_text"), file);
  }
}

}  // namespace

TrainingData load_training_data(const RunConfig& config, std::int64_t model_vocab) {
  const DataSection& section = config.data;
  const auto read = [&](const char* key, const std::string& file) {
    return in_context(config.where(key), [&] { return data::read_text(file); });
  };
  TrainingData result;
  result.tokenizer = tokenizer_of(config, model_vocab);
  warn_of_trained_validation(config);
  const TextSizes training = sizes_of(section.text), validation = sizes_of(section.validation_text);
  check_memory(config, training, validation);
  const bool has_own_validation = !section.validation_text.empty();
  const double fraction = has_own_validation ? 0.0 : section.validation_fraction;
  reserve_streams(result, training.total,
                  has_own_validation ? validation.total : 2.0 * fraction * training.total);
  for (const std::string& file : section.text) {
    const std::string text = read("data.text", file);
    const data::TextSplit split = data::split_held_out(text, fraction);
    data::append_encoded(result.tokenizer, split.training, result.training);
    data::append_encoded(result.tokenizer, split.held_out, result.validation);
  }
  for (const std::string& file : section.validation_text) {
    data::append_encoded(result.tokenizer, read("data.validation_text", file), result.validation);
  }
  return result;
}

}  // namespace moestro::runtime
