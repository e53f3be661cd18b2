#pragma once
// SwiGLU on fused gate | up rows: a = silu(gate) * up.

#include <cstdint>

#include "moestro/kernels/bf16.h"

namespace moestro::kernels {

/// Shapes: gate_up [rows, 2 * width] (gate half first), a [rows, width].
template <class T>
void swiglu_forward(std::int64_t rows, std::int64_t width, const T* gate_up, T* a);

/// Backward of y = row_weight * down(a) from g = d_a for an unweighted down projection:
/// d_gate_up = gradient times row_weight; weighted_a = row_weight * a (what the down projection's
/// weight gradient needs); d_row_weight = <a, g>. row_weight, d_row_weight may both be null (1).
/// weighted_a may be null. Shapes: d_a [rows, width], row_weight and d_row_weight [rows].
template <class T>
void swiglu_backward(std::int64_t rows, std::int64_t width, const T* gate_up, const T* d_a,
                     const float* row_weight, T* d_gate_up, T* weighted_a, float* d_row_weight);

}  // namespace moestro::kernels
