#pragma once
// bfloat16 as storage: the upper half of a float. Arithmetic is done in float.

#include <bit>
#include <cstdint>

namespace moestro::kernels {

struct bf16 {  // NOLINT(readability-identifier-naming): named like the built-in types it stands
               // beside
  std::uint16_t bits = 0;
};

[[gnu::always_inline]] inline float to_float(float x) {
  return x;
}
[[gnu::always_inline]] inline float to_float(bf16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

/// Bits of x whose upper half is x rounded to bf16; the lower half is of no use.
[[gnu::always_inline]] inline std::uint32_t rounded_bits(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  return u + 0x7FFFU + ((u >> 16) & 1U);
}

/// Rounds to nearest even, without a branch so that loops vectorise. NaNs that arithmetic makes
/// stay NaN. Not every one read from elsewhere does: from 7fff8000 on they become 0 of the other
/// sign, up to 7f808000 infinity; to test for them cost SwiGLU 13 %.
template <class T>
[[gnu::always_inline]] inline T from_float(float x);
template <>
[[gnu::always_inline]] inline float from_float<float>(float x) {
  return x;
}
template <>
[[gnu::always_inline]] inline bf16 from_float<bf16>(float x) {
  return bf16{static_cast<std::uint16_t>(rounded_bits(x) >> 16)};
}

}  // namespace moestro::kernels
