// Kernel benchmarks: kernels_bench --benchmark_filter=gemm, or attention, or rows.
#include <benchmark/benchmark.h>

#include "rates.h"

int main(int argc, char** argv) {
  moestro::kernels::benches::register_gemm();
  moestro::kernels::benches::register_attention();
  moestro::kernels::benches::register_rows();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return moestro::kernels::benches::num_wrong_results() > 0 ? 1 : 0;
}
