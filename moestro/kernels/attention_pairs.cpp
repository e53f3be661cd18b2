// What attention by panels needs for bf16: operands of pairs, and their products.
#include <array>
#include <bit>
#include <span>

#include "moestro/kernels/clones.h"
#include "moestro/kernels/internal/attention_panel.h"
#include "moestro/kernels/internal/attention_vectors.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define MOESTRO_HAS_AVX512_BF16 1
#include <immintrin.h>
#else
#define MOESTRO_HAS_AVX512_BF16 0
#endif

namespace moestro::kernels::internal {
namespace {

void multiply_any(const Product<Bf16Pair>& p) {
  multiply_all<PairProducts<4, 2>, false>(p);
}
void add_product_any(const Product<Bf16Pair>& p) {
  multiply_all<PairProducts<4, 2>, true>(p);
}
void round_by_keys_any(std::int64_t keys, std::int64_t lanes, const float* cells, bf16* to) {
  for (std::int64_t key = 0; key < keys; ++key) {
    for (std::int64_t i = 0; i < lanes; ++i) {
      to[key * kPanel + i] = from_float<bf16>(cells[key * kPanel + i]);
    }
  }
}
void round_by_queries_any(std::int64_t keys, std::int64_t lanes, const float* cells, Bf16Pair* to) {
  for (std::int64_t key = 0; key < keys; key += 2, to += kPanel) {
    const float* first = cells + key * kPanel;
    for (std::int64_t i = 0; i < lanes; ++i) {
      const float second = key + 1 < keys ? first[kPanel + i] : 0.0F;
      to[i] = {from_float<bf16>(first[i]), from_float<bf16>(second)};
    }
  }
}

#if MOESTRO_HAS_AVX512_BF16
#define MOESTRO_AVX512_BF16 [[gnu::target("arch=x86-64-v4,avx512bf16")]]

/// Products of 16 pairs and their sums in one instruction. It is written as such, since the
/// compiler inlines its own name for it only into functions of the same instruction set, and these
/// steps are templates of all.
struct Avx512PairProducts {
  using Cell = Bf16Pair;
  using Left = std::uint32_t;
  using Right = Vector<16>::Floats;
  using Sum = Vector<16>::Floats;
  static constexpr int kLanesOfVector = 16;
  static constexpr int kVectors = 4;

  [[gnu::always_inline]] static void load_left(const Bf16Pair* from, Left& left) {
    left = std::bit_cast<std::uint32_t>(*from);
  }
  [[gnu::always_inline]] static void load_right(const Bf16Pair* from, Right& right) {
    load<16>(from, right);
  }
  [[gnu::always_inline]] static void add(const Left& left, const Right& right, Sum& sum) {
    Sum x = sum;
    const Vector<16>::Bits everywhere = Vector<16>::Bits{} + left;
    asm("vdpbf16ps %2, %1, %0" : "+v"(x) : "v"(right), "v"(everywhere));
    sum = x;
  }
};

MOESTRO_AVX512_BF16 void multiply_avx512(const Product<Bf16Pair>& p) {
  multiply_all<Avx512PairProducts, false>(p);
}
MOESTRO_AVX512_BF16 void add_product_avx512(const Product<Bf16Pair>& p) {
  multiply_all<Avx512PairProducts, true>(p);
}
MOESTRO_AVX512_BF16 void round_by_keys_avx512(std::int64_t keys, std::int64_t lanes,
                                              const float* cells, bf16* to) {
  for (std::int64_t key = 0; key < keys; ++key) {
    for (std::int64_t i = 0; i < lanes; i += 16) {
      const std::int64_t at = key * kPanel + i;
      const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_loadu_ps(cells + at));
      _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to + at),
                          reinterpret_cast<__m256i>(rounded));
    }
  }
}
MOESTRO_AVX512_BF16 void round_by_queries_avx512(std::int64_t keys, std::int64_t lanes,
                                                 const float* cells, Bf16Pair* to) {
  const __m512i interleaved =
      _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                       21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  for (std::int64_t key = 0; key < keys; key += 2, to += kPanel) {
    for (std::int64_t i = 0; i < lanes; i += 16) {
      const float* at = cells + key * kPanel + i;
      const __m512 first = _mm512_loadu_ps(at);
      const __m512 second = key + 1 < keys ? _mm512_loadu_ps(at + kPanel) : _mm512_setzero_ps();
      const auto halves = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
      _mm512_storeu_si512(to + i, _mm512_permutexvar_epi16(interleaved, halves));
    }
  }
}

std::int64_t num_supported() {
  return __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("x86-64-v4") != 0 ? 2
                                                                                               : 1;
}
constexpr std::array kKernels = {
    PairKernels{multiply_any, add_product_any, round_by_keys_any, round_by_queries_any},
    PairKernels{multiply_avx512, add_product_avx512, round_by_keys_avx512,
                round_by_queries_avx512}};
#else
std::int64_t num_supported() {
  return 1;
}
constexpr std::array kKernels = {
    PairKernels{multiply_any, add_product_any, round_by_keys_any, round_by_queries_any}};
#endif

const PairKernels& best() {
  static const PairKernels& kernels = supported_pair_kernels().back();
  return kernels;
}

MOESTRO_CLONES void interleave(std::int64_t width, const bf16* first, const bf16* second,
                               Bf16Pair* to) {
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) to[i] = {first[i], second[i]};
}

}  // namespace

std::span<const PairKernels> supported_pair_kernels() {
  static const std::int64_t count = num_supported();
  return std::span(kKernels).first(static_cast<std::size_t>(count));
}

void multiply(const Product<Bf16Pair>& p) {
  best().multiply(p);
}
void add_product(const Product<Bf16Pair>& p) {
  best().add_product(p);
}

const Bf16Pair* right_side(std::int64_t count, std::int64_t width, const bf16* rows,
                           Bf16Pair* work) {
  for (std::int64_t i = 0; i + 1 < count; i += 2) {
    interleave(width, rows + i * width, rows + (i + 1) * width, work + i / 2 * width);
  }
  if (count % 2 != 0) {
    const bf16* last = rows + (count - 1) * width;
    for (std::int64_t i = 0; i < width; ++i) work[count / 2 * width + i] = {last[i], bf16{}};
  }
  return work;
}

Left<Bf16Pair> rows_are_keys(const Panel& panel, const float* cells, bf16* work) {
  best().round_by_keys(panel.keys, round_up(panel.queries), cells, work);
  return by_rows(Rows<const bf16>{work, kPanel});
}
Left<Bf16Pair> rows_are_queries(const Panel& panel, const float* cells, bf16* work) {
  auto* pairs = reinterpret_cast<Bf16Pair*>(work);
  best().round_by_queries(panel.keys, round_up(panel.queries), cells, pairs);
  return {pairs, 1, kPanel};
}

}  // namespace moestro::kernels::internal
