#pragma once
// Damages a tensor, as no writer of ours would.

#include <filesystem>
#include <fstream>
#include <string>

#include "moestro/checkpoint/safetensors.h"

namespace moestro::checkpoint {

/// Writes a number over number `index` of an F32 tensor.
inline void overwrite_number(const std::filesystem::path& file, const std::string& tensor,
                             std::size_t index, float number) {
  const std::size_t place = SafetensorsFile(file).info(tensor).begin + index * sizeof(float);
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(static_cast<std::streamoff>(place));
  stream.write(reinterpret_cast<const char*>(&number), sizeof(number));
}

}  // namespace moestro::checkpoint
