#pragma once
// Numbers with which training cannot go on, as a diverged run or a damaged file leaves them.

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "moestro/checkpoint/safetensors.h"

namespace moestro::checkpoint {

/// The least of all finite numbers.
inline constexpr float kLowest = std::numeric_limits<float>::lowest();

/// The numbers of a tensor that are not finite, or below a bound.
struct Unusable {
  std::int64_t count = 0;
  std::int64_t first = 0;  // index of the first
  float value = 0.0F;      // which is this
};

/// Cost: one pass.
[[nodiscard]] Unusable find_unusable(std::span<const float> values, float least = kLowest);
/// The same of a stored tensor, a piece at a time. Errors: as SafetensorsFile::read_floats.
[[nodiscard]] Unusable find_unusable(const SafetensorsFile& file, std::string_view name,
                                     float least = kLowest);

/// "3, the first, nan, at index 17".
[[nodiscard]] std::string to_text(const Unusable& numbers);

/// Errors: input at `tensor "name"` of `file`, if there are any; `remedy` says what to do.
void require_usable(const Unusable& numbers, float least, std::string_view file,
                    std::string_view name, std::string_view remedy);

}  // namespace moestro::checkpoint
