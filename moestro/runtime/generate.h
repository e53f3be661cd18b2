#pragma once
// Continuing a text with the model as it stands.

#include <atomic>
#include <cstdint>
#include <vector>

#include "moestro/data/tokenizer.h"
#include "moestro/runtime/decoder.h"

namespace moestro::runtime {

struct GenerateOptions {
  std::int64_t tokens = 200;
  std::int64_t context_length = 256;  // tokens the model sees at most
  double temperature = 0.8;           // 0: always the likeliest token
  std::uint64_t seed = 1;
  const std::atomic<bool>* stop = nullptr;  // set: no further token
};

/// The prompt followed by `tokens` sampled tokens. The whole context is evaluated for every token.
/// Errors: input, if the prompt is empty or has ids outside the vocabulary.
[[nodiscard]] std::vector<data::Token> generate(Decoder& decoder, at::ScalarType dtype,
                                                std::vector<data::Token> prompt,
                                                const GenerateOptions& options);

}  // namespace moestro::runtime
