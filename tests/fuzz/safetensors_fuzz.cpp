// Any bytes as a safetensors file: the reader accepts them or throws Error(input), and what it
// accepts can be read to the last byte.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "moestro/checkpoint/safetensors.h"
#include "moestro/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moestro::checkpoint;  // NOLINT: a file of one function
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const SafetensorsHeader header = parse_safetensors(bytes, "input");
    std::size_t covered = 0;
    for (const TensorInfo& tensor : header.tensors) {
      covered += tensor.end - tensor.begin;
      const auto stored = bytes.subspan(tensor.begin, tensor.end - tensor.begin);
      if (!converts_to_float(tensor.dtype)) continue;
      std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
      to_floats(tensor.dtype, stored, values);
    }
    if (covered > size) std::abort();
  } catch (const moestro::Error& error) {
    if (error.kind() != moestro::ErrorKind::input) std::abort();
  }
  return 0;
}
