#include "moestro/checkpoint/dtype.h"

#include <array>
#include <bit>
#include <cstring>

#include "moestro/core/error.h"

namespace moestro::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor files are little-endian");

struct DtypeEntry {
  const char* name;
  int bits;
};

/// In the order of the enum.
constexpr std::array<DtypeEntry, 20> kDtypes = {{
    {"BOOL", 8}, {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},
    {"U16", 16}, {"F16", 16},    {"BF16", 16},   {"I32", 32},    {"U32", 32},
    {"F32", 32}, {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
}};
static_assert(static_cast<std::size_t>(Dtype::u64) + 1 == kDtypes.size());

const DtypeEntry& entry(Dtype dtype) {
  return kDtypes[static_cast<std::size_t>(dtype)];
}

float float_from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Exact. Exponents are shifted from bias 15 to 127; subnormal halves are normalised by a float
/// subtraction (all operands normal, so that flush-to-zero modes do not matter).
float float_from_f16(std::uint16_t half) {
  constexpr std::uint32_t kExponent = 0x7C00U << 13;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(half & 0x7FFFU) << 13;
  const std::uint32_t exponent = magnitude & kExponent;
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t normal = magnitude + ((127U - 15U) << 23);
  const std::uint32_t infinite_or_nan = normal + ((128U - 16U) << 23);
  const float subnormal = std::bit_cast<float>(normal + (1U << 23)) - 0x1.0p-14F;
  const std::uint32_t finite = exponent == 0 ? std::bit_cast<std::uint32_t>(subnormal) : normal;
  return std::bit_cast<float>(sign | (exponent == kExponent ? infinite_or_nan : finite));
}

std::uint16_t bf16_from_float(float value) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  const auto rounded = static_cast<std::uint16_t>((u + 0x7FFFU + ((u >> 16) & 1U)) >> 16);
  const auto quiet_nan = static_cast<std::uint16_t>((u >> 16) | 0x40U);
  return (u & 0x7FFFFFFFU) > 0x7F800000U ? quiet_nan : rounded;
}

/// to[i] = convert(i-th From of the bytes). The copy per element allows unaligned sources and
/// costs nothing: it compiles to (vector) loads.
template <class From, class To, class Convert>
void convert_each(std::span<const std::byte> from, std::span<To> to, Convert convert) {
  MOESTRO_CHECK(from.size() == to.size() * sizeof(From), "{} bytes for {} elements", from.size(),
                to.size());
  const std::byte* source = from.data();
  To* target = to.data();
  for (std::size_t i = 0; i < to.size(); ++i) {
    From element;
    std::memcpy(&element, source + i * sizeof(From), sizeof(From));
    target[i] = convert(element);
  }
}

template <class From>
void widen(std::span<const std::byte> from, std::span<std::int64_t> to) {
  convert_each<From>(from, to, [](From x) { return static_cast<std::int64_t>(x); });
}

}  // namespace

const char* to_string(Dtype dtype) {
  return entry(dtype).name;
}

std::optional<Dtype> dtype_from_string(std::string_view name) {
  for (std::size_t i = 0; i < kDtypes.size(); ++i) {
    if (name == kDtypes[i].name) return static_cast<Dtype>(i);
  }
  return std::nullopt;
}

int bits_per_element(Dtype dtype) {
  return entry(dtype).bits;
}

bool converts_to_float(Dtype dtype) {
  return dtype == Dtype::f64 || dtype == Dtype::f32 || dtype == Dtype::f16 || dtype == Dtype::bf16;
}

bool converts_to_integer(Dtype dtype) {
  switch (dtype) {
    case Dtype::boolean:
    case Dtype::u8:
    case Dtype::i8:
    case Dtype::i16:
    case Dtype::u16:
    case Dtype::i32:
    case Dtype::u32:
    case Dtype::i64:
    case Dtype::u64:
      return true;
    default:
      return false;
  }
}

void to_floats(Dtype dtype, std::span<const std::byte> from, std::span<float> to) {
  switch (dtype) {
    case Dtype::f64:
      return convert_each<double>(from, to, [](double x) { return static_cast<float>(x); });
    case Dtype::f32:
      return convert_each<float>(from, to, [](float x) { return x; });
    case Dtype::f16:
      return convert_each<std::uint16_t>(from, to, float_from_f16);
    case Dtype::bf16:
      return convert_each<std::uint16_t>(from, to, float_from_bf16);
    default:
      MOESTRO_CHECK(converts_to_float(dtype), "{} does not convert to float", to_string(dtype));
  }
}

void to_integers(Dtype dtype, std::span<const std::byte> from, std::span<std::int64_t> to) {
  switch (dtype) {
    case Dtype::boolean:
    case Dtype::u8:
      return widen<std::uint8_t>(from, to);
    case Dtype::i8:
      return widen<std::int8_t>(from, to);
    case Dtype::i16:
      return widen<std::int16_t>(from, to);
    case Dtype::u16:
      return widen<std::uint16_t>(from, to);
    case Dtype::i32:
      return widen<std::int32_t>(from, to);
    case Dtype::u32:
      return widen<std::uint32_t>(from, to);
    case Dtype::i64:
      return widen<std::int64_t>(from, to);
    case Dtype::u64:
      return widen<std::uint64_t>(from, to);
    default:
      MOESTRO_CHECK(converts_to_integer(dtype), "{} is not whole numbers", to_string(dtype));
  }
}

void from_floats(Dtype dtype, std::span<const float> from, std::span<std::byte> to) {
  MOESTRO_CHECK(dtype == Dtype::f32 || dtype == Dtype::bf16, "cannot write {}", to_string(dtype));
  const std::size_t width = dtype == Dtype::f32 ? 4 : 2;
  MOESTRO_CHECK(to.size() == from.size() * width, "{} bytes for {} elements", to.size(),
                from.size());
  if (from.empty()) return;
  if (dtype == Dtype::f32) {
    std::memcpy(to.data(), from.data(), to.size());
    return;
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::uint16_t bits = bf16_from_float(from[i]);
    std::memcpy(to.data() + 2 * i, &bits, 2);
  }
}

}  // namespace moestro::checkpoint
