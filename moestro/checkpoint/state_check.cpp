#include "moestro/checkpoint/state_check.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>

#include "moestro/core/error.h"
#include "moestro/core/text.h"

namespace moestro::checkpoint {
namespace {

constexpr std::int64_t kMaxCount = std::int64_t{1} << 53;  // what every JSON program reads exactly

/// A member of an object, which the checks below name in errors as "FILE data.seed".
struct Member {
  const std::string& file;
  std::string path;
  Json value;  // null if absent, which only members that older versions did not write may be
};

Member member(const std::string& file, const Json& object, const std::string& path) {
  const std::string key = path.substr(path.rfind('.') + 1);
  return {file, path, object.is_object() ? object.value(key, Json()) : Json()};
}

[[noreturn]] void reject(const Member& m, const std::string& expected) {
  throw input_error(fmt::format("{} {}", m.file, m.path),
                    "expected {}, got {}; the file is damaged", expected,
                    printable(m.value.dump(-1, ' ', false, Json::error_handler_t::replace), 60));
}

std::int64_t count(const Member& m, std::int64_t least, std::int64_t most = kMaxCount) {
  const bool is_whole = m.value.is_number_unsigned() ||
                        (m.value.is_number_integer() && m.value.get<std::int64_t>() >= 0);
  const std::uint64_t value = is_whole ? m.value.get<std::uint64_t>() : 0;
  if (!is_whole || value < static_cast<std::uint64_t>(least) ||
      value > static_cast<std::uint64_t>(most)) {
    reject(m, fmt::format("a whole number >= {}", least));
  }
  return static_cast<std::int64_t>(value);
}

void check_settings(const Member& settings) {
  if (!settings.value.is_object()) reject(settings, "an object");
  for (const auto& [key, value] : settings.value.items()) {
    if (!value.is_string()) reject({settings.file, "settings." + printable(key), value}, "text");
  }
}

void check_losses(const Member& losses) {
  bool is_good = losses.value.is_array();
  for (const Json& loss : losses.value) is_good = is_good && loss.is_number();
  if (!is_good) reject(losses, "a list of numbers");
}

/// Windows that a run has passed when it stands at (epoch, offset) and has seen `sequences` say how
/// many there are in an epoch.
void check_position(const std::string& file, const Json& state, std::int64_t sequences) {
  const Member data = member(file, state, "data"), position = member(file, state, "position");
  const std::int64_t epoch = count(member(file, position.value, "position.epoch"), 0);
  const Member at = member(file, position.value, "position.offset");
  const std::int64_t offset = count(at, 0);
  const Member stored = member(file, data.value, "data.windows");
  const bool is_known = data.value.contains("windows");  // older versions did not write it
  const std::int64_t passed = sequences - offset;        // in whole epochs
  const std::int64_t windows = is_known    ? count(stored, 1)
                               : epoch > 0 ? passed / epoch
                                           : std::numeric_limits<std::int64_t>::max();
  const bool agrees = passed >= 0 && offset < windows &&
                      (epoch == 0 ? passed == 0 : passed % epoch == 0 && passed / epoch == windows);
  if (!agrees) {
    reject(at, fmt::format("the place after {} sequences, in epoch {}", sequences, epoch));
  }
}

}  // namespace

void check_state(const Json& state, const std::string& file) {
  const std::int64_t step = count(member(file, state, "step"), 0);
  const Member tokens = member(file, state, "tokens_seen");
  const std::int64_t tokens_seen = count(tokens, 0);
  for (const char* key : {"data", "position"}) {
    const Member object = member(file, state, key);
    if (!object.value.is_object()) reject(object, "an object");
  }
  const Json& data = state["data"];
  const std::int64_t seq_len = count(member(file, data, "data.seq_len"), 1);
  count(member(file, data, "data.seed"), 0, std::numeric_limits<std::int64_t>::max());
  for (const char* key : {"data.tokenizer", "data.fingerprint"}) {
    const Member text = member(file, data, key);
    if (!text.value.is_string()) reject(text, "text");
  }
  // Older versions did not write these two.
  if (state.contains("recent_losses")) check_losses(member(file, state, "recent_losses"));
  if (state.contains("settings")) check_settings(member(file, state, "settings"));
  if (tokens_seen % seq_len != 0 || tokens_seen / seq_len < step) {
    reject(tokens, fmt::format("a multiple of seq_len = {} for at least one sequence in each of {} "
                               "steps",
                               seq_len, step));
  }
  check_position(file, state, tokens_seen / seq_len);
}

}  // namespace moestro::checkpoint
