#include "moestro/kernels/embedding.h"

#include <algorithm>

#include "moestro/kernels/clones.h"
#include "moestro/kernels/parallel.h"

namespace moestro::kernels {
namespace {

constexpr std::int64_t kTokensPerBlock = 64;
constexpr std::int64_t kColumnsPerBlock = 64;

MOESTRO_CLONES void scaled_copy(std::int64_t n, float multiplier, const float* x, float* out) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = multiplier * x[i];
}

MOESTRO_CLONES void add_columns(std::int64_t tokens, std::int64_t width, std::int64_t columns,
                                const std::int64_t* id, float multiplier, const float* d_out,
                                float* d_table) {
  for (std::int64_t t = 0; t < tokens; ++t) {
    const float* from = d_out + t * width;
    float* to = d_table + id[t] * width;
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i) to[i] += multiplier * from[i];
  }
}

}  // namespace

void embedding_forward(std::int64_t tokens, std::int64_t width, const float* table,
                       const std::int64_t* id, float multiplier, float* out) {
  parallel_for(tokens, kTokensPerBlock, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      scaled_copy(width, multiplier, table + id[t] * width, out + t * width);
    }
  });
}

void embedding_backward(std::int64_t tokens, std::int64_t width, const std::int64_t* id,
                        float multiplier, const float* d_out, float* d_table) {
  parallel_for(width, kColumnsPerBlock, [&](std::int64_t begin, std::int64_t end) {
    add_columns(tokens, width, end - begin, id, multiplier, d_out + begin, d_table + begin);
  });
}

}  // namespace moestro::kernels
