#pragma once
// What fits into this machine: asked before memory is taken, since a process that takes more than
// there is is killed without a word.

#include "moestro/core/units.h"

namespace moestro::runtime {

/// Memory the system can give without swapping; nothing, if it does not say.
[[nodiscard]] Bytes available_memory();

/// Whether so much is more than the system can give, as far as it says.
[[nodiscard]] bool is_too_much(Bytes needed);

}  // namespace moestro::runtime
