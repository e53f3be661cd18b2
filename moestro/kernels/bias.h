#pragma once
// Biases of linear maps.

#include <cstdint>

#include "moestro/kernels/bf16.h"

namespace moestro::kernels {

/// y[r] += bias for every row. Shapes: bias [width] f32, y [rows, width].
template <class T>
void add_bias(std::int64_t rows, std::int64_t width, const float* bias, T* y);

/// sum += column sums of x, added over fixed row blocks in order: same bits for any threads.
/// Shapes: x [rows, width], sum [width] f32.
template <class T>
void add_column_sums(std::int64_t rows, std::int64_t width, const T* x, float* sum);

}  // namespace moestro::kernels
