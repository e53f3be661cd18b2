// Products of operands as they lie in memory; gemm_packed.cpp has those that copy b first.

#include "moestro/kernels/gemm.h"

#include <algorithm>

#include "moestro/kernels/internal/multiply.h"
#include "moestro/kernels/internal/tiles.h"
#include "moestro/kernels/internal/views.h"
#include "moestro/kernels/parallel.h"

namespace moestro::kernels {
namespace {

using namespace internal;  // NOLINT(google-build-using-namespace): the views are this file's words

template <class AB, class C>
void multiply_native(const Matrix<const AB>& a, const Matrix<const AB>& b, const Matrix<C>& c,
                     bool accumulate) {
  const ProductShape shape{.m = a.rows,
                           .n = b.cols,
                           .k = a.cols,
                           .a_stride = a.stride,
                           .b_stride = b.stride,
                           .c_stride = c.stride,
                           .a_transposed = a.is_transposed,
                           .b_transposed = b.is_transposed,
                           .accumulate = accumulate,
                           .inputs = kElementType<AB>,
                           .output = kElementType<C>};
  multiply(shape, reinterpret_cast<const std::byte*>(a.data),
           reinterpret_cast<const std::byte*>(b.data), reinterpret_cast<std::byte*>(c.data));
}

void multiply_tile(const Matrix<const float>& a, const Matrix<const float>& b,
                   const Matrix<float>& c, bool accumulate) {
  multiply_native(a, b, c, accumulate);
}

template <class C>
void multiply_tile(const Matrix<const bf16>& a, const Matrix<const bf16>& b, const Matrix<C>& c,
                   bool accumulate) {
  if (has_fast_bf16()) {
    multiply_native(a, b, c, accumulate);
    return;
  }
  const auto wide_b = widened(b, Purpose::gemm_right);
  multiply_widened(a, c, accumulate, [&](const auto& wide_a, const auto& out, bool adds) {
    multiply_native(wide_a, wide_b, out, adds);
  });
}

}  // namespace

template <class AB, class C>
void gemm(Matrix<const AB> a, Matrix<const AB> b, Matrix<C> c, bool accumulate) {
  check_shapes(a, b, c, accumulate);
  if (is_done_without_product(a.cols, c, accumulate)) return;
  const std::int64_t row_tiles = pieces(c.rows, kRowTile);
  const std::int64_t width = column_tile(c.cols);
  // Neighbours in order share their columns, so a thread finds b in its cache.
  parallel_for(row_tiles * pieces(c.cols, width), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t r0 = i % row_tiles * kRowTile, r1 = std::min(c.rows, r0 + kRowTile);
      const std::int64_t c0 = i / row_tiles * width, c1 = std::min(c.cols, c0 + width);
      multiply_tile(row_range(a, r0, r1), column_range(b, c0, c1),
                    column_range(row_range(c, r0, r1), c0, c1), accumulate);
    }
  });
}

template void gemm(Matrix<const float>, Matrix<const float>, Matrix<float>, bool);
template void gemm(Matrix<const bf16>, Matrix<const bf16>, Matrix<float>, bool);
template void gemm(Matrix<const bf16>, Matrix<const bf16>, Matrix<bf16>, bool);

}  // namespace moestro::kernels
