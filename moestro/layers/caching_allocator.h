#pragma once
// CPU memory for tensors that is recycled instead of returned to the system. Page faults of freshly
// mapped activations were measured to cost more than the arithmetic done on them.

#include "moestro/core/units.h"

namespace moestro::layers {

/// Makes torch's CPU tensors use the caching allocator from now on; call before the first tensor.
/// Calling again changes nothing. Where the system has no more memory, what is cached goes back to
/// it before an allocation fails (std::bad_alloc).
void install_caching_allocator();

/// What the allocator took from the system, and what tensors hold of it now and held at most. A
/// tensor counts with what it takes: at most 12.5 % more than its elements, from 512 bytes on.
struct AllocatorUse {
  Bytes reserved, used, peak_used;
};
[[nodiscard]] AllocatorUse allocator_use();

}  // namespace moestro::layers
