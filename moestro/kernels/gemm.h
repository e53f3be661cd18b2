#pragma once
// Matrix products on oneDNN: f32, and bf16 with f32 accumulation. Primitives are cached per thread
// and shape; row counts that change every step (tokens of an expert) are cut into tiles of a few
// dozen heights, so that the cache stays small and the bits of a row do not depend on how many rows
// share the call. Inputs are pointers to const:
//
//   gemm(rows_of(x, tokens, in), transposed(rows_of(w, out, in)), rows_of(y, tokens, out));

#include <cstdint>

#include "moestro/kernels/bf16.h"

namespace moestro::kernels {

/// A view of a row-major matrix; `is_transposed` swaps the meaning of rows and columns:
/// element (i, j) is data[i * stride + j], or data[j * stride + i] when transposed. Where there is
/// an index, stored row r is row index[r] of data, which must have it: tokens in the order of their
/// experts. Only gemm_weight_gradient() takes such views.
template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;  // elements between the starts of consecutive stored rows
  bool is_transposed = false;
  const std::int64_t* index = nullptr;
};

template <class T>
[[nodiscard]] Matrix<T> rows_of(T* data, std::int64_t rows, std::int64_t cols) {
  return {data, rows, cols, cols, false};
}
template <class T>
[[nodiscard]] Matrix<T> rows_of(T* data, std::int64_t rows, std::int64_t cols,
                                std::int64_t stride) {
  return {data, rows, cols, stride, false};
}
template <class T>
[[nodiscard]] Matrix<T> transposed(Matrix<T> m) {
  return {m.data, m.cols, m.rows, m.stride, !m.is_transposed, m.index};
}

/// Whether this build has oneDNN; without it every product throws, naming the CMake option.
[[nodiscard]] bool has_gemm();
/// Whether this CPU multiplies bf16 at full speed (AVX-512 BF16 or AMX), probed once.
[[nodiscard]] bool has_fast_bf16();
/// Whether it does so on AMX tiles, several times as fast as on vectors.
[[nodiscard]] bool has_amx_bf16();
/// Name of the instruction set oneDNN uses here, e.g. "avx512_core_amx".
[[nodiscard]] const char* gemm_instruction_set();

/// c (+)= a b. Types (a, b -> c): float,float->float; bf16,bf16->float; bf16,bf16->bf16 (no
/// accumulate). Runs on one thread inside parallel_for, on num_threads() outside.
/// Shapes: a [M, K], b [K, N], c [M, N] not transposed. M, N or K of 0 is allowed (K 0 zeroes c
/// unless accumulating). Errors: internal, if shapes disagree.
template <class AB, class C>
void gemm(Matrix<const AB> a, Matrix<const AB> b, Matrix<C> c, bool accumulate = false);

/// The same for many rows, whose number M changes from call to call: b is first copied into the
/// kernels' own layout, and rows are shared out in pieces of about 256, at most 320, whose heights
/// are multiples of 16 (in f32 of 8) and differ by as much at most, so that at most 20 (40) kernels
/// are compiled per (N, K). Each row's bits are independent of the number of threads and, on
/// AVX-512, of M: c's old value, then the products of every 1024 columns of a, added in order. a
/// must not be transposed. Cost: up to 15 (7) rows are computed for nothing; work memory of 8 MiB
/// for b and a few MiB per thread, whatever the shape. Deep bf16 results (512 columns of b take
/// more than 8 MiB, or up to 1024 if b has no more) keep 8 MiB of sums besides.
template <class AB, class C>
void gemm_rows(Matrix<const AB> a, Matrix<const AB> b, Matrix<C> c, bool accumulate = false);

/// c (+)= a^T b where a [T, M] and b [T, N] hold one row per token: the weight-gradient product.
/// The token sum is cut into tiles that T decides, added in order, so bits depend on T alone. Rows
/// of a and b may go through an index.
/// Shapes: c [M, N] f32. Cost: work memory of 8 MiB for b, or for 512 columns of 8192 tokens if
/// that is more (16 MiB in f32), and of a few MiB per thread.
template <class AB>
void gemm_weight_gradient(Matrix<const AB> a, Matrix<const AB> b, Matrix<float> c, bool accumulate);

}  // namespace moestro::kernels
