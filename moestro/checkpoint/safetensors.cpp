#include "moestro/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "moestro/core/error.h"
#include "moestro/core/json.h"
#include "moestro/core/text.h"

namespace moestro::checkpoint {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();

/// "FILE tensor \"NAME\"", for error messages.
std::string tensor_place(std::string_view file, std::string_view name) {
  return fmt::format("{} tensor \"{}\"", file, printable(name));
}

/// The JSON text of the header; afterwards length and place are known to fit the file.
std::string_view header_text(std::span<const std::byte> bytes, std::string_view file) {
  if (bytes.size() < kLengthBytes) {
    throw input_error(file, "expected a safetensors file, got {} bytes; download it again",
                      bytes.size());
  }
  constexpr std::string_view kPointer = "version https://git-lfs";
  if (std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())
          .starts_with(kPointer)) {
    throw input_error(file,
                      "expected a safetensors file, got the Git LFS pointer to one; fetch the file "
                      "itself (git lfs pull)");
  }
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMaxHeaderBytes) {
    throw input_error(file,
                      "expected a safetensors header of at most {} bytes, got a length of {}; the "
                      "file is damaged or of another format",
                      kMaxHeaderBytes, length);
  }
  if (length > bytes.size() - kLengthBytes) {
    throw input_error(file,
                      "expected a header of {} bytes, got a file of {}; it is cut off, download it "
                      "again",
                      length, bytes.size());
  }
  const auto header = bytes.subspan(kLengthBytes, static_cast<std::size_t>(length));
  const std::string_view text(reinterpret_cast<const char*>(header.data()), header.size());
  if (!text.starts_with('{')) {
    throw input_error(file,
                      "expected a header that begins with \"{{\", got \"{}\"; the file is "
                      "damaged or of another format",
                      printable(text, 20));
  }
  return text;
}

/// The member `key` of a tensor's entry.
const Json& member(const Json& entry, const char* key, const std::string& where) {
  const auto found = entry.find(key);
  if (found == entry.end()) {
    throw input_error(where, "expected the key \"{}\", but there is none; the file is damaged",
                      key);
  }
  return *found;
}

/// A list of whole numbers from 0 to 2^63 - 1.
std::vector<std::int64_t> counts(const Json& json, const char* key, const std::string& where) {
  std::vector<std::int64_t> values;
  const bool is_list = json.is_array();
  if (is_list) values.reserve(json.size());
  bool is_good = is_list;
  for (std::size_t i = 0; is_good && i < json.size(); ++i) {
    is_good = json[i].is_number_unsigned() && json[i].get<std::uint64_t>() <= kMaxInt64;
    if (is_good) values.push_back(json[i].get<std::int64_t>());
  }
  if (!is_good) {
    throw input_error(where,
                      "expected {} to be a list of whole numbers >= 0, got {}; the file is damaged",
                      key, printable(json.dump()));
  }
  return values;
}

Dtype dtype_of(const Json& json, const std::string& where) {
  const auto dtype = json.is_string() ? dtype_from_string(json.get<std::string>()) : std::nullopt;
  if (!dtype) {
    throw input_error(where, "expected a dtype such as \"F32\" or \"BF16\", got {}",
                      printable(json.dump()));
  }
  return *dtype;
}

/// Bytes of a shape, or nullopt if the number overflows or is no whole number of bytes.
std::optional<std::size_t> checked_bytes(Dtype dtype, std::span<const std::int64_t> shape) {
  std::int64_t bits = bits_per_element(dtype);
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bits, size, &bits)) return std::nullopt;
  }
  if (bits % 8 != 0) return std::nullopt;
  return static_cast<std::size_t>(bits / 8);
}

/// One entry of the header; ranges stay relative to the data section.
TensorInfo parse_tensor(const std::string& name, const Json& entry, std::string_view file) {
  const std::string where = tensor_place(file, name);
  if (!entry.is_object()) {
    throw input_error(where, "expected dtype, shape and data_offsets, got {}; the file is damaged",
                      printable(entry.dump()));
  }
  TensorInfo tensor{name, dtype_of(member(entry, "dtype", where), where),
                    counts(member(entry, "shape", where), "shape", where), 0, 0};
  const auto offsets = counts(member(entry, "data_offsets", where), "data_offsets", where);
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    throw input_error(where, "expected data_offsets [begin, end], got {}; the file is damaged",
                      shape_text(offsets));
  }
  tensor.begin = static_cast<std::size_t>(offsets[0]);
  tensor.end = static_cast<std::size_t>(offsets[1]);
  const auto expected = checked_bytes(tensor.dtype, tensor.shape);
  if (!expected) {
    throw input_error(
        where, "expected a shape of whole bytes below 2^60, got {} of {}; the file is damaged",
        to_string(tensor.dtype), printable(shape_text(tensor.shape)));
  }
  if (*expected != tensor.end - tensor.begin) {
    throw input_error(where, "expected {} bytes for {} of shape {}, got {}; the file is damaged",
                      *expected, to_string(tensor.dtype), printable(shape_text(tensor.shape)),
                      tensor.end - tensor.begin);
  }
  return tensor;
}

std::map<std::string, std::string> parse_metadata(const Json& json, std::string_view file) {
  const std::string where = fmt::format("{} __metadata__", file);
  if (!json.is_object()) {
    throw input_error(where, "expected an object of texts, got {}", printable(json.dump()));
  }
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      throw input_error(where, "expected a text for \"{}\", got {}", printable(key),
                        printable(value.dump()));
    }
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

/// Sorts by place, proves that the tensors fill the data section exactly, and makes their ranges
/// count from the start of the file.
void place_tensors(std::vector<TensorInfo>& tensors, std::size_t data_begin, std::size_t file_bytes,
                   std::string_view file) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  const std::size_t data_bytes = file_bytes - data_begin;
  std::size_t next = 0;
  for (TensorInfo& tensor : tensors) {
    const std::string_view problem = tensor.begin > next   ? "leaves a hole"
                                     : tensor.begin < next ? "overlaps the tensor before it"
                                     : tensor.end > data_bytes
                                         ? "ends beyond the file, which is cut off"
                                         : "";
    if (!problem.empty()) {
      throw input_error(
          tensor_place(file, tensor.name),
          "expected bytes from {} on, within {}, got {} to {}: it {}; download the file again",
          next, data_bytes, tensor.begin, tensor.end, problem);
    }
    next = tensor.end;
    tensor.begin += data_begin;
    tensor.end += data_begin;
  }
  if (next != data_bytes) {
    throw input_error(file, "expected {} bytes of tensors, got {}; the file is damaged", next,
                      data_bytes);
  }
}

}  // namespace

std::int64_t TensorInfo::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product *= size;
  return product;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t size : shape)
    text += fmt::format("{}{}", text.size() > 1 ? ", " : "", size);
  return text + "]";
}

std::size_t bytes_of(Dtype dtype, std::span<const std::int64_t> shape) {
  const auto bytes = checked_bytes(dtype, shape);
  MOESTRO_CHECK(bytes.has_value(), "{} of shape {}", to_string(dtype), shape_text(shape));
  return *bytes;
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> bytes, std::string_view file) {
  const std::string_view text = header_text(bytes, file);
  const Json json = parse_json(text, fmt::format("{} header", file));
  SafetensorsHeader header;
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") {
      header.metadata = parse_metadata(entry, file);
    } else {
      header.tensors.push_back(parse_tensor(name, entry, file));
    }
  }
  place_tensors(header.tensors, kLengthBytes + text.size(), bytes.size(), file);
  return header;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path), file_(path), header_(parse_safetensors(file_.bytes(), path.string())) {
  for (std::size_t i = 0; i < header_.tensors.size(); ++i) index_[header_.tensors[i].name] = i;
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const TensorInfo& tensor : header_.tensors) names.push_back(tensor.name);
  return names;
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &header_.tensors[found->second];
}

const TensorInfo& SafetensorsFile::info(std::string_view name) const {
  if (const TensorInfo* tensor = find(name)) return *tensor;
  throw missing_tensor(path_, name, names());
}

Error missing_tensor(const std::filesystem::path& where, std::string_view name,
                     const std::vector<std::string>& names) {
  const std::string near = nearest(name, names);
  return input_error(where.string(), "expected a tensor \"{}\", but there is none{}",
                     printable(name),
                     near.empty() ? "" : fmt::format("; the nearest is \"{}\"", printable(near)));
}

std::span<const std::byte> SafetensorsFile::bytes(std::string_view name) const {
  const TensorInfo& tensor = info(name);
  return file_.bytes().subspan(tensor.begin, tensor.end - tensor.begin);
}

std::span<const std::byte> SafetensorsFile::elements(const TensorInfo& tensor, std::int64_t first,
                                                     std::size_t count) const {
  const std::int64_t available = tensor.elements();
  MOESTRO_CHECK(
      first >= 0 && first <= available && count <= static_cast<std::size_t>(available - first),
      "{}: elements {} + {} of {}", tensor.name, first, count, available);
  const auto width = static_cast<std::size_t>(bits_per_element(tensor.dtype)) / 8;
  return file_.bytes().subspan(tensor.begin + static_cast<std::size_t>(first) * width,
                               count * width);
}

void SafetensorsFile::read_floats(std::string_view name, std::span<float> out,
                                  std::int64_t first) const {
  const TensorInfo& tensor = info(name);
  if (!converts_to_float(tensor.dtype)) {
    throw input_error(tensor_place(path_.string(), name),
                      "expected F32, BF16, F16 or F64, got {}; convert the checkpoint first",
                      to_string(tensor.dtype));
  }
  to_floats(tensor.dtype, elements(tensor, first, out.size()), out);
}

void SafetensorsFile::read_integers(std::string_view name, std::span<std::int64_t> out,
                                    std::int64_t first) const {
  const TensorInfo& tensor = info(name);
  if (!converts_to_integer(tensor.dtype)) {
    throw input_error(tensor_place(path_.string(), name),
                      "expected whole numbers such as I64, got {}", to_string(tensor.dtype));
  }
  to_integers(tensor.dtype, elements(tensor, first, out.size()), out);
}

}  // namespace moestro::checkpoint
