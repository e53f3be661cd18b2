#pragma once
// The rate this machine multiplies matrices at, measured: what MFU and the benchmarks divide by.

#include <cstdint>

#include "moestro/core/units.h"

namespace moestro::kernels {

enum class GemmType : std::uint8_t { f32, bf16 };

/// Best rate of `gemm` over a few shapes a training step is made of, [M, K] by [K, N]: a dense
/// layer
/// ([4096, 512] by [512, 1024]), a square one ([2048, 1024] by [1024, 1024]) and an expert ([512,
/// 512] by [512, 1024]); bf16 inputs give bf16 output. Each shape is repeated for its third of
/// `limit`, at least twice after one call that compiles it; the fastest call counts. `threads` as
/// in set_num_threads; the calling thread's setting is restored. Errors: input, if this build has
/// no GEMM.
[[nodiscard]] FlopsPerSecond measure_gemm_peak(GemmType type, int threads,
                                               Seconds limit = Seconds{0.3});

}  // namespace moestro::kernels
