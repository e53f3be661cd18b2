#include "moestro/kernels/parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "reference.h"

namespace moestro::kernels {
namespace {

using testing::with_threads;

TEST(ParallelFor, VisitsEveryIndexOnceInBlocks) {
  for (const int threads : {1, 2, 5}) {
    for (const std::int64_t count : {0, 1, 7, 64, 1000}) {
      std::vector<int> visits(static_cast<std::size_t>(count), 0);
      with_threads(threads, [&] {
        parallel_for(count, 7, [&](std::int64_t begin, std::int64_t end) {
          EXPECT_EQ(begin % 7, 0);
          EXPECT_EQ(end, std::min<std::int64_t>(count, begin + 7));
          for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
        });
      });
      EXPECT_EQ(std::count(visits.begin(), visits.end(), 1), count) << threads << " threads";
    }
  }
}

TEST(ParallelFor, NegativeCountDoesNothing) {
  parallel_for(-3, 1, [](std::int64_t, std::int64_t) { FAIL(); });
}

TEST(ParallelFor, NestedCallRunsInItsThread) {
  with_threads(3, [] {
    parallel_for(6, 1, [](std::int64_t, std::int64_t) {
      const auto outer = std::this_thread::get_id();
      parallel_for(
          4, 1, [&](std::int64_t, std::int64_t) { EXPECT_EQ(std::this_thread::get_id(), outer); });
    });
  });
}

TEST(ParallelFor, ExceptionOfABodyReachesTheCaller) {
  for (const int threads : {1, 2}) {
    with_threads(threads, [] {
      const auto throwing = [](std::int64_t begin, std::int64_t) {
        if (begin == 3) throw std::runtime_error("three");
      };
      EXPECT_THROW(parallel_for(10, 1, throwing), std::runtime_error);
      std::atomic<int> calls = 0;  // the next run is not disturbed
      parallel_for(10, 1, [&](std::int64_t, std::int64_t) { ++calls; });
      EXPECT_EQ(calls, 10);
    });
  }
}

TEST(ParallelFor, WorkersThatComeLateNeitherStopNorRepeatAnything) {
  // Far more workers than cores and next to no work: most of them come when a run is over.
  constexpr int kRuns = 3000;
  with_threads(8, [] {
    std::int64_t wrong = 0;
    for (int run = 0; run < kRuns; ++run) {
      const std::int64_t blocks = 2 + run % 9;
      std::atomic<std::int64_t> visits = 0;
      parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t) { visits += 1 + begin * 100; });
      wrong += visits != blocks + 50 * blocks * (blocks - 1) ? 1 : 0;
    }
    EXPECT_EQ(wrong, 0);
  });
}

TEST(NumThreads, BelongsToTheCallingThreadAndZeroMeansAllCores) {
  const int cores = num_threads();
  EXPECT_GE(cores, 1);
  with_threads(3, [&] {
    EXPECT_EQ(num_threads(), 3);
    std::jthread([&] { EXPECT_EQ(num_threads(), cores); });
    set_num_threads(0);
    EXPECT_EQ(num_threads(), cores);
  });
}

}  // namespace
}  // namespace moestro::kernels
