#include "rates.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

namespace moestro::kernels::benches {
namespace {

int wrong_results = 0;  // Google Benchmark exits with 0 whatever was skipped

double now_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

BytesPerSecond measure_copy(int threads) {
  constexpr std::int64_t kBytes = 64 << 20;
  constexpr std::int64_t kBlock = 1 << 18;
  std::vector<char> from(kBytes, 1);
  std::vector<char> to(kBytes, 2);
  double best = 1e9;
  testing::with_threads(threads, [&] {
    for (int repetition = 0; repetition < 8; ++repetition) {
      const double start = now_seconds();
      parallel_for(kBytes, kBlock, [&](std::int64_t begin, std::int64_t end) {
        std::memcpy(to.data() + begin, from.data() + begin, static_cast<std::size_t>(end - begin));
      });
      best = std::min(best, now_seconds() - start);
    }
  });
  benchmark::DoNotOptimize(to.data());
  return Bytes{2.0 * kBytes} / Seconds{best};
}

}  // namespace

BytesPerSecond copy_rate(int threads) {
  static std::map<int, BytesPerSecond> measured;
  const auto found = measured.find(threads);
  if (found != measured.end()) return found->second;
  return measured.emplace(threads, measure_copy(threads)).first->second;
}

FlopsPerSecond gemm_peak(GemmType type, int threads) {
  static std::map<std::pair<GemmType, int>, FlopsPerSecond> measured;
  const auto found = measured.find({type, threads});
  if (found != measured.end()) return found->second;
  const FlopsPerSecond peak = measure_gemm_peak(type, threads).rate;
  measured.emplace(std::pair{type, threads}, peak);
  return peak;
}

Seconds fastest(benchmark::State& state, const std::function<void()>& body) {
  double best = std::numeric_limits<double>::infinity();
  for (auto _ : state) {
    const double start = now_seconds();
    body();
    best = std::min(best, now_seconds() - start);
  }
  state.counters["best_ms"] = best * 1e3;
  return Seconds{best};
}

void report_flops(benchmark::State& state, Flops flops, Seconds best, GemmType type, int threads) {
  const FlopsPerSecond rate = flops / best;
  state.counters["FLOP/s"] = rate.value();
  state.counters["of_gemm_peak"] = rate / gemm_peak(type, threads);
}

void report_bytes(benchmark::State& state, Bytes bytes, Seconds best, int threads) {
  const BytesPerSecond rate = bytes / best;
  state.counters["B/s"] = rate.value();
  state.counters["of_copy"] = rate / copy_rate(threads);
}

bool is_correct(benchmark::State& state, double error, double tolerance) {
  if (error < tolerance) return true;
  state.SkipWithError("wrong result");
  wrong_results += 1;
  return false;
}

int num_wrong_results() {
  return wrong_results;
}

void one_and_all_threads(benchmark::internal::Benchmark* bench) {
  bench->ArgName("threads")->Arg(1);
  if (num_threads() > 1) bench->Arg(num_threads());
  bench->UseRealTime()->Unit(benchmark::kMillisecond);
}

}  // namespace moestro::kernels::benches
