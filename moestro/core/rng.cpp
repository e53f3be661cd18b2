#include "moestro/core/rng.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "moestro/core/error.h"

namespace moestro {
namespace {

std::uint64_t split_mix(std::uint64_t& x) {
  x += 0x9E3779B97F4A7C15ULL;
  std::uint64_t z = x;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

/// FNV-1a over the purpose, folded with seed and index.
std::uint64_t derive(std::uint64_t seed, std::string_view purpose, std::uint64_t index) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : purpose) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  }
  std::uint64_t x = seed;
  std::uint64_t mixed = split_mix(x) ^ hash;
  mixed = split_mix(mixed) ^ index;
  return split_mix(mixed);
}

}  // namespace

Rng::Rng(std::uint64_t seed) {
  for (std::uint64_t& word : state_) word = split_mix(seed);
}

Rng::Rng(std::uint64_t seed, std::string_view purpose, std::uint64_t index)
    : Rng(derive(seed, purpose, index)) {}

std::uint64_t Rng::next() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

std::uint64_t Rng::below(std::uint64_t n) {
  MOESTRO_CHECK(n > 0, "below(0)");
  const std::uint64_t limit = -n % n;  // 2^64 mod n values at the bottom would be too frequent
  std::uint64_t x = next();
  while (x < limit) x = next();
  return x % n;
}

double Rng::uniform() {
  return static_cast<double>(next() >> 11) * 0x1.0p-53;
}

double Rng::normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  const double angle = 2.0 * std::numbers::pi * uniform();
  spare_ = radius * std::sin(angle);
  has_spare_ = true;
  return radius * std::cos(angle);
}

}  // namespace moestro
