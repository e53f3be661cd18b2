#pragma once
// What a kernel's speed is divided by, measured in the same run on the same threads: the GEMM peak
// and the rate of a plain copy. Also the checks that every benchmark makes before it times.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "moestro/core/units.h"
#include "moestro/kernels/gemm_peak.h"
#include "reference.h"

namespace moestro::kernels::benches {

/// Best of several copies of 64 MiB (out of cache), counting bytes read and written.
[[nodiscard]] BytesPerSecond copy_rate(int threads);

/// Peak of measure_gemm_peak, measured once per type and thread count.
[[nodiscard]] FlopsPerSecond gemm_peak(GemmType type, int threads);

/// Runs the timed iterations; returns the fastest. On a machine shared with other work the fastest
/// is what the kernel can do, as the peak and the copy rate are the fastest of theirs.
[[nodiscard]] Seconds fastest(benchmark::State& state, const std::function<void()>& body);

/// Adds FLOP/s of the fastest iteration and its share of the GEMM peak.
void report_flops(benchmark::State& state, Flops flops, Seconds best, GemmType type, int threads);

/// Adds B/s and the share of the copy rate; `bytes` is the least that must be read and written.
void report_bytes(benchmark::State& state, Bytes bytes, Seconds best, int threads);

/// Marks the benchmark as failed if `error` is not below `tolerance`; true if it may be timed.
[[nodiscard]] bool is_correct(benchmark::State& state, double error, double tolerance);

/// Benchmarks that is_correct marked as failed so far.
[[nodiscard]] int num_wrong_results();

/// Registers the thread counts 1 and all cores.
void one_and_all_threads(benchmark::internal::Benchmark* bench);

/// Each adds the benchmarks of one file.
void register_gemm();
void register_attention();
void register_rows();

template <class T>
inline constexpr GemmType kGemmType = GemmType::f32;
template <>
inline constexpr GemmType kGemmType<bf16> = GemmType::bf16;

}  // namespace moestro::kernels::benches
