#pragma once
// Two neighbouring bf16 as one 32-bit word. Loops over words need no lanes of half the width: each
// half becomes a float where it is, by a shift or a mask, so a vector of words makes two of floats.
// Where all that a loop reads and writes per element is bf16, nothing has to be unpacked or packed.
//
//   for (std::int64_t i = 0; i < width / 2; ++i) {
//     const FloatPair x = load_pair(row + 2 * i);
//     store_pair({x.first * 2, x.second * 2}, row + 2 * i);
//   }

#include <bit>
#include <cstdint>
#include <cstring>

#include "moestro/kernels/bf16.h"

namespace moestro::kernels::internal {

struct FloatPair {
  float first, second;  // on little-endian machines; else swapped by load and by store
};

[[gnu::always_inline]] inline FloatPair load_pair(const bf16* from) {
  std::uint32_t word;
  std::memcpy(&word, from, sizeof word);
  return {std::bit_cast<float>(word << 16), std::bit_cast<float>(word & 0xFFFF0000U)};
}

/// Rounds as from_float<bf16> does.
[[gnu::always_inline]] inline void store_pair(FloatPair x, bf16* to) {
  const std::uint32_t word = rounded_bits(x.first) >> 16 | (rounded_bits(x.second) & 0xFFFF0000U);
  std::memcpy(static_cast<void*>(to), &word, sizeof word);
}

}  // namespace moestro::kernels::internal
