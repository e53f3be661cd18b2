#pragma once
// Rotary position embedding applied in place to the heads of packed rows.

#include <cstdint>

#include "moestro/kernels/bf16.h"

namespace moestro::kernels {

/// Row r, a token at position (first + r) % seq, has `heads` heads of `head_dim` that start at
/// data[r * stride]. The first 2 * half dims of each head rotate. Tables cos, sin: [seq, half].
struct RopeShape {
  std::int64_t rows = 0;
  std::int64_t seq = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t stride = 0;
  std::int64_t half = 0;
  bool interleaved = false;  // pairs (2i, 2i + 1) instead of (i, i + half)
  std::int64_t first = 0;
};

/// Rotates by +angle, or by -angle (the transpose, for gradients) when `inverse`.
template <class T>
void rope(const RopeShape& shape, T* data, const float* cos, const float* sin, bool inverse);

}  // namespace moestro::kernels
