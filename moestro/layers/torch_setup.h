#pragma once
// What must be set in torch before it is used here.

namespace moestro::layers {

/// Installs the caching allocator and switches off the oneDNN inside libtorch: it shares exported
/// symbols with the libdnnl that kernels/ uses, which is of another version, and computes nonsense
/// with them. ATen's own loops take over; what runs hot on the CPU is in kernels/ anyway.
/// Call before the first tensor; calling again changes nothing.
void set_up_torch();

}  // namespace moestro::layers
