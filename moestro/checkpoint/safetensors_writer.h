#pragma once
// Writing safetensors files tensor by tensor, without a second copy of the data: all tensors are
// declared first, which fixes the layout, then written in any order. The bytes are those of the
// reference implementation: wide types first, then by name, header padded with spaces to 8 bytes.
//
//   SafetensorsWriter writer("model.safetensors", {{"a", Dtype::bf16, {2, 3}}});
//   writer.write_floats("a", values);
//   writer.finish();                  // only now does the file appear

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "moestro/checkpoint/dtype.h"
#include "moestro/core/file.h"

namespace moestro::checkpoint {

/// A tensor to be written.
struct TensorDeclaration {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;
};

class SafetensorsWriter {
 public:
  /// Errors: internal, if a name occurs twice, is "__metadata__" or is not UTF-8; io.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorDeclaration> tensors,
                    const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

  /// Writes a whole tensor, converted to its declared dtype (F32 or BF16).
  /// Errors: internal, if it is unknown, written before, or of another size; io.
  void write_floats(std::string_view name, std::span<const float> values);
  /// Writes a whole tensor as it is. Errors: as write_floats.
  void write_bytes(std::string_view name, std::span<const std::byte> bytes);
  /// Flushes; the file appears under its name. Errors: internal, if a tensor is missing; io.
  void finish();

 private:
  struct Slot {
    Dtype dtype = Dtype::f32;
    std::size_t begin = 0, bytes = 0;
    bool is_written = false;
  };
  [[nodiscard]] Slot& slot(std::string_view name);
  /// Marks the slot as written. Errors: internal, if it was, or has another size.
  static void claim(Slot& slot, std::string_view name, std::size_t bytes);

  AtomicFile file_;
  std::unordered_map<std::string, Slot> slots_;
  std::vector<std::byte> converted_;
};

}  // namespace moestro::checkpoint
