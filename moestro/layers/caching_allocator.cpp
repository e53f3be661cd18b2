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
#include <utility>

namespace moestro::layers {
namespace {

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kHoard = std::size_t{256} << 20;  // free memory always kept

std::size_t round_up(std::size_t n, std::size_t step) {
  return (n + step - 1) / step * step;
}

/// Sizes are rounded up to one of eight per octave, or to whole huge pages: at most 12.5 % is lost
/// (below 512 bytes, a cache line), and a step that repeats finds its blocks again.
std::size_t size_class(std::size_t bytes) {
  const std::size_t n = std::max<std::size_t>(bytes, 256);
  const std::size_t rounded = round_up(n, std::max(std::bit_floor(n) / 8, kCacheLine));
  const std::size_t huge = round_up(rounded, kHugePage);
  return huge - n <= n / 8 ? huge : rounded;
}

/// Memory for one tensor. A free one is in a list of its size.
struct Block {
  std::size_t size = 0;
  void* memory = nullptr;
  Block* next = nullptr;
};

/// A block of exactly `size` bytes; what fills huge pages is on huge pages. Null: there is no more.
Block* map_block(std::size_t size) {
  const std::size_t huge = size / kHugePage * kHugePage;
  auto* block = new (std::nothrow) Block{.size = size};  // NOLINT: free_block ends it
  if (block == nullptr) return nullptr;
  // Not aligned_alloc, which takes whole multiples of the alignment only.
  if (::posix_memalign(&block->memory, huge > 0 ? kHugePage : kCacheLine, size) != 0) {
    delete block;  // NOLINT: made above
    return nullptr;
  }
  if (huge > 0) ::madvise(block->memory, huge, MADV_HUGEPAGE);
  return block;
}

void free_block(Block* block) {
  std::free(block->memory);  // NOLINT: from posix_memalign
  delete block;              // NOLINT: made by map_block
}

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

  /// Lives as long as the process: tensors with static lifetime are freed after main.
  static CachingAllocator& instance() {
    static CachingAllocator& allocator = *new CachingAllocator;  // NOLINT: never freed
    return allocator;
  }

 private:
  Block* take(std::size_t size) {
    const std::lock_guard lock(mutex_);
    Block*& first = free_[size];
    Block* block = first;
    if (block != nullptr) {
      first = block->next;
    } else {
      block = fresh(size);
    }
    used_ += size;
    peak_used_ = std::max(peak_used_, used_);
    return block;
  }

  Block* fresh(std::size_t size) {
    // Sizes that are gone for good (another batch shape) must not be hoarded.
    if (reserved_ - used_ > (used_ + size) / 2 + kHoard) release_free();
    Block* block = map_block(size);
    if (block == nullptr) {
      release_free();
      block = map_block(size);
    }
    if (block == nullptr) throw std::bad_alloc();
    reserved_ += size;
    return block;
  }

  void release_free() {
    for (auto& [size, first] : free_) {
      while (first != nullptr) {
        reserved_ -= size;
        free_block(std::exchange(first, first->next));
      }
    }
  }

  /// Allocates nothing, so that it cannot fail: take has made the list.
  static void give_back(void* context) {
    auto* block = static_cast<Block*>(context);
    CachingAllocator& self = instance();
    const std::lock_guard lock(self.mutex_);
    self.used_ -= block->size;
    block->next = std::exchange(self.free_.find(block->size)->second, block);
  }

  std::mutex mutex_;
  std::map<std::size_t, Block*> free_;
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

}  // namespace moestro::layers
