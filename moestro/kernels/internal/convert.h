#pragma once
// Conversion between f32 and bf16 on the calling thread.

#include <cstdint>

#include "moestro/kernels/bf16.h"

namespace moestro::kernels::internal {

/// out[i] = x[i] for i < n, rounded to nearest even where out is narrower.
void convert(std::int64_t n, const float* x, bf16* out);
void convert(std::int64_t n, const bf16* x, float* out);
void convert(std::int64_t n, const float* x, float* out);

}  // namespace moestro::kernels::internal
