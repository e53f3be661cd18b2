#pragma once
// Parts of matrices, copies between them, and packed work memory.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "moestro/core/error.h"
#include "moestro/kernels/gemm.h"
#include "moestro/kernels/internal/convert.h"
#include "moestro/kernels/internal/scratch.h"

namespace moestro::kernels::internal {

template <class T>
[[nodiscard]] Matrix<T> row_range(Matrix<T> m, std::int64_t begin, std::int64_t end) {
  if (m.index != nullptr && !m.is_transposed) {
    return {m.data, end - begin, m.cols, m.stride, false, m.index + begin};
  }
  const std::int64_t step = m.is_transposed ? 1 : m.stride;
  return {m.data + begin * step, end - begin, m.cols, m.stride, m.is_transposed, m.index};
}

template <class T>
[[nodiscard]] Matrix<T> column_range(Matrix<T> m, std::int64_t begin, std::int64_t end) {
  return transposed(row_range(transposed(m), begin, end));
}

template <class T>
[[nodiscard]] Matrix<const T> as_const(const Matrix<T>& m) {
  return {m.data, m.rows, m.cols, m.stride, m.is_transposed, m.index};
}

/// Row r of a matrix that is not transposed.
template <class T>
[[nodiscard, gnu::always_inline]] inline T* row_of(const Matrix<T>& m, std::int64_t r) {
  return m.data + (m.index == nullptr ? r : m.index[r]) * m.stride;
}

/// Whether rows follow each other without a gap.
template <class T>
[[nodiscard]] bool is_dense(const Matrix<T>& m) {
  return !m.is_transposed && m.index == nullptr && (m.stride == m.cols || m.rows <= 1);
}

/// Work memory of the calling thread as a dense matrix.
template <class T>
[[nodiscard]] Matrix<T> work_matrix(std::int64_t rows, std::int64_t cols, Purpose purpose) {
  return rows_of(scratch<T>(purpose, rows * cols), rows, cols);
}

/// to = from, rounded where `to` is narrower. Neither is transposed.
template <class From, class To>
void copy_rows(const Matrix<From>& from, const Matrix<To>& to) {
  for (std::int64_t r = 0; r < from.rows; ++r) {
    const From* x = row_of(from, r);
    To* y = row_of(to, r);
    if constexpr (std::is_same_v<std::remove_const_t<From>, To>) {
      std::memcpy(static_cast<void*>(y), x, static_cast<std::size_t>(from.cols) * sizeof(To));
    } else {
      convert(from.cols, x, y);
    }
  }
}

template <class T>
void zero(const Matrix<T>& m) {
  for (std::int64_t r = 0; r < m.rows; ++r) {
    std::memset(static_cast<void*>(m.data + r * m.stride), 0,
                static_cast<std::size_t>(m.cols) * sizeof(T));
  }
}

/// to = from, past the caches.
inline void stream_rows(const Matrix<float>& from, const Matrix<float>& to) {
  for (std::int64_t r = 0; r < from.rows; ++r) {
    stream(from.cols, from.data + r * from.stride, to.data + r * to.stride);
  }
  finish_streaming();
}

/// to += from.
inline void add_rows(const Matrix<float>& from, const Matrix<float>& to) {
  for (std::int64_t r = 0; r < from.rows; ++r) {
    add(from.cols, from.data + r * from.stride, to.data + r * to.stride);
  }
}

/// A dense copy of m, filled up with zero rows to `rows`.
template <class T>
[[nodiscard]] Matrix<const T> padded(const Matrix<const T>& m, std::int64_t rows, Purpose purpose) {
  const auto copy = work_matrix<T>(rows, m.cols, purpose);
  copy_rows(m, row_range(copy, 0, m.rows));
  zero(row_range(copy, m.rows, rows));
  return as_const(copy);
}

/// A dense f32 copy, same layout.
[[nodiscard]] inline Matrix<const float> widened(const Matrix<const bf16>& m, Purpose purpose) {
  if (m.is_transposed) return transposed(widened(transposed(m), purpose));
  const auto copy = work_matrix<float>(m.rows, m.cols, purpose);
  copy_rows(m, copy);
  return as_const(copy);
}

/// bf16 products on CPUs that lack them: the same product of the same values in f32, made by
/// multiply(a, c, accumulate).
template <class C, class Multiply>
void multiply_widened(const Matrix<const bf16>& a, const Matrix<C>& c, bool accumulate,
                      const Multiply& multiply) {
  const auto wide = widened(a, Purpose::gemm_left);
  if constexpr (std::is_same_v<C, float>) {
    multiply(wide, c, accumulate);
  } else {
    const auto sum = work_matrix<float>(c.rows, c.cols, Purpose::gemm_wide_out);
    multiply(wide, sum, false);
    copy_rows(sum, c);
  }
}

/// Errors: internal, unless c (+)= a b makes sense.
template <class AB, class C>
void check_shapes(const Matrix<const AB>& a, const Matrix<const AB>& b, const Matrix<C>& c,
                  bool accumulate, bool may_have_index = false) {
  const auto check_layout = [](const char* name, const auto& m) {
    const std::int64_t stored_cols = m.is_transposed ? m.rows : m.cols;
    MOESTRO_CHECK(m.rows >= 0 && m.cols >= 0 && m.stride >= stored_cols,
                  "gemm: {} is [{}, {}] with a stride of {}", name, m.rows, m.cols, m.stride);
  };
  check_layout("a", a);
  check_layout("b", b);
  check_layout("c", c);
  MOESTRO_CHECK(a.cols == b.rows && a.rows == c.rows && b.cols == c.cols,
                "gemm: [{}, {}] by [{}, {}] into [{}, {}]", a.rows, a.cols, b.rows, b.cols, c.rows,
                c.cols);
  MOESTRO_CHECK(!c.is_transposed, "gemm: c must not be transposed");
  const bool has_index = a.index != nullptr || b.index != nullptr;
  MOESTRO_CHECK((may_have_index || !has_index) && c.index == nullptr,
                "gemm: only weight gradients are made of rows through an index");
  MOESTRO_CHECK((std::is_same_v<C, float>) || !accumulate, "gemm: bf16 output cannot accumulate");
}

/// Deals with empty products; true if nothing is left to multiply.
template <class C>
[[nodiscard]] bool is_done_without_product(std::int64_t k, const Matrix<C>& c, bool accumulate) {
  if (c.rows > 0 && c.cols > 0 && k > 0) return false;
  if (k == 0 && !accumulate) zero(c);
  return true;
}

}  // namespace moestro::kernels::internal
