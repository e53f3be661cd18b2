#pragma once
// Plain text as training data: reading it, holding out its tail for validation, and the unigram
// entropies a trained model must beat.
//
//   const std::string text = read_text("a.txt");
//   const TextSplit split = split_held_out(text, 0.05);

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "moestro/data/tokenizer.h"

namespace moestro::data {

/// Reads a UTF-8 text file; a byte order mark is dropped.
/// Errors: input, if there is no such file, it is empty, or its bytes are not UTF-8 (with line and
/// byte offset).
[[nodiscard]] std::string read_text(const std::filesystem::path& path);

/// Two views into one text, in its order.
struct TextSplit {
  std::string_view training;
  std::string_view held_out;
};

/// Holds out about `fraction` of the bytes at the end of a text, beginning at a line: the line
/// start nearest to the wanted place, or, where lines are so long that the held-out part would
/// become less than half or more than twice of what was asked for, the next character.
/// Errors: input, if fraction is not in [0, 1).
[[nodiscard]] TextSplit split_held_out(std::string_view text, double fraction,
                                       std::string_view where = "data.validation_fraction");

/// How often each id occurs. Shape: [vocab_size]. Errors: internal, for an id outside.
[[nodiscard]] std::vector<std::int64_t> token_counts(std::span<const Token> tokens,
                                                     std::int64_t vocab_size);

/// Entropy of the frequencies themselves, -sum p ln p: the loss of the best model that ignores
/// context. Units: nats per token; 0 without tokens.
[[nodiscard]] double unigram_entropy(std::span<const std::int64_t> counts);

}  // namespace moestro::data
