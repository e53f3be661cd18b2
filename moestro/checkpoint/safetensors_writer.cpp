#include "moestro/checkpoint/safetensors_writer.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>

#include "moestro/checkpoint/safetensors.h"
#include "moestro/core/error.h"
#include "moestro/core/json.h"
#include "moestro/core/text.h"

namespace moestro::checkpoint {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kValuesPerChunk = std::size_t{1} << 18;  // 1 MiB of floats fits the L2 cache

/// Text as a JSON string.
std::string json_text(std::string_view text) {
  MOESTRO_CHECK(is_utf8(text), "the name {} is not UTF-8", printable(text));
  return Json(std::string(text)).dump();
}

/// The reference implementation's order: every tensor is aligned because wide types come first.
void sort_as_reference(std::vector<TensorDeclaration>& tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorDeclaration& a, const TensorDeclaration& b) {
              return std::tie(b.dtype, a.name) < std::tie(a.dtype, b.name);
            });
}

std::string metadata_text(const std::map<std::string, std::string>& metadata) {
  std::string text;
  for (const auto& [key, value] : metadata) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", json_text(key), json_text(value));
  }
  return text.empty() ? "" : fmt::format("\"__metadata__\":{{{}}}", text);
}

/// Written by hand rather than through Json, whose objects take linear time per new key.
std::string header_text(const std::vector<TensorDeclaration>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  text += metadata_text(metadata);
  std::size_t offset = 0;
  for (const TensorDeclaration& tensor : tensors) {
    const std::size_t end = offset + bytes_of(tensor.dtype, tensor.shape);
    text += fmt::format(R"({}{}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                        text.size() > 1 ? "," : "", json_text(tensor.name), to_string(tensor.dtype),
                        Json(tensor.shape).dump(), offset, end);
    offset = end;
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

std::span<const std::byte> bytes_of_text(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<TensorDeclaration> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path) {
  sort_as_reference(tensors);
  const std::string header = header_text(tensors, metadata);
  const std::uint64_t length = header.size();
  file_.write_at(0, std::as_bytes(std::span(&length, 1)));
  file_.write_at(kLengthBytes, bytes_of_text(header));
  std::size_t begin = kLengthBytes + header.size();
  for (const TensorDeclaration& tensor : tensors) {
    MOESTRO_CHECK(tensor.name != "__metadata__", "this name is the format's own");
    const std::size_t bytes = bytes_of(tensor.dtype, tensor.shape);
    const bool is_new = slots_.emplace(tensor.name, Slot{tensor.dtype, begin, bytes, false}).second;
    MOESTRO_CHECK(is_new, "tensor {} is declared twice", tensor.name);
    begin += bytes;
  }
}

SafetensorsWriter::Slot& SafetensorsWriter::slot(std::string_view name) {
  const auto found = slots_.find(std::string(name));
  MOESTRO_CHECK(found != slots_.end(), "tensor {} was not declared", printable(name));
  return found->second;
}

void SafetensorsWriter::claim(Slot& slot, std::string_view name, std::size_t bytes) {
  MOESTRO_CHECK(!slot.is_written, "tensor {} is written twice", name);
  MOESTRO_CHECK(slot.bytes == bytes, "tensor {} has {} bytes, not {}", name, slot.bytes, bytes);
  slot.is_written = true;
}

void SafetensorsWriter::write_floats(std::string_view name, std::span<const float> values) {
  Slot& target = slot(name);
  const std::size_t width = static_cast<std::size_t>(bits_per_element(target.dtype)) / 8;
  claim(target, name, values.size() * width);
  if (target.dtype == Dtype::f32) return file_.write_at(target.begin, std::as_bytes(values));
  converted_.resize(std::min(values.size(), kValuesPerChunk) * width);
  for (std::size_t first = 0; first < values.size(); first += kValuesPerChunk) {
    const auto chunk = values.subspan(first, std::min(kValuesPerChunk, values.size() - first));
    const auto bytes = std::span(converted_).first(chunk.size() * width);
    from_floats(target.dtype, chunk, bytes);
    file_.write_at(target.begin + first * width, bytes);
  }
}

void SafetensorsWriter::write_bytes(std::string_view name, std::span<const std::byte> bytes) {
  Slot& target = slot(name);
  claim(target, name, bytes.size());
  file_.write_at(target.begin, bytes);
}

void SafetensorsWriter::finish() {
  for (const auto& [name, slot] : slots_) {
    MOESTRO_CHECK(slot.is_written || slot.bytes == 0, "tensor {} was not written", name);
  }
  file_.finish();
}

}  // namespace moestro::checkpoint
