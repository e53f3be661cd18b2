#pragma once
// RMSNorm over the last dimension of (possibly strided) rows: y = x * rsqrt(mean x^2 + eps) * w.

#include <cstdint>

#include "moestro/kernels/bf16.h"

namespace moestro::kernels {

/// `groups` consecutive vectors of `width` per row, starting at data[row * stride]: groups = 1 for
/// a layer norm, = heads for a per-head q/k norm. Weight [width] is shared by all groups.
struct NormShape {
  std::int64_t rows = 0;
  std::int64_t groups = 1;
  std::int64_t width = 0;
  std::int64_t in_stride = 0;
  std::int64_t out_stride = 0;
  float epsilon = 1e-6F;
};

/// Shapes: x, y as above (y may be x), inverse_rms [rows, groups] f32 (may be null).
template <class In, class Out>
void rms_norm_forward(const NormShape& shape, const In* x, const float* weight, Out* y,
                      float* inverse_rms);

/// dx = gradient (dx may be dy); d_weight += gradient, reduced over fixed row blocks in order.
/// in_stride is the row stride of x and dx, out_stride that of dy. Recomputes nothing but x *
/// inverse_rms. d_weight may be null (then no weight gradient is made).
template <class In, class Out>
void rms_norm_backward(const NormShape& shape, const In* x, const float* weight,
                       const float* inverse_rms, const Out* dy, In* dx, float* d_weight);

}  // namespace moestro::kernels
