#pragma once
// One matrix product on the calling thread alone: the seam between our tiling (gemm.cpp) and the
// library that multiplies (gemm_onednn.cpp, or no_gemm.cpp in builds without it).

#include <cstddef>
#include <cstdint>

#include "moestro/kernels/bf16.h"
#include "moestro/kernels/gemm.h"

namespace moestro::kernels::internal {

enum class ElementType : std::uint8_t { f32, bf16 };

template <class T>
inline constexpr ElementType kElementType = ElementType::f32;
template <>
inline constexpr ElementType kElementType<bf16> = ElementType::bf16;

/// Shape, layout and types of c (+)= a b; equal descriptions share one compiled kernel.
struct ProductShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t a_stride = 0;
  std::int64_t b_stride = 0;
  std::int64_t c_stride = 0;
  bool a_transposed = false;
  bool b_transposed = false;
  bool b_packed = false;  // b was made by pack_right(); b_stride and b_transposed mean nothing
  bool accumulate = false;
  ElementType inputs = ElementType::f32;
  ElementType output = ElementType::f32;

  bool operator==(const ProductShape&) const = default;
};

/// Multiplies on the calling thread. All sizes are at least 1. Errors: internal, if the library
/// refuses; input, naming the CMake option, if this build has none.
void multiply(const ProductShape& shape, const std::byte* a, const std::byte* b, std::byte* c);

/// Bytes of a packed right side [k, n].
[[nodiscard]] std::size_t packed_bytes(std::int64_t k, std::int64_t n, ElementType type);

/// Copies the right side [k, n] of products, b filled up with zero rows, into the layout they run
/// fastest with, whatever their m, provided that their a and c have no gaps between rows. Uses
/// num_threads() outside parallel_for. Errors: as multiply().
template <class T>
void pack_right(const Matrix<const T>& b, std::int64_t k, std::byte* packed);

}  // namespace moestro::kernels::internal
