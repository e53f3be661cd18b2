#include "moestro/layers/caching_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <vector>

namespace moestro::layers {
namespace {

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kLarge = std::size_t{1} << 20;    // from here on, huge pages
constexpr std::size_t kHoard = std::size_t{256} << 20;  // free memory always kept

/// Sizes are rounded up to one of eight per octave: at most 12.5 % is lost, and a step that repeats
/// finds its blocks again.
std::size_t size_class(std::size_t bytes) {
  const std::size_t n = std::max<std::size_t>(bytes, 256);
  const std::size_t step = std::bit_floor(n) / 8;
  return (n + step - 1) / step * step;
}

struct Block {
  void* memory = nullptr;
  std::size_t size = 0;
};

class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    Block* block = take(size_class(bytes));
    return {block->memory, block, &CachingAllocator::give_back, c10::Device(c10::DeviceType::CPU)};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  AllocatorUse use() {
    const std::lock_guard lock(mutex_);
    return {Bytes(static_cast<double>(reserved_)), Bytes(static_cast<double>(used_)),
            Bytes(static_cast<double>(peak_used_))};
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    peak_used_ = used_;
  }

  /// Lives as long as the process: tensors with static lifetime are freed after main.
  static CachingAllocator& instance() {
    static CachingAllocator& allocator = *new CachingAllocator;  // NOLINT: never freed
    return allocator;
  }

 private:
  Block* take(std::size_t size) {
    const std::lock_guard lock(mutex_);
    used_ += size;
    peak_used_ = std::max(peak_used_, used_);
    auto& free = free_[size];
    if (free.empty()) return fresh(size);
    Block* block = free.back();
    free.pop_back();
    return block;
  }

  Block* fresh(std::size_t size) {
    // Sizes that are gone for good (another batch shape) must not be hoarded.
    if (reserved_ - (used_ - size) > used_ / 2 + kHoard) release_free();
    const std::size_t alignment = size >= kLarge ? kHugePage : kCacheLine;
    const std::size_t total = (size + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, total);
    if (memory == nullptr) throw std::bad_alloc();
    if (size >= kLarge) ::madvise(memory, total, MADV_HUGEPAGE);
    reserved_ += size;
    return new Block{memory, size};  // NOLINT: owned by the tensor, then by free_
  }

  void release_free() {
    for (auto& [size, blocks] : free_) {
      for (Block* block : blocks) {
        reserved_ -= size;
        std::free(block->memory);  // NOLINT: from aligned_alloc
        delete block;              // NOLINT: made by fresh
      }
      blocks.clear();
    }
  }

  static void give_back(void* context) {
    auto* block = static_cast<Block*>(context);
    CachingAllocator& self = instance();
    const std::lock_guard lock(self.mutex_);
    self.used_ -= block->size;
    self.free_[block->size].push_back(block);
  }

  std::mutex mutex_;
  std::map<std::size_t, std::vector<Block*>> free_;
  std::size_t reserved_ = 0, used_ = 0, peak_used_ = 0;
};

}  // namespace

void install_caching_allocator() {
  constexpr std::uint8_t kPriority = 200;  // above torch's own CPU allocators
  c10::SetCPUAllocator(&CachingAllocator::instance(), kPriority);
}

AllocatorUse allocator_use() {
  return CachingAllocator::instance().use();
}
void reset_allocator_peak() {
  CachingAllocator::instance().reset_peak();
}

}  // namespace moestro::layers
