#pragma once
// The steps of attention_panel.h on vectors of L floats: the compiler's vector extension, since
// accumulators must stay in registers. Compiled once per instruction set (attention_panel.cpp,
// attention_pairs.cpp): everything is inlined there. Vectors are passed by reference: by value,
// their calling convention would depend on the instruction set.

#include <cstdint>

#include "moestro/kernels/internal/attention_panel.h"
#include "moestro/kernels/vector_math.h"

namespace moestro::kernels::internal {

// Without it, sums of pairs would not stay in registers.
#define MOESTRO_UNROLL _Pragma("GCC unroll 8")

inline constexpr int kTileRows = 6;

template <int L>
struct Vector {
  using Floats [[gnu::vector_size(L * 4)]] = float;
  using Ints [[gnu::vector_size(L * 4)]] = std::int32_t;
  using Bits [[gnu::vector_size(L * 4)]] = std::uint32_t;
  using InMemory [[gnu::vector_size(L * 4), gnu::aligned(2), gnu::may_alias]] = float;
};

/// Cells of any type, of 4 bytes each.
template <int L, class C>
[[gnu::always_inline]] inline void load(const C* from, typename Vector<L>::Floats& v) {
  v = *reinterpret_cast<const typename Vector<L>::InMemory*>(from);
}
template <int L, class C>
[[gnu::always_inline]] inline void store(const typename Vector<L>::Floats& v, C* to) {
  *reinterpret_cast<typename Vector<L>::InMemory*>(to) = v;
}

/// How products of f32 are summed, in tiles of V vectors of L.
template <int L, int V>
struct FloatProducts {
  using Cell = float;
  using Left = float;
  using Right = typename Vector<L>::Floats;
  using Sum = typename Vector<L>::Floats;
  static constexpr int kLanesOfVector = L;
  static constexpr int kVectors = V;

  [[gnu::always_inline]] static void load_left(const float* from, Left& left) { left = *from; }
  [[gnu::always_inline]] static void load_right(const float* from, Right& right) {
    load<L>(from, right);
  }
  [[gnu::always_inline]] static void add(const Left& left, const Right& right, Sum& sum) {
    sum += left * right;
  }
};

/// The same for pairs of bf16, on instructions for f32.
template <int L, int V>
struct PairProducts {
  using Cell = Bf16Pair;
  using Left = typename Vector<2>::Floats;
  using Right = typename Vector<L>::Bits;
  using Sum = typename Vector<L>::Floats;
  static constexpr int kLanesOfVector = L;
  static constexpr int kVectors = V;

  [[gnu::always_inline]] static void load_left(const Bf16Pair* from, Left& left) {
    left = Left{to_float(from->first), to_float(from->second)};
  }
  [[gnu::always_inline]] static void load_right(const Bf16Pair* from, Right& right) {
    typename Vector<L>::Floats cells;
    load<L>(from, cells);
    right = __builtin_bit_cast(Right, cells);
  }
  [[gnu::always_inline]] static void add(const Left& left, const Right& right, Sum& sum) {
    sum += left[0] * __builtin_bit_cast(Sum, right << 16U);
    sum += left[1] * __builtin_bit_cast(Sum, right & 0xFFFF0000U);
  }
};

/// A tile of R rows and V vectors of c; a and b begin at its first product. What was in c is added
/// last: sums of many short sums round less than one long sum.
template <class P, int V, int R, bool kAdd>
[[gnu::always_inline]] inline void multiply_tile(const Product<typename P::Cell>& p,
                                                 std::int64_t depth, const typename P::Cell* a,
                                                 const typename P::Cell* b, float* c) {
  constexpr int kL = P::kLanesOfVector;
  typename P::Sum sum[R][V];
  MOESTRO_UNROLL for (int r = 0; r < R; ++r) {
    MOESTRO_UNROLL for (int v = 0; v < V; ++v) sum[r][v] = typename P::Sum{};
  }
  for (std::int64_t d = 0; d < depth; ++d, a += p.a.step, b += p.b.stride) {
    typename P::Right right[V];
    MOESTRO_UNROLL for (int v = 0; v < V; ++v) P::load_right(b + v * kL, right[v]);
    MOESTRO_UNROLL for (int r = 0; r < R; ++r) {
      typename P::Left left;
      P::load_left(a + r * p.a.row, left);
      MOESTRO_UNROLL for (int v = 0; v < V; ++v) P::add(left, right[v], sum[r][v]);
    }
  }
  MOESTRO_UNROLL for (int r = 0; r < R; ++r) {
    MOESTRO_UNROLL for (int v = 0; v < V; ++v) {
      float* at = c + r * p.c.stride + v * kL;
      if constexpr (kAdd) {
        typename P::Sum before;
        load<kL>(at, before);
        sum[r][v] += before;
      } else {
        sum[r][v] *= p.scale;
      }
      store<kL>(sum[r][v], at);
    }
  }
}

/// All columns [first, last) of a tile of R rows.
template <class P, int V, int R, bool kAdd>
[[gnu::always_inline]] inline void multiply_columns(const Product<typename P::Cell>& p,
                                                    std::int64_t row, const Span& cols,
                                                    const Span& depth) {
  constexpr int kWidth = V * P::kLanesOfVector;
  const auto* a = p.a.data + row * p.a.row + depth.first * p.a.step;
  const auto* b = p.b.data + depth.first * p.b.stride;
  float* c = p.c.data + row * p.c.stride;
  const std::int64_t count = depth.last - depth.first;
  std::int64_t col = cols.first;
  for (; col + kWidth <= cols.last; col += kWidth) {
    multiply_tile<P, V, R, kAdd>(p, count, a, b + col, c + col);
  }
  if constexpr (V > 1) {
    if (col < cols.last) multiply_columns<P, V - 1, R, kAdd>(p, row, {col, cols.last}, depth);
  }
}

/// Rows [row, row + R) of the whole product, in columns [first, last).
template <class P, int R, bool kAdd>
[[gnu::always_inline]] inline void multiply_rows(const Product<typename P::Cell>& p,
                                                 std::int64_t row, Span cols) {
  Span depth{0, p.depth};
  if constexpr (kAdd) {
    depth = p.band.any(row, R, p.depth);
  } else {
    const Span seen = p.band.any(row, R, p.cols);
    cols = {std::max(cols.first, seen.first / kLanes * kLanes),
            std::min(cols.last, round_up(seen.last))};
  }
  constexpr std::int64_t kDepth = kDepthOfCell<typename P::Cell>;
  depth = {depth.first / kDepth, (depth.last + kDepth - 1) / kDepth};
  if (depth.first < depth.last) multiply_columns<P, P::kVectors, R, kAdd>(p, row, cols, depth);
}

template <class P, bool kAdd>
[[gnu::always_inline]] inline void multiply_all(const Product<typename P::Cell>& p) {
  for (std::int64_t col = 0; col < p.cols; col += kPanel) {
    const Span cols{col, std::min(col + kPanel, p.cols)};
    std::int64_t row = 0;
    for (; row + kTileRows <= p.rows; row += kTileRows) {
      multiply_rows<P, kTileRows, kAdd>(p, row, cols);
    }
    switch (p.rows - row) {
      case 5:
        multiply_rows<P, 5, kAdd>(p, row, cols);
        break;
      case 4:
        multiply_rows<P, 4, kAdd>(p, row, cols);
        break;
      case 3:
        multiply_rows<P, 3, kAdd>(p, row, cols);
        break;
      case 2:
        multiply_rows<P, 2, kAdd>(p, row, cols);
        break;
      case 1:
        multiply_rows<P, 1, kAdd>(p, row, cols);
        break;
      default:
        break;
    }
  }
}

/// x = 2^x with a relative error of at most 1.1e-7 for x in [-126, 1]; 0 below -126.5 (so for
/// -infinity), NaN for NaN, anything from 127.5 on. Cheaper than exp_fast(), which has to leave
/// multiples of ln 2 in two parts.
/// Source: Taylor's polynomial, its coefficients moved for the least largest error in [-0.5, 0.5].
template <class Floats, class Bits>
[[gnu::always_inline]] inline void power_of_2(Floats& x) {
  constexpr float kLowest = -127.0F;                // its exponent field is 0: the result is 0
  constexpr float kRounder = 12582912.0F + 127.0F;  // as in exp_fast()
  constexpr unsigned kMantissaBits = 23;
  x = x < kLowest ? Floats{} + kLowest : x;
  const Floats shifted = x + kRounder;
  const Floats f = x - (shifted - kRounder);
  Floats p = 1.535336196e-04F * f + 1.339887502e-03F;
  p = p * f + 9.618436918e-03F;
  p = p * f + 5.550332367e-02F;
  p = p * f + 2.402264774e-01F;
  p = p * f + 6.931471825e-01F;
  p = p * f + 1.0F;
  x = p * __builtin_bit_cast(Floats, __builtin_bit_cast(Bits, shifted) << kMantissaBits);
}

/// Keys of a chunk seen by lanes [lane, lane + L) of a panel: by some, and by all.
struct SeenKeys {
  Span any, all;

  SeenKeys(const Panel& panel, std::int64_t lane, std::int64_t lanes)
      : any(panel.keys_of_query().any(lane, lanes, panel.keys)),
        all(panel.keys_of_query().all(lane, lanes, any)) {}
};

/// seen = for lanes [lane, lane + L): all bits set where its query sees the chunk's key.
template <int L>
[[gnu::always_inline]] inline void find_seen(const Panel& panel, std::int64_t lane,
                                             std::int64_t key, typename Vector<L>::Ints& seen) {
  const Band band = panel.keys_of_query();
  for (int i = 0; i < L; ++i) {
    const std::int64_t column = key - lane - i;
    seen[i] = band.low <= column && column < band.high ? -1 : 0;
  }
}

/// Sets what is not seen to `value`, in the columns of one vector.
template <int L>
[[gnu::always_inline]] inline void mask(const Panel& panel, std::int64_t lane, const Span& keys,
                                        float value, float* cells) {
  for (std::int64_t key = keys.first; key < keys.last; ++key) {
    typename Vector<L>::Ints seen;
    typename Vector<L>::Floats x;
    find_seen<L>(panel, lane, key, seen);
    load<L>(cells + key * kPanel, x);
    x = seen ? x : typename Vector<L>::Floats{} + value;
    store<L>(x, cells + key * kPanel);
  }
}

template <int L>
[[gnu::always_inline]] inline void clear(const Span& keys, float* cells) {
  const typename Vector<L>::Floats zero{};
  for (std::int64_t key = keys.first; key < keys.last; ++key) store<L>(zero, cells + key * kPanel);
}

template <int L>
[[gnu::always_inline]] inline void softmax_lanes(const SeenKeys& seen, float* scores, float* peak,
                                                 float* sum, float* rescale) {
  using Floats = typename Vector<L>::Floats;
  using Bits = typename Vector<L>::Bits;
  Floats before;
  Floats top[2];
  Floats total;
  Floats score;
  load<L>(peak, before);
  load<L>(sum, total);
  top[0] = top[1] = before;
  std::int64_t key = seen.any.first;
  for (; key + 2 <= seen.any.last; key += 2) {
    for (int i = 0; i < 2; ++i) {
      load<L>(scores + (key + i) * kPanel, score);
      top[i] = score > top[i] ? score : top[i];
    }
  }
  if (key < seen.any.last) {
    load<L>(scores + key * kPanel, score);
    top[0] = score > top[0] ? score : top[0];
  }
  top[0] = top[1] > top[0] ? top[1] : top[0];
  Floats factor = (before - top[0]) * kLog2e;
  power_of_2<Floats, Bits>(factor);
  total *= factor;
  for (key = seen.any.first; key < seen.any.last; ++key) {
    load<L>(scores + key * kPanel, score);
    score = (score - top[0]) * kLog2e;
    power_of_2<Floats, Bits>(score);
    total += score;
    store<L>(score, scores + key * kPanel);
  }
  store<L>(top[0], peak);
  store<L>(total, sum);
  store<L>(factor, rescale);
}

template <int L>
[[gnu::always_inline]] inline void softmax_panel(const Panel& panel, float* scores,
                                                 SoftmaxState& state) {
  for (std::int64_t lane = 0; lane < round_up(panel.queries); lane += L) {
    const SeenKeys seen(panel, lane, L);
    float* cells = scores + lane;
    clear<L>({0, seen.any.first}, cells);
    clear<L>({seen.any.last, panel.keys}, cells);
    mask<L>(panel, lane, {seen.any.first, seen.all.first}, -__builtin_inff(), cells);
    mask<L>(panel, lane, {seen.all.last, seen.any.last}, -__builtin_inff(), cells);
    softmax_lanes<L>(seen, cells, state.peak + lane, state.sum + lane, state.rescale + lane);
  }
}

template <int L>
[[gnu::always_inline]] inline void differentiate_panel(const Panel& panel, float scale,
                                                       const float* log_sum_exp, const float* dot,
                                                       float* scores, float* gradients) {
  using Floats = typename Vector<L>::Floats;
  using Bits = typename Vector<L>::Bits;
  for (std::int64_t lane = 0; lane < round_up(panel.queries); lane += L) {
    const SeenKeys seen(panel, lane, L);
    Floats lse;
    Floats off;
    load<L>(log_sum_exp + lane, lse);
    load<L>(dot + lane, off);
    for (std::int64_t key = seen.any.first; key < seen.any.last; ++key) {
      Floats p;
      Floats d;
      load<L>(scores + key * kPanel + lane, p);
      load<L>(gradients + key * kPanel + lane, d);
      p = (p - lse) * kLog2e;
      power_of_2<Floats, Bits>(p);
      d = p * (d - off) * scale;
      store<L>(p, scores + key * kPanel + lane);
      store<L>(d, gradients + key * kPanel + lane);
    }
    for (float* cells : {scores + lane, gradients + lane}) {
      clear<L>({0, seen.any.first}, cells);
      clear<L>({seen.any.last, panel.keys}, cells);
      mask<L>(panel, lane, {seen.any.first, seen.all.first}, 0.0F, cells);
      mask<L>(panel, lane, {seen.all.last, seen.any.last}, 0.0F, cells);
    }
  }
}

}  // namespace moestro::kernels::internal
