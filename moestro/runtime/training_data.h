#pragma once
// The token streams of a run.

#include <string>
#include <vector>

#include "moestro/data/tokenizer.h"
#include "moestro/runtime/run_config.h"

namespace moestro::runtime {

struct TrainingData {
  data::Tokenizer tokenizer;
  std::vector<data::Token> training;
  std::vector<data::Token> validation;
};

/// Reads, splits and tokenises the texts of a run. Errors: input at the place of the key, if a file
/// cannot be used, or the tokenizer has more ids than the model; infeasible, if the tokens do not
/// fit into memory.
[[nodiscard]] TrainingData load_training_data(const RunConfig& config, std::int64_t model_vocab);

}  // namespace moestro::runtime
