#pragma once
// Element types of tensors on disk, and their conversion to and from what we compute with.
// bfloat16 is the upper half of a float; all files are little-endian.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace moestro::checkpoint {

/// Every element type of the safetensors format, in its order: narrow types first.
enum class Dtype {
  boolean,
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64,
};

/// As safetensors files spell it ("F32", "BF16").
[[nodiscard]] const char* to_string(Dtype dtype);
/// The type that files spell so, if there is one.
[[nodiscard]] std::optional<Dtype> dtype_from_string(std::string_view name);
/// Bits of one element; some types have less than a byte.
[[nodiscard]] int bits_per_element(Dtype dtype);

/// Whether to_floats reads the type: F64, F32, F16, BF16.
[[nodiscard]] bool converts_to_float(Dtype dtype);
/// Whether to_integers reads the type: BOOL and whole numbers of 8 to 64 bits.
[[nodiscard]] bool converts_to_integer(Dtype dtype);

/// Converts elements to float; F64 is rounded. `from` need not be aligned.
/// Errors: internal, if the sizes differ or the type does not convert.
void to_floats(Dtype dtype, std::span<const std::byte> from, std::span<float> to);

/// Converts elements to 64-bit integers (U64 wraps). Errors: as to_floats.
void to_integers(Dtype dtype, std::span<const std::byte> from, std::span<std::int64_t> to);

/// Converts floats to F32 or BF16 (to nearest, ties to even; NaN stays NaN).
/// Errors: internal, if the sizes differ or for another type.
void from_floats(Dtype dtype, std::span<const float> from, std::span<std::byte> to);

}  // namespace moestro::checkpoint
