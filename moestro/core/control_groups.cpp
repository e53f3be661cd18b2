#include "moestro/core/control_groups.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace moestro {
namespace {

namespace fs = std::filesystem;

void add_with_outer(const fs::path& base, const fs::path& group, int version,
                    std::vector<ControlGroup>& groups) {
  for (fs::path at = group.relative_path();; at = at.parent_path()) {
    groups.push_back({base / at, version});
    if (at.empty()) return;
  }
}

/// Nothing where a file is absent or says "max" (version 2) or -1 (version 1).
std::optional<double> quota_of(const ControlGroup& group) {
  double quota = 0.0, period = 0.0;  // microseconds
  if (group.version == 2) {
    if (!(std::ifstream(group.folder / "cpu.max") >> quota >> period)) return std::nullopt;
  } else if (!(std::ifstream(group.folder / "cpu.cfs_quota_us") >> quota) ||
             !(std::ifstream(group.folder / "cpu.cfs_period_us") >> period)) {
    return std::nullopt;
  }
  if (quota <= 0.0 || period <= 0.0) return std::nullopt;
  return quota / period;
}

}  // namespace

std::vector<ControlGroup> control_groups(std::string_view controller, const fs::path& root) {
  // "0::/a/b" for version 2, "7:memory:/a/b" for version 1.
  std::ifstream file(root / "proc/self/cgroup");
  std::vector<ControlGroup> groups;
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path group = line.substr(second + 1);
    const std::string wanted = "," + std::string(controller) + ",";
    if (controllers == ",,") {
      add_with_outer(root / "sys/fs/cgroup", group, 2, groups);
    } else if (controllers.find(wanted) != std::string::npos) {
      add_with_outer(root / "sys/fs/cgroup" / controller, group, 1, groups);
    }
  }
  return groups;
}

std::optional<double> cpu_quota(const fs::path& root) {
  std::optional<double> least;
  for (const ControlGroup& group : control_groups("cpu", root)) {
    const std::optional<double> quota = quota_of(group);
    if (quota) least = std::min(*quota, least.value_or(*quota));
  }
  return least;
}

}  // namespace moestro
