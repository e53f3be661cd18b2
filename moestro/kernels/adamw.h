#pragma once
// Fused AdamW step (Loshchilov and Hutter, 2019, decoupled decay) and the norm that clips it.

#include <cstdint>

#include "moestro/kernels/bf16.h"

namespace moestro::kernels {

struct AdamwStep {
  float lr = 0.0F;
  float beta1 = 0.9F;
  float beta2 = 0.95F;
  float epsilon = 1e-8F;
  float weight_decay = 0.0F;
  float gradient_scale = 1.0F;  // clipping factor, applied to the gradient as it is read
  std::int64_t step = 1;        // from 1: bias correction
};

/// w, m, v updated in place from gradient g; when `compute` is not null the new weights are also
/// rounded into it. Shapes: all [n]. Equals torch.optim.AdamW to rounding.
void adamw(const AdamwStep& step, std::int64_t n, float* w, const float* g, float* m, float* v,
           bf16* compute);

/// Sum of squares in double, over fixed blocks in order: same bits for any number of threads.
[[nodiscard]] double sum_of_squares(std::int64_t n, const float* x);

/// out = round(x). Shapes: [n].
void to_bf16(std::int64_t n, const float* x, bf16* out);

}  // namespace moestro::kernels
