#pragma once
// The rate this machine multiplies matrices at, measured: what MFU and the benchmarks divide by.

#include <cstdint>

#include "moestro/core/units.h"

namespace moestro::kernels {

enum class GemmType : std::uint8_t { f32, bf16 };

struct GemmPeak {
  FlopsPerSecond rate;
  double core_share = 1.0;  // of its cores' time that the measurement got: others had the rest
};

/// A core_share of less means that others were at work.
inline constexpr double kUndisturbedShare = 0.9;

/// Best rate of `gemm` over a few shapes a training step is made of, [M, K] by [K, N]: a dense
/// layer ([4096, 512] by [512, 1024]), a square one ([2048, 1024] by [1024, 1024]) and an expert
/// ([512, 512] by [512, 1024]), with fewer rows where more than 8 threads need a result each; bf16
/// inputs give bf16 output. `threads` threads (0 or less: one per core, never more) multiply side
/// by side, each repeating every shape for its third of `limit`, at least three times. The rate is
/// the sum of their fastest calls, in processor time, so that a busy machine has the peak of an
/// idle one. Errors: input, if this build has no GEMM.
[[nodiscard]] GemmPeak measure_gemm_peak(GemmType type, int threads, Seconds limit = Seconds{0.3});

}  // namespace moestro::kernels
