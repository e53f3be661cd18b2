#pragma once
// Work memory that stays with its thread from call to call: fresh pages cost more than the
// arithmetic done on them. One buffer per purpose, so that nested users cannot collide.

#include <cstddef>
#include <cstdint>

namespace moestro::kernels::internal {

enum class Purpose {
  gemm_left,
  gemm_right,
  gemm_sum,
  gemm_dense_left,
  gemm_wide_out,
  packed_right,
  deep_sum,
  tail_left,
  tail_right,
  tail_out,
  scores,
  probabilities,
  score_gradients,
  score_gradients_rounded,
  head_queries,
  head_rows,
  head_out,
  head_out_gradients,
  head_keys,
  head_values,
  head_key_gradients,
  head_value_gradients,
  right_side,
  panel_right_side,
  row_statistics,
  partial_sums,
  count,
};

/// At least `bytes` of uninitialised memory of the calling thread, aligned to 64; valid until the
/// thread's next call for the same purpose. Kept until the thread ends, never larger than the
/// largest request. Errors: std::bad_alloc.
[[nodiscard]] std::byte* scratch_bytes(Purpose purpose, std::size_t bytes);

/// Bytes that the calling thread keeps, of all purposes: tests hold the kernels to their bounds.
[[nodiscard]] std::size_t scratch_kept();

template <class T>
[[nodiscard]] T* scratch(Purpose purpose, std::int64_t count) {
  return reinterpret_cast<T*>(scratch_bytes(purpose, static_cast<std::size_t>(count) * sizeof(T)));
}

}  // namespace moestro::kernels::internal
