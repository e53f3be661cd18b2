#pragma once
// A stream of tokens as training batches.
//
// The stream is cut into windows of seq_len + 1 tokens that start every seq_len tokens: the last
// token of a window is the first of the next, so that every token but the first is predicted
// exactly once per epoch. A tail that fills no window is left out. Each epoch visits all windows in
// an order of its own that follows from (seed, epoch) alone; a batch may span two epochs. Hence the
// sequence of windows does not depend on how batches are cut into micro-batches, shards or ranks.
//
//   Batches batches(tokens, {.seq_len = 256, .seed = 1});
//   Batch batch = batches.next(16);              // 16 sequences
//   Json saved = to_json(batches.position());    // resume: seek(position_from_json(saved, where))

#include <compare>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "moestro/core/json.h"
#include "moestro/data/tokenizer.h"

namespace moestro::data {

/// Sequences with their labels: labels[s, t] is the token that follows inputs[s, t].
struct Batch {
  std::int64_t sequences = 0;
  std::int64_t seq_len = 0;
  std::vector<std::int64_t> inputs;  // [sequences, seq_len]
  std::vector<std::int64_t> labels;  // [sequences, seq_len]
};

/// Where a pass over the data stands: the next window is number `offset` in the order of `epoch`.
struct BatchPosition {
  std::int64_t epoch = 0;
  std::int64_t offset = 0;
  friend auto operator<=>(const BatchPosition&, const BatchPosition&) = default;
};

/// {"epoch": 0, "offset": 0}.
[[nodiscard]] Json to_json(const BatchPosition& position);
/// What to_json wrote. Errors: input at `where`, if keys are absent or not whole numbers >= 0.
[[nodiscard]] BatchPosition position_from_json(const Json& json, std::string_view where);

/// Windows of seq_len + 1 tokens that a stream holds; 0 if it is shorter than one.
[[nodiscard]] std::int64_t num_windows(std::int64_t tokens, std::int64_t seq_len);

/// Windows first, first + 1, ... of a stream, in stream order: `count` of them or as many as there
/// are. This is the validation batch: the same at every validation.
/// Errors: internal, if first or count is negative.
[[nodiscard]] Batch windows_in_order(std::span<const Token> tokens, std::int64_t seq_len,
                                     std::int64_t first, std::int64_t count);

struct BatchOptions {
  std::int64_t seq_len = 0;
  std::uint64_t seed = 0;
};

/// Shuffled batches without end over a stream of tokens.
class Batches {
 public:
  /// Errors: input at `where`, if the stream is shorter than one window or seq_len < 1.
  Batches(std::vector<Token> tokens, const BatchOptions& options,
          std::string_view where = "data.text");

  /// The next `count` windows; moves the position past them. Errors: internal, if count < 1.
  /// Cost: O(count * seq_len), plus O(windows) when an epoch begins.
  [[nodiscard]] Batch next(std::int64_t count);

  [[nodiscard]] BatchPosition position() const { return position_; }
  /// Continues from a saved position. Errors: input at `where`, if the data has no such window.
  void seek(const BatchPosition& position, std::string_view where = "data position");

  /// Windows per epoch.
  [[nodiscard]] std::int64_t windows() const { return static_cast<std::int64_t>(order_.size()); }
  [[nodiscard]] std::span<const Token> tokens() const { return tokens_; }

 private:
  void shuffle();

  std::vector<Token> tokens_;
  BatchOptions options_;
  std::vector<std::int64_t> order_;  // of the epoch of position_
  BatchPosition position_;
};

}  // namespace moestro::data
