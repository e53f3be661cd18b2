#pragma once
// Copies, conversions and sums of rows on the calling thread.

#include <cstdint>

#include "moestro/kernels/bf16.h"

namespace moestro::kernels::internal {

/// out[i] = x[i] for i < n, rounded to nearest even where out is narrower.
void convert(std::int64_t n, const float* x, bf16* out);
void convert(std::int64_t n, const bf16* x, float* out);
void convert(std::int64_t n, const float* x, float* out);

/// out[i] += x[i].
void add(std::int64_t n, const float* x, float* out);

/// out[i] = x[i], written past the caches where the CPU can: for results that are not read soon,
/// and whose old contents need not be fetched then. Other threads see them after
/// finish_streaming().
void stream(std::int64_t n, const float* x, float* out);
void finish_streaming();

}  // namespace moestro::kernels::internal
