// Moving rows between token order and expert order.
#include <algorithm>
#include <cstring>
#include <vector>

#include "moestro/core/error.h"
#include "moestro/kernels/clones.h"
#include "moestro/kernels/parallel.h"
#include "moestro/kernels/routing.h"

namespace moestro::kernels {
namespace {

constexpr std::int64_t kRowsPerBlock = 64;
constexpr std::int64_t kColumnsAtOnce = 256;  // sums of one pass stay in the first-level cache

template <class T, class Out>
struct Combine {
  std::int64_t width;
  std::int64_t top_k;
  const T* rows;
  const std::int64_t* row_of_slot;
  const float* weight;
  const Out* base;
  Out* out;
};

/// Columns [begin, end) of token t's sum.
template <class T, class Out>
[[gnu::always_inline]] inline void combine_columns(const Combine<T, Out>& c, std::int64_t t,
                                                   std::int64_t begin, std::int64_t end) {
  float sum[kColumnsAtOnce];
  const std::int64_t columns = end - begin;
  Out* out = c.out + t * c.width + begin;
  if (c.base != nullptr) {
    const Out* base = c.base + t * c.width + begin;
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i) sum[i] = to_float(base[i]);
  } else {
    std::fill_n(sum, columns, 0.0F);
  }
  for (std::int64_t j = 0; j < c.top_k; ++j) {
    const std::int64_t slot = t * c.top_k + j;
    const float weight = c.weight == nullptr ? 1.0F : c.weight[slot];
    const T* row = c.rows + c.row_of_slot[slot] * c.width + begin;
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i) sum[i] += weight * to_float(row[i]);
  }
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) out[i] = from_float<Out>(sum[i]);
}

template <class T, class Out>
[[gnu::always_inline]] inline void combine_block(const Combine<T, Out>& c, std::int64_t begin,
                                                 std::int64_t end) {
  for (std::int64_t t = begin; t < end; ++t) {
    for (std::int64_t column = 0; column < c.width; column += kColumnsAtOnce) {
      combine_columns(c, t, column, std::min(c.width, column + kColumnsAtOnce));
    }
  }
}

MOESTRO_CLONES void combine_tokens(const Combine<float, float>& c, std::int64_t begin,
                                   std::int64_t end) {
  combine_block(c, begin, end);
}
MOESTRO_CLONES void combine_tokens(const Combine<bf16, float>& c, std::int64_t begin,
                                   std::int64_t end) {
  combine_block(c, begin, end);
}
MOESTRO_CLONES void combine_tokens(const Combine<float, bf16>& c, std::int64_t begin,
                                   std::int64_t end) {
  combine_block(c, begin, end);
}
MOESTRO_CLONES void combine_tokens(const Combine<bf16, bf16>& c, std::int64_t begin,
                                   std::int64_t end) {
  combine_block(c, begin, end);
}

}  // namespace

void group_by_expert(std::int64_t slots, std::int64_t experts, const std::int64_t* index,
                     std::int64_t* offset, std::int64_t* slot_of_row, std::int64_t* row_of_slot) {
  std::fill_n(offset, experts + 1, 0);
  for (std::int64_t s = 0; s < slots; ++s) {
    MOESTRO_CHECK(index[s] >= 0 && index[s] < experts, "group_by_expert: expert {} of {}", index[s],
                  experts);
    ++offset[index[s] + 1];
  }
  for (std::int64_t e = 0; e < experts; ++e) offset[e + 1] += offset[e];
  std::vector<std::int64_t> next(offset, offset + experts);
  for (std::int64_t s = 0; s < slots; ++s) {
    const std::int64_t row = next[static_cast<std::size_t>(index[s])]++;
    slot_of_row[row] = s;
    row_of_slot[s] = row;
  }
}

template <class T>
void gather_rows(std::int64_t slots, std::int64_t width, std::int64_t top_k, const T* x,
                 const std::int64_t* slot_of_row, T* rows) {
  MOESTRO_CHECK(top_k > 0, "gather_rows: top_k {}", top_k);
  const auto bytes = static_cast<std::size_t>(width) * sizeof(T);
  parallel_for(slots, kRowsPerBlock, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      std::memcpy(static_cast<void*>(rows + r * width), x + slot_of_row[r] / top_k * width, bytes);
    }
  });
}

template <class T, class Out>
void combine_rows(std::int64_t tokens, std::int64_t width, std::int64_t top_k, const T* rows,
                  const std::int64_t* row_of_slot, const float* weight, const Out* base, Out* out) {
  const Combine<T, Out> combine{width, top_k, rows, row_of_slot, weight, base, out};
  parallel_for(tokens, kRowsPerBlock,
               [&](std::int64_t begin, std::int64_t end) { combine_tokens(combine, begin, end); });
}

template void gather_rows(std::int64_t, std::int64_t, std::int64_t, const float*,
                          const std::int64_t*, float*);
template void gather_rows(std::int64_t, std::int64_t, std::int64_t, const bf16*,
                          const std::int64_t*, bf16*);
template void combine_rows(std::int64_t, std::int64_t, std::int64_t, const float*,
                           const std::int64_t*, const float*, const float*, float*);
template void combine_rows(std::int64_t, std::int64_t, std::int64_t, const bf16*,
                           const std::int64_t*, const float*, const float*, float*);
template void combine_rows(std::int64_t, std::int64_t, std::int64_t, const float*,
                           const std::int64_t*, const float*, const bf16*, bf16*);
template void combine_rows(std::int64_t, std::int64_t, std::int64_t, const bf16*,
                           const std::int64_t*, const float*, const bf16*, bf16*);

}  // namespace moestro::kernels
