#pragma once
// A seeded random generator whose numbers are the same on every machine and standard library;
// normal() up to the rounding of the mathematics library (logarithm, sine, cosine).
// Streams are derived by name, so that adding a use does not shift the numbers of another.
//
//   Rng rng(seed, "shuffle", epoch);
//   rng.below(10);  rng.uniform();  rng.normal();

#include <cstdint>
#include <string_view>

namespace moestro {

/// xoshiro256** seeded through SplitMix64 (Blackman and Vigna, 2018).
class Rng {
 public:
  explicit Rng(std::uint64_t seed);
  /// An independent stream: same seed, other purpose or index.
  Rng(std::uint64_t seed, std::string_view purpose, std::uint64_t index = 0);

  [[nodiscard]] std::uint64_t next();
  /// Uniform in [0, n), without modulo bias. Errors: internal, if n == 0.
  [[nodiscard]] std::uint64_t below(std::uint64_t n);
  /// Uniform in [0, 1), 53 bits.
  [[nodiscard]] double uniform();
  /// Standard normal (Box-Muller; both values are used).
  [[nodiscard]] double normal();

 private:
  std::uint64_t state_[4] = {};
  double spare_ = 0.0;
  bool has_spare_ = false;
};

}  // namespace moestro
