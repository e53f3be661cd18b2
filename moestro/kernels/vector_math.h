#pragma once
// Elementary functions without branches or calls, so that the loops around them vectorise.

#include <bit>
#include <cstdint>

namespace moestro::kernels {

inline constexpr float kLog2e = 1.44269504F;

/// e^x with a relative error of at most 2e-7 for x in [-87.3, 88.3]; 0 below -87.7 (so for
/// -infinity), +infinity above 88.4, NaN for NaN.
/// Source: range reduction by ln 2 in two parts and the degree-5 polynomial of Cephes (Moshier).
[[gnu::always_inline]] inline float exp_fast(float x) {
  constexpr float kLowest = -88.0F;
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  // Adding 1.5 * 2^23 rounds to a whole number n, kept in the lowest bits; the 127 beside it makes
  // these bits the exponent field of 2^n, once shifted into place.
  constexpr float kRounder = 12582912.0F + 127.0F;
  constexpr auto kInfinite = std::bit_cast<std::uint32_t>(kRounder + 128.0F);  // field 255
  constexpr unsigned kMantissaBits = 23;
  // The ends of the range are bits to choose, not floats: of `x < kLowest ? kLowest : x` the
  // compiler would make a branch with a copy of all that follows, and vectorised loops do both.
  const std::uint32_t too_low = 0U - static_cast<std::uint32_t>(x < kLowest);
  auto exponent = std::bit_cast<std::uint32_t>(x * kLog2e + kRounder);
  exponent = exponent < kInfinite ? exponent : kInfinite;
  const float whole = std::bit_cast<float>(exponent) - kRounder;
  const float f = (x - whole * kLn2High) - whole * kLn2Low;
  float p = 1.9875691500e-4F * f + 1.3981999507e-3F;
  p = p * f + 8.3334519073e-3F;
  p = p * f + 4.1665795894e-2F;
  p = p * f + 1.6666665459e-1F;
  p = p * f + 5.0000001201e-1F;
  p = p * f * f + f + 1.0F;
  p = p * std::bit_cast<float>(exponent << kMantissaBits);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) & ~too_low);
}

/// 1 / (1 + e^-x).
[[gnu::always_inline]] inline float sigmoid_fast(float x) {
  return 1.0F / (1.0F + exp_fast(-x));
}

/// The larger of two numbers; b if a is NaN.
[[gnu::always_inline]] inline float larger(float a, float b) {
  return a > b ? a : b;
}

/// Largest of n floats, -infinity for none; NaNs are passed over.
[[gnu::always_inline]] inline float largest_of(std::int64_t n, const float* x) {
  float best = -__builtin_inff();
#pragma omp simd reduction(max : best)
  for (std::int64_t i = 0; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

}  // namespace moestro::kernels
