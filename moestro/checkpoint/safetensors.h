#pragma once
// Reading safetensors files: 8 bytes of header length, a JSON header that says dtype, shape and
// byte range of every tensor, then the data. The file is mapped, never copied, and everything the
// header claims is checked against the file before anybody uses it.
//
//   const SafetensorsFile file("model.safetensors");
//   std::vector<float> weights(file.info("lm_head.weight").elements());
//   file.read_floats("lm_head.weight", weights);
//
// Format: https://github.com/huggingface/safetensors

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
#include "moestro/core/error.h"
#include "moestro/core/file.h"

namespace moestro::checkpoint {

/// A longer header is refused, as the format demands.
inline constexpr std::size_t kMaxHeaderBytes = 100'000'000;

/// One tensor of a file.
struct TensorInfo {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;
  std::size_t begin = 0, end = 0;  // its bytes, counted from the start of the file

  /// Product of the shape; 1 for a scalar.
  [[nodiscard]] std::int64_t elements() const;
};

/// "[2, 3]".
[[nodiscard]] std::string shape_text(std::span<const std::int64_t> shape);

/// Bytes that a tensor takes on disk. Errors: internal, if the shape is negative or too large.
[[nodiscard]] std::size_t bytes_of(Dtype dtype, std::span<const std::int64_t> shape);

/// What a file holds, checked.
struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // by place in the file
  std::map<std::string, std::string> metadata;
};

/// Reads and checks the header of a whole file in memory: its length, its JSON, known dtypes, shape
/// against range, ranges that fill the data section without holes or overlap.
/// Errors: input, naming `file` and the tensor. Cost: O(header), whatever the header claims.
[[nodiscard]] SafetensorsHeader parse_safetensors(std::span<const std::byte> bytes,
                                                  std::string_view file);

/// The error for a tensor that is not among `names`: it names the nearest.
[[nodiscard]] Error missing_tensor(const std::filesystem::path& where, std::string_view name,
                                   const std::vector<std::string>& names);

/// A mapped file.
class SafetensorsFile {
 public:
  /// Errors: as parse_safetensors; input if there is no such file, io if it cannot be mapped.
  explicit SafetensorsFile(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// By place in the file.
  [[nodiscard]] const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const {
    return header_.metadata;
  }
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }
  /// The tensor of that name, or null.
  [[nodiscard]] const TensorInfo* find(std::string_view name) const;
  /// Errors: input, if there is no such tensor, with the nearest name.
  [[nodiscard]] const TensorInfo& info(std::string_view name) const;
  /// The tensor as stored; maybe not aligned. Errors: as info.
  [[nodiscard]] std::span<const std::byte> bytes(std::string_view name) const;

  /// Converts elements first .. first + out.size() - 1 to float.
  /// Errors: as info; input, if the dtype does not convert; internal, if the tensor is shorter.
  void read_floats(std::string_view name, std::span<float> out, std::int64_t first = 0) const;
  /// The same for whole numbers.
  void read_integers(std::string_view name, std::span<std::int64_t> out,
                     std::int64_t first = 0) const;

 private:
  [[nodiscard]] std::span<const std::byte> elements(const TensorInfo& tensor, std::int64_t first,
                                                    std::size_t count) const;

  std::filesystem::path path_;
  MappedFile file_;
  SafetensorsHeader header_;
  std::unordered_map<std::string, std::size_t> index_;  // name -> place in header_.tensors
};

}  // namespace moestro::checkpoint
