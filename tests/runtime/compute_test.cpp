#include "moestro/runtime/compute.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <string>

#include "moestro/kernels/parallel.h"

namespace moestro::runtime {
namespace {

/// What is said of so many threads. The number of threads is then what it was.
std::string warning_of(int threads) {
  const int before = kernels::num_threads();
  testing::internal::CaptureStderr();
  const Compute compute = set_up_compute(Dtype::f32, threads);
  kernels::set_num_threads(before);
  EXPECT_TRUE(threads == 0 || compute.threads == threads);
  return testing::internal::GetCapturedStderr();
}

TEST(Compute, WarnsOfMoreThreadsThanCores) {
  const int cores = kernels::available_cores();
  EXPECT_EQ(warning_of(0), "");
  EXPECT_EQ(warning_of(cores), "");
  EXPECT_EQ(warning_of(cores + 1),
            fmt::format("warning: train.threads = {} is more than the {} cores this process may "
                        "use; 0 takes them all\n",
                        cores + 1, cores));
}

TEST(Compute, ZeroThreadsAreAllCoresWhateverAnEarlierRunSet) {
  const int before = kernels::num_threads();
  EXPECT_EQ(set_up_compute(Dtype::f32, 1).threads, 1);
  EXPECT_EQ(set_up_compute(Dtype::f32, 0).threads, kernels::available_cores());
  EXPECT_EQ(kernels::num_threads(), kernels::available_cores());
  kernels::set_num_threads(before);
}

}  // namespace
}  // namespace moestro::runtime
