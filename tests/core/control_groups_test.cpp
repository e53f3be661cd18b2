// Which limits of containers and batch jobs count.

#include "moestro/core/control_groups.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/core/temporary_folder.h"

namespace moestro {
namespace {

class CpuQuota : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& content) {
    std::filesystem::create_directories((root_.path() / name).parent_path());
    static_cast<void>(root_.file(name, content));
  }
  double cores() const { return cpu_quota(root_.path()).value_or(-1.0); }

  test::TemporaryFolder root_;
};

TEST_F(CpuQuota, IsNoneWhereNothingLimits) {
  EXPECT_EQ(cores(), -1.0);
  put("proc/self/cgroup", "0::/job\n");
  put("sys/fs/cgroup/job/cpu.max", "max 100000\n");
  EXPECT_EQ(cores(), -1.0);
}

TEST_F(CpuQuota, IsTheTightestOfAllGroupsAround) {
  put("proc/self/cgroup", "0::/batch/job\n");
  put("sys/fs/cgroup/batch/job/cpu.max", "400000 100000\n");
  EXPECT_EQ(cores(), 4.0);
  put("sys/fs/cgroup/batch/cpu.max", "150000 100000\n");
  EXPECT_EQ(cores(), 1.5);
}

TEST_F(CpuQuota, IsThatOfTheContainerWhosePathIsNotSeen) {
  put("proc/self/cgroup", "0::/system.slice/docker-1234.scope\n");
  put("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(cores(), 2.0);
}

TEST_F(CpuQuota, KnowsTheFirstVersionOfGroups) {
  put("proc/self/cgroup", "5:cpu,cpuacct:/slurm\n4:memory:/\n");
  put("sys/fs/cgroup/cpu/slurm/cpu.cfs_quota_us", "-1\n");
  put("sys/fs/cgroup/cpu/slurm/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cores(), -1.0);
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cores(), 3.0);
}

}  // namespace
}  // namespace moestro
