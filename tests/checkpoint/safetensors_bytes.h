#pragma once
// Hand-made safetensors files for tests.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace moestro::checkpoint {

/// A file with this header text and this many data bytes (0, 1, 2, ...).
inline std::string safetensors_bytes(std::string_view header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  bytes += header;
  for (std::size_t i = 0; i < data_bytes; ++i) bytes += static_cast<char>(i);
  return bytes;
}

}  // namespace moestro::checkpoint
