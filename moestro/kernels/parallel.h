#pragma once
// The one way kernels use several cores. Work is cut into fixed blocks whatever the number of
// threads, and no result depends on which thread ran a block: bits are the same on 1 and on N.
//
//   parallel_for(rows, 64, [&](std::int64_t begin, std::int64_t end) { ... });

#include <cstdint>
#include <type_traits>

namespace moestro::kernels {

/// Sets how many threads kernels called from this thread may use; 0 or less: all cores the process
/// may run on, which is the default.
void set_num_threads(int threads);
[[nodiscard]] int num_threads();
/// Cores the process may run on, or as many as the time a container grants it keeps busy.
[[nodiscard]] int available_cores();

namespace internal {
using RangeFunction = void (*)(void* context, std::int64_t begin, std::int64_t end);
void run_blocks(std::int64_t count, std::int64_t block, RangeFunction function, void* context);
}  // namespace internal

/// Calls body(begin, end) for consecutive blocks of at most `block` out of [0, count), on several
/// threads, dynamically balanced. A nested call runs in the calling thread. If bodies throw, the
/// first exception caught reaches the caller; blocks not yet begun are then skipped.
template <class Body>
void parallel_for(std::int64_t count, std::int64_t block, const Body& body) {
  internal::run_blocks(
      count, block,
      [](void* context, std::int64_t begin, std::int64_t end) {
        (*static_cast<const Body*>(context))(begin, end);
      },
      const_cast<std::remove_const_t<Body>*>(&body));
}

}  // namespace moestro::kernels
