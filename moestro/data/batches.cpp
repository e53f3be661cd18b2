#include "moestro/data/batches.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>

#include "moestro/core/error.h"
#include "moestro/core/rng.h"
#include "moestro/core/text.h"

namespace moestro::data {
namespace {

/// Writes window `index` of the stream as row `row` of a batch that has room for it.
void copy_window(std::span<const Token> tokens, std::int64_t index, std::int64_t row,
                 Batch& batch) {
  const Token* from = tokens.data() + index * batch.seq_len;
  const std::int64_t to = row * batch.seq_len;
  std::copy_n(from, batch.seq_len, batch.inputs.begin() + to);
  std::copy_n(from + 1, batch.seq_len, batch.labels.begin() + to);
}

Batch make_batch(std::int64_t sequences, std::int64_t seq_len) {
  const auto size = static_cast<std::size_t>(sequences * seq_len);
  return {sequences, seq_len, std::vector<std::int64_t>(size), std::vector<std::int64_t>(size)};
}

std::int64_t count_at(const Json& json, const char* key, std::string_view where) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  if (found == json.end()) {
    throw input_error(where, "expected the key \"{}\", but there is none; the file is damaged",
                      key);
  }
  constexpr std::uint64_t kMax = std::uint64_t{1} << 53;  // what every JSON program reads exactly
  if (!found->is_number_unsigned() || found->get<std::uint64_t>() > kMax) {
    throw input_error(fmt::format("{}.{}", where, key), "expected a whole number >= 0, got {}",
                      printable(found->dump()));
  }
  return found->get<std::int64_t>();
}

}  // namespace

Json to_json(const BatchPosition& position) {
  return {{"epoch", position.epoch}, {"offset", position.offset}};
}

BatchPosition position_from_json(const Json& json, std::string_view where) {
  return {count_at(json, "epoch", where), count_at(json, "offset", where)};
}

std::int64_t num_windows(std::int64_t tokens, std::int64_t seq_len) {
  MOESTRO_CHECK(seq_len >= 1, "seq_len is {}", seq_len);
  return tokens < 1 ? 0 : (tokens - 1) / seq_len;
}

Batch windows_in_order(std::span<const Token> tokens, std::int64_t seq_len, std::int64_t first,
                       std::int64_t count) {
  MOESTRO_CHECK(first >= 0 && count >= 0, "windows {} + {}", first, count);
  const std::int64_t windows = num_windows(static_cast<std::int64_t>(tokens.size()), seq_len);
  Batch batch = make_batch(std::clamp<std::int64_t>(windows - first, 0, count), seq_len);
  for (std::int64_t i = 0; i < batch.sequences; ++i) copy_window(tokens, first + i, i, batch);
  return batch;
}

Batches::Batches(std::vector<Token> tokens, const BatchOptions& options, std::string_view where)
    : tokens_(std::move(tokens)), options_(options) {
  if (options.seq_len < 1) {
    throw input_error("data.seq_len", "expected a whole number >= 1, got {}; write e.g. 256",
                      options.seq_len);
  }
  const std::int64_t windows =
      num_windows(static_cast<std::int64_t>(tokens_.size()), options.seq_len);
  if (windows < 1) {
    throw input_error(where,
                      "expected more tokens than one sequence (data.seq_len = {}), got {}; "
                      "add text, hold out less or lower seq_len",
                      options.seq_len, tokens_.size());
  }
  order_.resize(static_cast<std::size_t>(windows));
  shuffle();
}

void Batches::shuffle() {
  std::iota(order_.begin(), order_.end(), std::int64_t{0});
  Rng rng(options_.seed, "data.shuffle", static_cast<std::uint64_t>(position_.epoch));
  for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[rng.below(i)]);
}

Batch Batches::next(std::int64_t count) {
  MOESTRO_CHECK(count >= 1, "a batch of {} sequences", count);
  Batch batch = make_batch(count, options_.seq_len);
  for (std::int64_t row = 0; row < count; ++row) {
    copy_window(tokens_, order_[static_cast<std::size_t>(position_.offset)], row, batch);
    if (++position_.offset < windows()) continue;
    position_ = {position_.epoch + 1, 0};
    shuffle();
  }
  return batch;
}

void Batches::seek(const BatchPosition& position, std::string_view where) {
  if (position.epoch < 0 || position.offset < 0 || position.offset >= windows()) {
    throw input_error(
        where,
        "expected an offset below the {} windows of the data, got epoch {}, offset {}; "
        "resume with the text and seq_len that the run began with",
        windows(), position.epoch, position.offset);
  }
  const bool is_other_epoch = position.epoch != position_.epoch;
  position_ = position;
  if (is_other_epoch) shuffle();
}

}  // namespace moestro::data
