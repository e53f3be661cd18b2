#include "moestro/layers/caching_allocator.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <new>
#include <string>
#include <vector>

namespace moestro::layers {
namespace {

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;

at::Tensor bytes(std::int64_t n) {
  return at::empty({n}, at::kByte);
}

double used() {
  return allocator_use().used.value();
}

/// A line of /proc/self/status, in bytes.
[[maybe_unused]] double status(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    double kib = 0.0;
    if (word == key && file >> kib) return kib * static_cast<double>(kKiB);
  }
  return 0.0;
}

class CachingAllocatorTest : public testing::Test {
 protected:
  void SetUp() override { install_caching_allocator(); }
};

TEST_F(CachingAllocatorTest, TakesAnEighthMoreThanAskedAtMost) {
  for (std::int64_t n = 512; n < 40 * kMiB; n += n / 23 + 1) {
    const double before = used();
    const at::Tensor tensor = bytes(n);
    const double taken = used() - before;
    EXPECT_GE(taken, static_cast<double>(n));
    EXPECT_LE(taken, 1.125 * static_cast<double>(n)) << n;
  }
}

TEST_F(CachingAllocatorTest, CountsWhatIsHeldAndFindsItAgain) {
  const AllocatorUse before = allocator_use();
  const void* memory = nullptr;
  for (int i = 0; i < 3; ++i) {
    const at::Tensor tensor = bytes(6 * kMiB);
    EXPECT_TRUE(i == 0 || tensor.data_ptr() == memory);
    memory = tensor.data_ptr();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64,
              0U);  // NOLINT: an address is asked for
    EXPECT_EQ(used() - before.used.value(), 6.0 * kMiB);
  }
  EXPECT_EQ(used(), before.used.value());
  EXPECT_GE(allocator_use().peak_used.value(), before.used.value() + 6.0 * kMiB);
  EXPECT_LE(allocator_use().reserved.value(), before.reserved.value() + 6.0 * kMiB);
}

// Sanitizers end the program where there is no memory, and have shadow memory of their own.
#ifndef MOESTRO_SANITIZED

TEST_F(CachingAllocatorTest, CountsNothingThatItDidNotGet) {
  const at::Tensor tensor = bytes(kMiB);
  const AllocatorUse before = allocator_use();
  EXPECT_THROW(bytes(std::int64_t{1} << 60), std::bad_alloc);
  EXPECT_EQ(used(), before.used.value());
  EXPECT_EQ(allocator_use().peak_used.value(), before.peak_used.value());
  EXPECT_LE(allocator_use().reserved.value(), before.reserved.value());
  EXPECT_GE(allocator_use().reserved.value(), used());
}

TEST_F(CachingAllocatorTest, CountsThePagesThatTensorsTake) {
  // From 1 to 2 MiB whole huge pages would take up to twice the size.
  for (const std::int64_t n : {kMiB + 256, 2 * kMiB + 300 * kKiB, 5 * kMiB}) {
    const double resident = status("VmRSS:"), held = used();
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < 12; ++i) tensors.push_back(at::full({n}, 1, at::kByte));
    EXPECT_LE(status("VmRSS:") - resident, 1.05 * (used() - held)) << n;
  }
}

/// In a process of its own: whether memory that is cached makes room for another size where the
/// address space has an end.
[[noreturn]] void fill_a_small_address_space() {
  { const at::Tensor warm = bytes(kMiB); }
  const auto limit = static_cast<rlim_t>(status("VmSize:")) + 300 * kMiB;
  const rlimit both{limit, limit};
  if (::setrlimit(RLIMIT_AS, &both) != 0) std::_Exit(2);
  { const at::Tensor cached = bytes(200 * kMiB); }
  const double reserved = allocator_use().reserved.value();
  try {
    const at::Tensor other = bytes(240 * kMiB);
    std::_Exit(reserved >= 200.0 * kMiB && used() >= 240.0 * kMiB ? 0 : 3);
  } catch (const std::bad_alloc&) {
    std::_Exit(1);
  }
}

TEST_F(CachingAllocatorTest, GivesBackWhatItCachesBeforeItFails) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(fill_a_small_address_space(), testing::ExitedWithCode(0), "");
}

#endif

}  // namespace
}  // namespace moestro::layers
