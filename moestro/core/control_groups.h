#pragma once
// The limits that containers and batch jobs set to a process: control groups of Linux.

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace moestro {

/// A folder of limits and usage; its files differ by version (1 or 2).
struct ControlGroup {
  std::filesystem::path folder;
  int version = 2;
};

/// The groups of this process that have a say in `controller` ("memory", "cpu"), its own before
/// those around it. A container may show its own group as the outermost and not know the path to
/// it, so that some folders can be absent. `root` is where proc and sys are.
[[nodiscard]] std::vector<ControlGroup> control_groups(std::string_view controller,
                                                       const std::filesystem::path& root = "/");

/// The cores' worth of time this process may use (docker --cpus); nothing where no group limits it.
[[nodiscard]] std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

}  // namespace moestro
