#include "moestro/kernels/internal/scratch.h"

#include <array>
#include <memory>
#include <new>

namespace moestro::kernels::internal {
namespace {

constexpr std::size_t kAlignment = 64;  // one cache line, one AVX-512 register

struct Release {
  void operator()(std::byte* memory) const {
    ::operator delete (memory, std::align_val_t{kAlignment});
  }
};

struct Buffer {
  std::unique_ptr<std::byte, Release> memory;
  std::size_t size = 0;
};

using Buffers = std::array<Buffer, static_cast<std::size_t>(Purpose::count)>;

Buffers& thread_buffers() {
  thread_local Buffers buffers;
  return buffers;
}

}  // namespace

std::byte* scratch_bytes(Purpose purpose, std::size_t bytes) {
  Buffer& buffer = thread_buffers()[static_cast<std::size_t>(purpose)];
  if (bytes > buffer.size) {
    buffer.memory.reset();  // before the new one, so that both never exist at once
    buffer.size = 0;
    void* memory = ::operator new (bytes, std::align_val_t{kAlignment});
    buffer.memory.reset(static_cast<std::byte*>(memory));
    buffer.size = bytes;
  }
  return buffer.memory.get();
}

std::size_t scratch_kept() {
  std::size_t bytes = 0;
  for (const Buffer& buffer : thread_buffers()) bytes += buffer.size;
  return bytes;
}

}  // namespace moestro::kernels::internal
