#include "moestro/kernels/gemm.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "moestro/core/error.h"
#include "moestro/kernels/internal/convert.h"
#include "moestro/kernels/internal/multiply.h"
#include "moestro/kernels/internal/scratch.h"
#include "moestro/kernels/parallel.h"

namespace moestro::kernels {
namespace {

using internal::Purpose;
using internal::scratch;

// Tiles keep one thread's operands in its second-level cache (1-2 MiB) and make enough pieces for
// every thread. They are part of the result's bits: no thread count may change them. Measured on
// AVX-512 with AMX, which is the most sensitive: taller tiles pack b less often.
constexpr std::int64_t kRowTile = 256;
constexpr std::int64_t kLargestRowTile = 320;  // where that saves a tile
constexpr std::int64_t kRowGranule = 16;       // rows of an AMX tile
constexpr std::int64_t kWidestRow = 1024;      // results up to this wide are not cut into columns
constexpr std::int64_t kColumnTile = 512;
constexpr std::int64_t kDepthTile = 1024;    // of the inner sum: longer rows fall out of the cache
constexpr std::int64_t kTokenGranule = 32;   // tokens of one AMX tile
constexpr std::int64_t kF32TokenTile = 512;  // of the sum over tokens; sgemm copies what it reads
constexpr std::int64_t kBf16TokenTile = 1024;

// f32 results of bf16 products from this size on are made in a packed tile and written past the
// caches: fetching their old contents cost up to half of the product's time.
constexpr std::int64_t kLargeResult = std::int64_t{1} << 18;  // elements: 1 MiB

template <class T>
Matrix<T> row_range(Matrix<T> m, std::int64_t begin, std::int64_t end) {
  const std::int64_t step = m.is_transposed ? 1 : m.stride;
  return {m.data + begin * step, end - begin, m.cols, m.stride, m.is_transposed};
}

template <class T>
Matrix<T> column_range(Matrix<T> m, std::int64_t begin, std::int64_t end) {
  return transposed(row_range(transposed(m), begin, end));
}

template <class T>
void check_layout(const char* name, const Matrix<T>& m) {
  const std::int64_t stored_cols = m.is_transposed ? m.rows : m.cols;
  MOESTRO_CHECK(m.rows >= 0 && m.cols >= 0 && m.stride >= stored_cols,
                "gemm: {} is [{}, {}] with a stride of {}", name, m.rows, m.cols, m.stride);
}

template <class AB, class C>
void check_shapes(const Matrix<const AB>& a, const Matrix<const AB>& b, const Matrix<C>& c,
                  bool accumulate) {
  check_layout("a", a);
  check_layout("b", b);
  check_layout("c", c);
  MOESTRO_CHECK(a.cols == b.rows && a.rows == c.rows && b.cols == c.cols,
                "gemm: [{}, {}] by [{}, {}] into [{}, {}]", a.rows, a.cols, b.rows, b.cols, c.rows,
                c.cols);
  MOESTRO_CHECK(!c.is_transposed, "gemm: c must not be transposed");
  MOESTRO_CHECK((std::is_same_v<C, float>) || !accumulate, "gemm: bf16 output cannot accumulate");
}

template <class T>
void copy_rows(const Matrix<const T>& from, const Matrix<T>& to) {
  for (std::int64_t r = 0; r < from.rows; ++r) {
    std::memcpy(static_cast<void*>(to.data + r * to.stride), from.data + r * from.stride,
                static_cast<std::size_t>(from.cols) * sizeof(T));
  }
}

/// Packed work memory of the calling thread.
template <class T>
Matrix<T> packed(std::int64_t rows, std::int64_t cols, Purpose purpose) {
  return rows_of(scratch<T>(purpose, rows * cols), rows, cols);
}

template <class T>
const std::byte* bytes_of(const T* data) {
  return reinterpret_cast<const std::byte*>(data);
}

template <class AB, class C>
void multiply_native(const Matrix<const AB>& a, const Matrix<const AB>& b, const Matrix<C>& c,
                     bool accumulate) {
  const internal::ProductShape shape{a.rows,
                                     b.cols,
                                     a.cols,
                                     a.stride,
                                     b.stride,
                                     c.stride,
                                     a.is_transposed,
                                     b.is_transposed,
                                     accumulate,
                                     internal::kElementType<AB>,
                                     internal::kElementType<C>};
  internal::multiply(shape, bytes_of(a.data), bytes_of(b.data),
                     reinterpret_cast<std::byte*>(c.data));
}

/// A packed f32 copy of a bf16 matrix in the given buffer, same layout.
Matrix<const float> widened(const Matrix<const bf16>& m, Purpose purpose) {
  const std::int64_t rows = m.is_transposed ? m.cols : m.rows;
  const std::int64_t cols = m.is_transposed ? m.rows : m.cols;
  auto* copy = scratch<float>(purpose, rows * cols);
  for (std::int64_t r = 0; r < rows; ++r) {
    internal::convert(cols, m.data + r * m.stride, copy + r * cols);
  }
  return {copy, m.rows, m.cols, cols, m.is_transposed};
}

/// bf16 on CPUs that lack it: the same product of the same values in f32.
template <class C>
void multiply_widened(const Matrix<const bf16>& a, const Matrix<const bf16>& b, const Matrix<C>& c,
                      bool accumulate) {
  const auto wide_a = widened(a, Purpose::gemm_left);
  const auto wide_b = widened(b, Purpose::gemm_right);
  if constexpr (std::is_same_v<C, float>) {
    multiply_native(wide_a, wide_b, c, accumulate);
  } else {
    auto* sum = scratch<float>(Purpose::gemm_out, c.rows * c.cols);
    multiply_native(wide_a, wide_b, rows_of(sum, c.rows, c.cols), false);
    for (std::int64_t r = 0; r < c.rows; ++r) {
      internal::convert(c.cols, sum + r * c.cols, c.data + r * c.stride);
    }
  }
}

template <class AB, class C>
void multiply_direct(const Matrix<const AB>& a, const Matrix<const AB>& b, const Matrix<C>& c,
                     bool accumulate) {
  if constexpr (std::is_same_v<AB, bf16>) {
    if (!has_fast_bf16()) {
      multiply_widened(a, b, c, accumulate);
      return;
    }
  }
  multiply_native(a, b, c, accumulate);
}

/// The inner sum in tiles, added in order.
template <class AB>
void multiply_deep(const Matrix<const AB>& a, const Matrix<const AB>& b, const Matrix<float>& c,
                   bool accumulate) {
  for (std::int64_t k = 0; k < a.cols; k += kDepthTile) {
    const std::int64_t end = std::min(a.cols, k + kDepthTile);
    multiply_direct(column_range(a, k, end), row_range(b, k, end), c, accumulate || k > 0);
  }
}

template <class T>
Matrix<const T> as_const(const Matrix<T>& m) {
  return {m.data, m.rows, m.cols, m.stride, m.is_transposed};
}

template <class From, class To>
void convert_rows(const Matrix<From>& from, const Matrix<To>& to) {
  for (std::int64_t r = 0; r < from.rows; ++r) {
    internal::convert(from.cols, from.data + r * from.stride, to.data + r * to.stride);
  }
}

void stream_rows(const Matrix<float>& from, const Matrix<float>& to) {
  for (std::int64_t r = 0; r < from.rows; ++r) {
    internal::stream(from.cols, from.data + r * from.stride, to.data + r * to.stride);
  }
  internal::finish_streaming();
}

void add_rows(const Matrix<float>& from, const Matrix<float>& to) {
  for (std::int64_t r = 0; r < from.rows; ++r) {
    internal::add(from.cols, from.data + r * from.stride, to.data + r * to.stride);
  }
}

/// Whether tiles of c are made in packed memory first.
template <class AB, class C>
bool is_streamed(const Matrix<C>& c, bool accumulate) {
  return std::is_same_v<AB, bf16> && std::is_same_v<C, float> && !accumulate &&
         c.rows * c.cols >= kLargeResult;
}

template <class AB>
void multiply_tile(const Matrix<const AB>& a, const Matrix<const AB>& b, const Matrix<float>& c,
                   bool accumulate, bool streams) {
  const auto out = streams ? packed<float>(c.rows, c.cols, Purpose::gemm_sum) : c;
  multiply_deep(a, b, out, accumulate);
  if (streams) stream_rows(out, c);
}

/// A bf16 tile that is not contiguous goes by way of packed memory: writes at a stride of a power
/// of two evict each other, and cost more than the copy.
void multiply_tile(const Matrix<const bf16>& a, const Matrix<const bf16>& b, const Matrix<bf16>& c,
                   bool /*accumulate*/, bool /*streams*/) {
  if (a.cols > kDepthTile) {
    const auto sum = packed<float>(c.rows, c.cols, Purpose::gemm_sum);
    multiply_deep(a, b, sum, false);
    convert_rows(sum, c);
  } else if (c.rows > 1 && c.stride > c.cols) {
    const auto out = packed<bf16>(c.rows, c.cols, Purpose::gemm_sum);
    multiply_direct(a, b, out, false);
    copy_rows(as_const(out), c);
  } else {
    multiply_direct(a, b, c, false);
  }
}

template <class C>
void zero(const Matrix<C>& c) {
  for (std::int64_t r = 0; r < c.rows; ++r) {
    std::memset(static_cast<void*>(c.data + r * c.stride), 0,
                static_cast<std::size_t>(c.cols) * sizeof(C));
  }
}

/// Deals with empty products; true if nothing is left to multiply.
template <class C>
bool is_done_without_product(std::int64_t k, const Matrix<C>& c, bool accumulate) {
  if (c.rows > 0 && c.cols > 0 && k > 0) return false;
  if (k == 0 && !accumulate) zero(c);
  return true;
}

std::int64_t pieces(std::int64_t size, std::int64_t piece) {
  return (size + piece - 1) / piece;
}

/// How the rows of a result are shared out: `count` pieces of `height` rows, the last one with
/// what is left.
struct RowTiles {
  std::int64_t height;
  std::int64_t count;
};

RowTiles tiles_of(std::int64_t rows, std::int64_t height) {
  return {height, pieces(rows, height)};
}

/// Calls body(row_begin, row_end, column_begin, column_end) for the tiles of a [rows, cols] result,
/// in parallel; columns are cut where there are more than `widest`. Neighbours in order share their
/// columns, so a thread finds b in its cache.
template <class Body>
void for_tiles(std::int64_t rows, std::int64_t cols, RowTiles tiles, std::int64_t widest,
               const Body& body) {
  const std::int64_t width = cols <= widest ? cols : kColumnTile;
  parallel_for(tiles.count * pieces(cols, width), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t tile = i % tiles.count;
      const std::int64_t r = tile * tiles.height;
      const std::int64_t c = i / tiles.count * width;
      body(r, tile + 1 == tiles.count ? rows : r + tiles.height, c, std::min(cols, c + width));
    }
  });
}

/// How gemm_rows cuts M rows: whole granules. A last tile that would be short shares a piece with
/// the one before it.
RowTiles granular_tiles_of(std::int64_t rows) {
  if (rows % kRowTile == 0) return tiles_of(rows, kRowTile);
  const std::int64_t wanted = pieces(rows, pieces(rows, kLargestRowTile));
  RowTiles tiles = tiles_of(rows, pieces(wanted, kRowGranule) * kRowGranule);
  if (rows % tiles.height != 0) tiles.count = std::max<std::int64_t>(1, tiles.count - 1);
  return tiles;
}

/// A packed copy of m, filled up with zero rows to `rows`.
template <class T>
Matrix<const T> padded(const Matrix<const T>& m, std::int64_t rows, Purpose purpose) {
  const auto copy = packed<T>(rows, m.cols, purpose);
  copy_rows(m, row_range(copy, 0, m.rows));
  zero(row_range(copy, m.rows, rows));
  return as_const(copy);
}

/// A tile of fewer rows than its height: padded with zero rows, so that no kernel is compiled for
/// their number and their bits are those of a full tile.
template <class AB, class C>
void multiply_padded(const Matrix<const AB>& a, const Matrix<const AB>& b, const Matrix<C>& c,
                     std::int64_t height, bool accumulate) {
  const auto out = packed<C>(height, c.cols, Purpose::tail_out);
  const auto out_rows = row_range(out, 0, c.rows);
  if (accumulate) copy_rows(as_const(c), out_rows);
  multiply_tile(padded(a, height, Purpose::tail_left), b, out, accumulate, false);
  copy_rows(as_const(out_rows), c);
}

/// Rows in tiles of one height. Where the last tile is short, it starts early and makes some rows a
/// second time (in a fixed order, the same rows of the same product); rows that are added to what
/// is there cannot be made twice, and fewer rows than one tile leave no room: these are padded.
template <class AB, class C>
void multiply_rows(const Matrix<const AB>& a, const Matrix<const AB>& b, const Matrix<C>& c,
                   std::int64_t height, bool accumulate, bool streams) {
  for (std::int64_t r = 0; r < c.rows; r += height) {
    const bool is_short = r + height > c.rows;
    const std::int64_t begin =
        is_short && !accumulate ? std::max<std::int64_t>(0, c.rows - height) : r;
    const std::int64_t end = std::min(c.rows, begin + height);
    if (end - begin == height) {
      multiply_tile(row_range(a, begin, end), b, row_range(c, begin, end), accumulate, streams);
    } else {
      multiply_padded(row_range(a, begin, end), b, row_range(c, begin, end), height, accumulate);
    }
  }
}

/// One tile of c: sgemm compiles nothing per length.
void sum_over_tokens(const Matrix<const float>& a, const Matrix<const float>& b,
                     const Matrix<float>& c, bool accumulate) {
  for (std::int64_t t = 0; t < a.rows; t += kF32TokenTile) {
    const std::int64_t end = std::min(a.rows, t + kF32TokenTile);
    multiply_direct(transposed(row_range(a, t, end)), row_range(b, t, end), c, accumulate || t > 0);
  }
}

/// One tile of c. Kernels are compiled per length of the sum, so that a last part that is no whole
/// number of granules is filled up with zeros, which add nothing: at most 32 kernels per shape.
/// Gradients are not read before the optimizer comes, so that new ones are streamed.
void sum_over_tokens(const Matrix<const bf16>& a, const Matrix<const bf16>& b,
                     const Matrix<float>& c, bool accumulate) {
  const auto sum = packed<float>(c.rows, c.cols, Purpose::gemm_sum);
  for (std::int64_t t = 0; t < a.rows; t += kBf16TokenTile) {
    const std::int64_t end = std::min(a.rows, t + kBf16TokenTile);
    const std::int64_t whole = pieces(end - t, kTokenGranule) * kTokenGranule;
    auto left = row_range(a, t, end);
    auto right = row_range(b, t, end);
    if (whole != end - t) {
      left = padded(left, whole, Purpose::tail_left);
      right = padded(right, whole, Purpose::tail_right);
    }
    multiply_direct(transposed(left), right, sum, t > 0);
  }
  if (accumulate) {
    add_rows(sum, c);
  } else {
    stream_rows(sum, c);
  }
}

/// Results that are made in packed tiles gain nothing from whole rows.
std::int64_t widest_row(bool streams) {
  return streams ? kColumnTile : kWidestRow;
}

}  // namespace

template <class AB, class C>
void gemm(Matrix<const AB> a, Matrix<const AB> b, Matrix<C> c, bool accumulate) {
  check_shapes(a, b, c, accumulate);
  if (is_done_without_product(a.cols, c, accumulate)) return;
  const bool streams = is_streamed<AB>(c, accumulate);
  for_tiles(c.rows, c.cols, tiles_of(c.rows, kRowTile), widest_row(streams),
            [&](std::int64_t r0, std::int64_t r1, std::int64_t c0, std::int64_t c1) {
              multiply_tile(row_range(a, r0, r1), column_range(b, c0, c1),
                            column_range(row_range(c, r0, r1), c0, c1), accumulate, streams);
            });
}

template <class AB, class C>
void gemm_rows(Matrix<const AB> a, Matrix<const AB> b, Matrix<C> c, bool accumulate) {
  check_shapes(a, b, c, accumulate);
  MOESTRO_CHECK(!a.is_transposed, "gemm_rows: a must not be transposed");
  if (is_done_without_product(a.cols, c, accumulate)) return;
  const bool streams = is_streamed<AB>(c, accumulate);
  const RowTiles tiles = granular_tiles_of(c.rows);
  for_tiles(c.rows, c.cols, tiles, widest_row(streams),
            [&](std::int64_t r0, std::int64_t r1, std::int64_t c0, std::int64_t c1) {
              multiply_rows(row_range(a, r0, r1), column_range(b, c0, c1),
                            column_range(row_range(c, r0, r1), c0, c1), tiles.height, accumulate,
                            streams);
            });
}

template <class AB>
void gemm_weight_gradient(Matrix<const AB> a, Matrix<const AB> b, Matrix<float> c,
                          bool accumulate) {
  check_shapes(transposed(a), b, c, accumulate);
  MOESTRO_CHECK(!a.is_transposed && !b.is_transposed,
                "gemm_weight_gradient: a and b must hold one token per row");
  if (is_done_without_product(a.rows, c, accumulate)) return;
  for_tiles(c.rows, c.cols, tiles_of(c.rows, kRowTile), kColumnTile,
            [&](std::int64_t r0, std::int64_t r1, std::int64_t c0, std::int64_t c1) {
              sum_over_tokens(column_range(a, r0, r1), column_range(b, c0, c1),
                              column_range(row_range(c, r0, r1), c0, c1), accumulate);
            });
}

template void gemm(Matrix<const float>, Matrix<const float>, Matrix<float>, bool);
template void gemm(Matrix<const bf16>, Matrix<const bf16>, Matrix<float>, bool);
template void gemm(Matrix<const bf16>, Matrix<const bf16>, Matrix<bf16>, bool);
template void gemm_rows(Matrix<const float>, Matrix<const float>, Matrix<float>, bool);
template void gemm_rows(Matrix<const bf16>, Matrix<const bf16>, Matrix<float>, bool);
template void gemm_rows(Matrix<const bf16>, Matrix<const bf16>, Matrix<bf16>, bool);
template void gemm_weight_gradient(Matrix<const float>, Matrix<const float>, Matrix<float>, bool);
template void gemm_weight_gradient(Matrix<const bf16>, Matrix<const bf16>, Matrix<float>, bool);

}  // namespace moestro::kernels
