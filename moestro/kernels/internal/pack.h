#pragma once
// Copies of matrices in the order in which product kernels read them fastest.

#include <cstdint>

#include "moestro/kernels/bf16.h"
#include "moestro/kernels/gemm.h"

namespace moestro::kernels::internal {

/// Columns of a panel.
inline constexpr std::int64_t kPanelColumns = 64;

/// Rows of b that a panel holds: those of b and zero rows up to whole blocks of 64 bytes a column.
template <class T>
[[nodiscard]] constexpr std::int64_t panel_rows(std::int64_t k) {
  constexpr std::int64_t kBlock = 64 / static_cast<std::int64_t>(sizeof(T));
  return (k + kBlock - 1) / kBlock * kBlock;
}

/// Copies b, filled up with zero rows to [k, N], into panels of 64 columns, one after the other,
/// each [panel_rows(k) / P, 64, P] with P = 4 / sizeof(T) rows side by side; missing rows and
/// columns are zeros. This is oneDNN's layout for AVX-512 and AMX (BA16a64b, BA16a64b2a).
template <class T>
void pack_panels(const Matrix<const T>& b, std::int64_t k, T* out);

/// out [M, cols] = the transpose of rows a [T, M], with zeros for columns T <= j < cols.
/// cols is a multiple of 64 / sizeof(T).
template <class T>
void transpose_rows(const Matrix<const T>& a, std::int64_t cols, T* out);

}  // namespace moestro::kernels::internal
