#pragma once
// CPU memory for tensors that is recycled instead of returned to the system. Page faults of freshly
// mapped activations were measured to cost more than the arithmetic done on them.

#include "moestro/core/units.h"

namespace moestro::layers {

/// Makes torch's CPU tensors use the caching allocator from now on; call before the first tensor.
/// Calling again changes nothing.
void install_caching_allocator();

/// What the allocator took from the system, and what tensors hold of it now.
struct AllocatorUse {
  Bytes reserved, used, peak_used;
};
[[nodiscard]] AllocatorUse allocator_use();
/// Forgets the peak: peak_used counts from the present use on.
void reset_allocator_peak();

}  // namespace moestro::layers
