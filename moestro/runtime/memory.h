#pragma once
// What fits into this machine: asked before memory is taken, since a process that takes more than
// there is is killed without a word.

#include <filesystem>
#include <optional>
#include <string>

#include "moestro/core/units.h"

namespace moestro::runtime {

/// Memory the system can give this process without swapping, within the limits of its control
/// groups (containers, batch jobs); nothing, if it does not say. `root`: where /proc and /sys are
/// looked for.
[[nodiscard]] std::optional<Bytes> available_memory(const std::filesystem::path& root = "/");

/// "5.00 GiB of the 2.00 GiB this machine has free", if it is more than that; empty, if it is not,
/// or the system does not say.
[[nodiscard]] std::string why_too_much(Bytes needed, const std::filesystem::path& root = "/");

}  // namespace moestro::runtime
