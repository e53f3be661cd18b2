#include "moestro/checkpoint/usable_numbers.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "moestro/core/error.h"
#include "moestro/core/text.h"

namespace moestro::checkpoint {
namespace {

bool is_usable(float value, float least) {
  return value >= least && value <= std::numeric_limits<float>::max();  // false for NaN
}

}  // namespace

Unusable find_unusable(std::span<const float> values, float least) {
  Unusable found;
  for (const float value : values) found.count += is_usable(value, least) ? 0 : 1;
  if (found.count == 0) return found;
  const auto first = std::find_if_not(values.begin(), values.end(),
                                      [&](float value) { return is_usable(value, least); });
  found.first = first - values.begin();
  found.value = *first;
  return found;
}

Unusable find_unusable(const SafetensorsFile& file, std::string_view name, float least) {
  constexpr std::int64_t kPiece = 65536;  // stacked experts are too large to convert whole
  std::vector<float> piece(kPiece);
  Unusable found;
  const std::int64_t elements = file.info(name).elements();
  for (std::int64_t begin = 0; begin < elements; begin += kPiece) {
    const auto values =
        std::span(piece).first(static_cast<std::size_t>(std::min(kPiece, elements - begin)));
    file.read_floats(name, values, begin);
    const Unusable here = find_unusable(values, least);
    if (found.count == 0) found = {0, begin + here.first, here.value};
    found.count += here.count;
  }
  return found;
}

std::string to_text(const Unusable& numbers) {
  const std::string value = std::isnan(numbers.value) ? "nan" : exact(numbers.value);
  return fmt::format("{}, the first, {}, at index {}", with_thousands(numbers.count), value,
                     numbers.first);
}

void require_usable(const Unusable& numbers, float least, std::string_view file,
                    std::string_view name, std::string_view remedy) {
  if (numbers.count == 0) return;
  throw input_error(fmt::format("{} tensor \"{}\"", file, printable(name)),
                    "expected finite numbers{}, got others ({}); {}", least < 0.0F ? "" : " >= 0",
                    to_text(numbers), remedy);
}

}  // namespace moestro::checkpoint
