#pragma once
// What kernels are compared with: textbook loops in double, and the tools to compare.

#include <cstdint>
#include <functional>
#include <vector>

#include "moestro/kernels/attention.h"
#include "moestro/kernels/bf16.h"
#include "moestro/kernels/parallel.h"
#include "moestro/kernels/routing.h"

namespace moestro::kernels::testing {

using Doubles = std::vector<double>;

/// n normal numbers, the same for the same seed, rounded to T.
template <class T>
[[nodiscard]] std::vector<T> normal(std::int64_t n, std::uint64_t seed, double scale = 1.0);

[[nodiscard]] Doubles widen(const std::vector<float>& x);
[[nodiscard]] Doubles widen(const std::vector<bf16>& x);

/// Largest |actual - expected| over the largest |expected| (over 1 if all expected are 0);
/// infinity if the sizes differ or anything is not finite.
[[nodiscard]] double relative_error(const Doubles& actual, const Doubles& expected);
template <class T>
[[nodiscard]] double relative_error(const std::vector<T>& actual, const Doubles& expected) {
  return relative_error(widen(actual), expected);
}

/// Whether two runs gave the same bits.
template <class T>
[[nodiscard]] bool same_bits(const std::vector<T>& a, const std::vector<T>& b);

/// Runs body with the given number of threads and restores the old setting.
void with_threads(int threads, const std::function<void()>& body);

/// Central differences of f at x, one entry at a time.
[[nodiscard]] Doubles numeric_gradient(const std::function<double(const Doubles&)>& f, Doubles x);

[[nodiscard]] double dot(const Doubles& a, const Doubles& b);

/// out [m, n] = a [m, k] b [k, n], all packed.
[[nodiscard]] Doubles multiply(const Doubles& a, const Doubles& b, std::int64_t m, std::int64_t n,
                               std::int64_t k);
[[nodiscard]] Doubles transpose(const Doubles& a, std::int64_t rows, std::int64_t cols);

struct AttentionResult {
  Doubles out;
  Doubles log_sum_exp;
};
[[nodiscard]] AttentionResult attention(const AttentionShape& shape, const Doubles& qkv);
/// Gradient of <out, d_out> with respect to qkv.
[[nodiscard]] Doubles attention_gradient(const AttentionShape& shape, const Doubles& qkv,
                                         const Doubles& d_out);

/// Tolerances relative to the largest entry. f32: a few hundred roundings that mostly cancel; bf16:
/// one rounding of the output (2^-9) and of what is multiplied.
template <class T>
inline constexpr double kTolerance = 1e-6;
template <>
inline constexpr double kTolerance<bf16> = 1.2e-2;

}  // namespace moestro::kernels::testing
