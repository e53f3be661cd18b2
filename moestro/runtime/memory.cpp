#include "moestro/runtime/memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "moestro/core/control_groups.h"

namespace moestro::runtime {
namespace {

namespace fs = std::filesystem;

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

/// The number after a word of a file, such as "MemAvailable:" or "inactive_file".
std::optional<double> number_after(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    double value = 0.0;
    if (word == key && file >> value) return value;
  }
  return std::nullopt;
}

/// A file that holds one number; nothing if it is absent or holds a word ("max").
std::optional<double> number_in(const fs::path& path) {
  std::ifstream file(path);
  double value = 0.0;
  if (file >> value) return value;
  return std::nullopt;
}

/// The names of the files of one version of control groups.
struct GroupFiles {
  const char *limit, *usage;
  const char*
      reclaimable[2];  // of memory.stat: files that are held in memory because there is room
};
constexpr GroupFiles kVersion2 = {"memory.max", "memory.current", {"inactive_file", "active_file"}};
constexpr GroupFiles kVersion1 = {
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};

/// What the limits of containers and batch jobs leave, in bytes.
double left_in_groups(const fs::path& root) {
  double left = kUnlimited;
  for (const ControlGroup& group : control_groups("memory", root)) {
    const GroupFiles& files = group.version == 2 ? kVersion2 : kVersion1;
    const auto limit = number_in(group.folder / files.limit);
    const auto usage = number_in(group.folder / files.usage);
    if (!limit || !usage) continue;
    double free = *limit - *usage;
    for (const char* key : files.reclaimable) {
      free += number_after(group.folder / "memory.stat", key).value_or(0.0);
    }
    left = std::min(left, std::max(0.0, free));
  }
  return left;
}

}  // namespace

std::optional<Bytes> available_memory(const fs::path& root) {
  const auto kib = number_after(root / "proc/meminfo", "MemAvailable:");
  const double free = std::min(kib ? *kib * 1024.0 : kUnlimited, left_in_groups(root));
  return free == kUnlimited ? std::nullopt : std::optional(Bytes(free));
}

std::string why_too_much(Bytes needed, const fs::path& root) {
  const std::optional<Bytes> available = available_memory(root);
  if (!available || needed <= *available) return "";
  return fmt::format("{} of the {} this machine has free", to_string(needed),
                     to_string(*available));
}

}  // namespace moestro::runtime
