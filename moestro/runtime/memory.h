#pragma once
// What fits into this machine: asked before memory is taken, since a process that takes more than
// there is is killed without a word.

#include <filesystem>

#include "moestro/core/units.h"

namespace moestro::runtime {

/// Memory the system can give this process without swapping, within the limits of its control
/// groups (containers, batch jobs); nothing, if it does not say. `root`: where /proc and /sys are
/// looked for.
[[nodiscard]] Bytes available_memory(const std::filesystem::path& root = "/");

/// Whether so much is more than the system can give, as far as it says.
[[nodiscard]] bool is_too_much(Bytes needed);

}  // namespace moestro::runtime
