#pragma once
// From tensors to the plain pointers that kernels take.

#include <ATen/core/Tensor.h>

#include "moestro/core/error.h"
#include "moestro/kernels/bf16.h"
#include "moestro/layers/context.h"

namespace moestro::layers {

template <class T>
[[nodiscard]] constexpr at::ScalarType scalar_type();
template <>
constexpr at::ScalarType scalar_type<float>() {
  return at::kFloat;
}
template <>
constexpr at::ScalarType scalar_type<kernels::bf16>() {
  return at::kBFloat16;
}
template <>
constexpr at::ScalarType scalar_type<std::int64_t>() {
  return at::kLong;
}

/// The tensor's memory as T. Errors: internal, if it is of another type or not contiguous.
template <class T>
[[nodiscard]] T* data(const at::Tensor& tensor) {
  MOESTRO_CHECK(tensor.scalar_type() == scalar_type<T>() && tensor.is_contiguous(),
                "a kernel needs a contiguous tensor of its own type");
  return static_cast<T*>(tensor.data_ptr());
}

/// Calls body(T{}) with T the C++ type of the compute dtype.
template <class Body>
decltype(auto) with_type(at::ScalarType dtype, const Body& body) {
  MOESTRO_CHECK(dtype == at::kFloat || dtype == at::kBFloat16, "compute dtype is f32 or bf16");
  return dtype == at::kFloat ? body(float{}) : body(kernels::bf16{});
}

/// Whether this op runs kernels/ (true) or its ATen formula.
[[nodiscard]] inline bool uses_kernels(const Context& context, const at::Tensor& input) {
  return input.is_cpu() && !context.use_aten;
}

}  // namespace moestro::layers
