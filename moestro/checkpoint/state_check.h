#pragma once
// What trainer.json must say for training to go on from it: the same judgement for resuming and for
// `moestro verify`.

#include <string>

#include "moestro/core/json.h"

namespace moestro::checkpoint {

/// Checks every number that resuming relies on, alone and against the others: the sequences seen
/// say where in the data the position is. `file` is what messages call it.
/// Errors: input, naming the key, what was expected, and that the file is damaged.
void check_state(const Json& state, const std::string& file);

}  // namespace moestro::checkpoint
