// What a process may take is what is free, or what its control groups leave, if that is less.

#include "moestro/runtime/memory.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/core/temporary_folder.h"

namespace moestro::runtime {
namespace {

constexpr double kKiB = 1024.0, kMiB = 1024.0 * kKiB;

class AvailableMemory : public testing::Test {
 protected:
  AvailableMemory() { put("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable: 4096 kB\n"); }

  void put(const std::string& name, const std::string& content) {
    std::filesystem::create_directories((root_.path() / name).parent_path());
    static_cast<void>(root_.file(name, content));
  }
  double bytes() const { return available_memory(root_.path()).value_or(Bytes(-1.0)).value(); }

  test::TemporaryFolder root_;
};

TEST_F(AvailableMemory, IsWhatTheSystemSaysWhereNothingLimitsIt) {
  EXPECT_EQ(bytes(), 4.0 * kMiB);
  put("proc/self/cgroup", "0::/job\n");
  put("sys/fs/cgroup/job/memory.max", "max\n");
  put("sys/fs/cgroup/job/memory.current", "1048576\n");
  EXPECT_EQ(bytes(), 4.0 * kMiB);
}

TEST_F(AvailableMemory, IsWhatTheTightestGroupLeaves) {
  put("proc/self/cgroup", "0::/batch/job\n");
  put("sys/fs/cgroup/batch/job/memory.max", "3145728\n");
  put("sys/fs/cgroup/batch/job/memory.current", "1048576\n");
  EXPECT_EQ(bytes(), 2.0 * kMiB);
  put("sys/fs/cgroup/batch/memory.max", "4194304\n");
  put("sys/fs/cgroup/batch/memory.current", "3145728\n");
  EXPECT_EQ(bytes(), 1.0 * kMiB);
  put("sys/fs/cgroup/batch/memory.stat", "anon 1\ninactive_file 262144\nactive_file 262144\n");
  EXPECT_EQ(bytes(), 1.5 * kMiB) << "cached files make room";
}

TEST_F(AvailableMemory, IsThatOfTheContainerWhosePathIsNotSeen) {
  put("proc/self/cgroup", "0::/system.slice/docker-1234.scope\n");
  put("sys/fs/cgroup/memory.max", "2097152\n");
  put("sys/fs/cgroup/memory.current", "1048576\n");
  EXPECT_EQ(bytes(), 1.0 * kMiB);
}

TEST_F(AvailableMemory, KnowsTheFirstVersionOfGroups) {
  put("proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/slurm/job_7\n");
  put("sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", "3145728\n");
  put("sys/fs/cgroup/memory/slurm/job_7/memory.usage_in_bytes", "2097152\n");
  put("sys/fs/cgroup/memory/slurm/job_7/memory.stat", "inactive_file 9\ntotal_inactive_file 0\n");
  EXPECT_EQ(bytes(), 1.0 * kMiB);
}

TEST_F(AvailableMemory, IsNothingInAGroupThatIsOverItsLimit) {
  put("proc/self/cgroup", "0::/job\n");
  put("sys/fs/cgroup/job/memory.max", "1048576\n");
  put("sys/fs/cgroup/job/memory.current", "2097152\n");
  EXPECT_EQ(bytes(), 0.0);
  EXPECT_EQ(why_too_much(Bytes(kMiB), root_.path()),
            "1.00 MiB of the 0.00 B this machine has free");
}

TEST_F(AvailableMemory, IsUnknownWhereNothingSaysIt) {
  const test::TemporaryFolder empty;
  EXPECT_FALSE(available_memory(empty.path()).has_value());
  EXPECT_EQ(why_too_much(Bytes(1e18), empty.path()), "");
}

TEST(WhyTooMuch, ComparesWithThisMachine) {
  EXPECT_EQ(why_too_much(Bytes(1.0)), "");
  EXPECT_NE(why_too_much(Bytes(1e18)), "");
}

}  // namespace
}  // namespace moestro::runtime
