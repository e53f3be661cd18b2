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
// every thread. They are part of the result's bits: no thread count may change them.
constexpr std::int64_t kRowTile = 256;
constexpr std::int64_t kRowGranule = 32;  // rows of gemm_rows: what shorter tiles are cut to
constexpr std::int64_t kColumnTile = 1024;
constexpr std::int64_t kTokenTile = 2048;   // of a weight gradient's sum: one pass over c per tile
constexpr std::int64_t kTokenGranule = 32;  // tokens of one AMX tile: what shorter sums are cut to

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
void multiply_tile(const Matrix<const AB>& a, const Matrix<const AB>& b, const Matrix<C>& c,
                   bool accumulate) {
  if constexpr (std::is_same_v<AB, bf16>) {
    if (!has_fast_bf16()) {
      multiply_widened(a, b, c, accumulate);
      return;
    }
  }
  multiply_native(a, b, c, accumulate);
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

std::int64_t tiles(std::int64_t size, std::int64_t tile) {
  return (size + tile - 1) / tile;
}

/// Calls body(row_begin, row_end, column_begin, column_end) for the tiles of a [rows, cols] result,
/// in parallel; neighbours in order share their columns, so a thread finds b in its cache.
template <class Body>
void for_tiles(std::int64_t rows, std::int64_t cols, std::int64_t row_tile, const Body& body) {
  const std::int64_t row_tiles = tiles(rows, row_tile);
  const std::int64_t column_tiles = tiles(cols, kColumnTile);
  parallel_for(row_tiles * column_tiles, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t r = i % row_tiles * row_tile;
      const std::int64_t c = i / row_tiles * kColumnTile;
      body(r, std::min(rows, r + row_tile), c, std::min(cols, c + kColumnTile));
    }
  });
}

template <class T>
void copy_rows(const Matrix<const T>& from, const Matrix<T>& to) {
  for (std::int64_t r = 0; r < from.rows; ++r) {
    std::memcpy(static_cast<void*>(to.data + r * to.stride), from.data + r * from.stride,
                static_cast<std::size_t>(from.cols) * sizeof(T));
  }
}

/// A packed copy of rows [begin, m.rows), filled up with zero rows to `rows`.
template <class T>
Matrix<const T> padded_rows(const Matrix<const T>& m, std::int64_t begin, std::int64_t rows,
                            Purpose purpose) {
  const auto copy = rows_of(scratch<T>(purpose, rows * m.cols), rows, m.cols);
  copy_rows(row_range(m, begin, m.rows), copy);
  zero(row_range(copy, m.rows - begin, rows));
  return rows_of<const T>(copy.data, rows, m.cols);
}

/// The last rows of a tile, fewer than kRowGranule: padded with zero rows, so that no kernel is
/// compiled for their number and their bits are those of a full granule (a product with one row
/// takes another path through oneDNN).
template <class AB, class C>
void multiply_last_rows(const Matrix<const AB>& a, const Matrix<const AB>& b, const Matrix<C>& c,
                        bool accumulate) {
  const auto padded = padded_rows(a, 0, kRowGranule, Purpose::tail_left);
  const auto out =
      rows_of(scratch<C>(Purpose::tail_out, kRowGranule * c.cols), kRowGranule, c.cols);
  if (accumulate) copy_rows(Matrix<const C>{c.data, c.rows, c.cols, c.stride, false}, out);
  multiply_tile(padded, b, out, accumulate);
  copy_rows(Matrix<const C>{out.data, c.rows, c.cols, out.stride, false}, c);
}

template <class AB, class C>
void multiply_rows(const Matrix<const AB>& a, const Matrix<const AB>& b, const Matrix<C>& c,
                   bool accumulate) {
  const std::int64_t whole = a.rows / kRowGranule * kRowGranule;
  if (whole > 0) {
    multiply_tile(row_range(a, 0, whole), b, row_range(c, 0, whole), accumulate);
  }
  if (whole < a.rows) {
    multiply_last_rows(row_range(a, whole, a.rows), b, row_range(c, whole, a.rows), accumulate);
  }
}

/// One tile of c: the token sum in f32 needs no cutting, sgemm compiles nothing per length.
void sum_over_tokens(const Matrix<const float>& a, const Matrix<const float>& b,
                     const Matrix<float>& c, bool accumulate) {
  multiply_tile(transposed(a), b, c, accumulate);
}

/// One tile of c: kernels are compiled per length, so lengths are whole granules and the rest is
/// padded: at most 64 kernels per shape, whatever the number of tokens.
void sum_over_tokens(const Matrix<const bf16>& a, const Matrix<const bf16>& b,
                     const Matrix<float>& c, bool accumulate) {
  const std::int64_t whole = a.rows / kTokenGranule * kTokenGranule;
  for (std::int64_t t = 0; t < whole; t += kTokenTile) {
    const std::int64_t end = std::min(whole, t + kTokenTile);
    multiply_tile(transposed(row_range(a, t, end)), row_range(b, t, end), c, accumulate);
    accumulate = true;
  }
  if (whole == a.rows) return;
  const auto a_tail = padded_rows(a, whole, kTokenGranule, Purpose::tail_left);
  const auto b_tail = padded_rows(b, whole, kTokenGranule, Purpose::tail_right);
  multiply_tile(transposed(a_tail), b_tail, c, accumulate);
}

}  // namespace

template <class AB, class C>
void gemm(Matrix<const AB> a, Matrix<const AB> b, Matrix<C> c, bool accumulate) {
  check_shapes(a, b, c, accumulate);
  if (is_done_without_product(a.cols, c, accumulate)) return;
  for_tiles(c.rows, c.cols, kRowTile,
            [&](std::int64_t r0, std::int64_t r1, std::int64_t c0, std::int64_t c1) {
              multiply_tile(row_range(a, r0, r1), column_range(b, c0, c1),
                            column_range(row_range(c, r0, r1), c0, c1), accumulate);
            });
}

template <class AB, class C>
void gemm_rows(Matrix<const AB> a, Matrix<const AB> b, Matrix<C> c, bool accumulate) {
  check_shapes(a, b, c, accumulate);
  MOESTRO_CHECK(!a.is_transposed, "gemm_rows: a must not be transposed");
  if (is_done_without_product(a.cols, c, accumulate)) return;
  for_tiles(c.rows, c.cols, kRowTile,
            [&](std::int64_t r0, std::int64_t r1, std::int64_t c0, std::int64_t c1) {
              multiply_rows(row_range(a, r0, r1), column_range(b, c0, c1),
                            column_range(row_range(c, r0, r1), c0, c1), accumulate);
            });
}

template <class AB>
void gemm_weight_gradient(Matrix<const AB> a, Matrix<const AB> b, Matrix<float> c,
                          bool accumulate) {
  check_shapes(transposed(a), b, c, accumulate);
  MOESTRO_CHECK(!a.is_transposed && !b.is_transposed,
                "gemm_weight_gradient: a and b must hold one token per row");
  if (is_done_without_product(a.rows, c, accumulate)) return;
  for_tiles(c.rows, c.cols, kRowTile,
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
