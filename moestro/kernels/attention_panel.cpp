#include "moestro/kernels/internal/attention_panel.h"

#include <algorithm>
#include <array>
#include <span>

#include "moestro/kernels/internal/attention_vectors.h"

namespace moestro::kernels::internal {
namespace {

// Tiles are as large as the registers allow: 6 rows by 2 vectors of 16 registers, by 4 of 32.
void multiply_any(const Product<float>& p) {
  multiply_all<FloatProducts<4, 2>, false>(p);
}
void add_product_any(const Product<float>& p) {
  multiply_all<FloatProducts<4, 2>, true>(p);
}
void softmax_any(const Panel& panel, float* scores, SoftmaxState& state) {
  softmax_panel<4>(panel, scores, state);
}
void differentiate_any(const Panel& panel, float scale, const float* log_sum_exp, const float* dot,
                       float* scores, float* gradients) {
  differentiate_panel<4>(panel, scale, log_sum_exp, dot, scores, gradients);
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
// Written out instead of MOESTRO_CLONES, since each has vectors and tiles of its own.
[[gnu::target("arch=x86-64-v3")]] void multiply_avx2(const Product<float>& p) {
  multiply_all<FloatProducts<8, 2>, false>(p);
}
[[gnu::target("arch=x86-64-v3")]] void add_product_avx2(const Product<float>& p) {
  multiply_all<FloatProducts<8, 2>, true>(p);
}
[[gnu::target("arch=x86-64-v3")]] void softmax_avx2(const Panel& panel, float* scores,
                                                    SoftmaxState& state) {
  softmax_panel<8>(panel, scores, state);
}
[[gnu::target("arch=x86-64-v3")]] void differentiate_avx2(const Panel& panel, float scale,
                                                          const float* log_sum_exp,
                                                          const float* dot, float* scores,
                                                          float* gradients) {
  differentiate_panel<8>(panel, scale, log_sum_exp, dot, scores, gradients);
}

[[gnu::target("arch=x86-64-v4")]] void multiply_avx512(const Product<float>& p) {
  multiply_all<FloatProducts<16, 4>, false>(p);
}
[[gnu::target("arch=x86-64-v4")]] void add_product_avx512(const Product<float>& p) {
  multiply_all<FloatProducts<16, 4>, true>(p);
}
[[gnu::target("arch=x86-64-v4")]] void softmax_avx512(const Panel& panel, float* scores,
                                                      SoftmaxState& state) {
  softmax_panel<16>(panel, scores, state);
}
[[gnu::target("arch=x86-64-v4")]] void differentiate_avx512(const Panel& panel, float scale,
                                                            const float* log_sum_exp,
                                                            const float* dot, float* scores,
                                                            float* gradients) {
  differentiate_panel<16>(panel, scale, log_sum_exp, dot, scores, gradients);
}

std::int64_t num_supported() {
  if (__builtin_cpu_supports("x86-64-v4") != 0) return 3;
  return __builtin_cpu_supports("x86-64-v3") != 0 ? 2 : 1;
}
constexpr std::array kKernels = {
    PanelKernels{multiply_any, add_product_any, softmax_any, differentiate_any},
    PanelKernels{multiply_avx2, add_product_avx2, softmax_avx2, differentiate_avx2},
    PanelKernels{multiply_avx512, add_product_avx512, softmax_avx512, differentiate_avx512}};
#else
std::int64_t num_supported() {
  return 1;
}
constexpr std::array kKernels = {
    PanelKernels{multiply_any, add_product_any, softmax_any, differentiate_any}};
#endif

}  // namespace

std::span<const PanelKernels> supported_panel_kernels() {
  static const std::int64_t count = num_supported();
  return std::span(kKernels).first(static_cast<std::size_t>(count));
}

namespace {

const PanelKernels& best() {
  static const PanelKernels& kernels = supported_panel_kernels().back();
  return kernels;
}

}  // namespace

void multiply(const Product<float>& p) {
  best().multiply(p);
}
void add_product(const Product<float>& p) {
  best().add_product(p);
}
void softmax(const Panel& panel, float* scores, SoftmaxState& state) {
  best().softmax(panel, scores, state);
}
void differentiate(const Panel& panel, float scale, const float* log_sum_exp, const float* dot,
                   float* scores, float* gradients) {
  best().differentiate(panel, scale, log_sum_exp, dot, scores, gradients);
}

std::int64_t num_blocks(const AttentionShape& s) {
  const std::int64_t panels = (s.seq + kPanel - 1) / kPanel * (s.heads / s.kv_heads);
  return (panels + kBlockPanels - 1) / kBlockPanels;
}

PanelBlock::PanelBlock(const AttentionShape& s, std::int64_t kv_head, std::int64_t block)
    : window(s.window > 0 ? std::min(s.window, s.seq) : s.seq) {
  const std::int64_t group = s.heads / s.kv_heads;
  for (std::int64_t i = block * kBlockPanels; count < kBlockPanels; ++i) {
    const std::int64_t query = i / group * kPanel;
    if (query >= s.seq) break;
    panels[count++] = {kv_head * group + i % group, query, std::min(kPanel, s.seq - query)};
  }
}

namespace {

/// to[d][i] = from[i][d] for 4 rows of 4 cells.
template <class C>
[[gnu::always_inline]] inline void transpose_4x4(const C* from, std::int64_t stride, C* to) {
  using Four = Vector<4>::Floats;
  Four row[4];
  for (int i = 0; i < 4; ++i) load<4>(from + i * stride, row[i]);
  const Four low01 = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
  const Four high01 = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
  const Four low23 = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
  const Four high23 = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
  store<4>(__builtin_shufflevector(low01, low23, 0, 1, 4, 5), to);
  store<4>(__builtin_shufflevector(low01, low23, 2, 3, 6, 7), to + kPanel);
  store<4>(__builtin_shufflevector(high01, high23, 0, 1, 4, 5), to + 2 * kPanel);
  store<4>(__builtin_shufflevector(high01, high23, 2, 3, 6, 7), to + 3 * kPanel);
}

template <class C>
void transpose_cells(std::int64_t count, std::int64_t width, const C* from, std::int64_t stride,
                     C* to) {
  const std::int64_t rows = count / 4 * 4;
  const std::int64_t cols = width / 4 * 4;
  for (std::int64_t i = 0; i < rows; i += 4) {
    for (std::int64_t d = 0; d < cols; d += 4) {
      transpose_4x4(from + i * stride + d, stride, to + d * kPanel + i);
    }
    for (std::int64_t d = cols; d < width; ++d) {
      for (std::int64_t j = i; j < i + 4; ++j) to[d * kPanel + j] = from[j * stride + d];
    }
  }
  for (std::int64_t d = 0; d < width; ++d) {
    for (std::int64_t i = rows; i < count; ++i) to[d * kPanel + i] = from[i * stride + d];
    std::fill_n(to + d * kPanel + count, round_up(count) - count, C{});
  }
}

}  // namespace

void transpose_panel(std::int64_t count, std::int64_t width, const Rows<const float>& from,
                     float* to) {
  transpose_cells(count, width, from.data, from.stride, to);
}
void transpose_panel(std::int64_t count, std::int64_t width, const Rows<const bf16>& from,
                     Bf16Pair* to) {
  const Left<Bf16Pair> cells = by_rows(from);
  transpose_cells(count, (width + 1) / 2, cells.data, cells.row, to);
}

}  // namespace moestro::kernels::internal
