#include "moestro/kernels/gemm_peak.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <vector>

#include "moestro/kernels/gemm.h"
#include "moestro/kernels/parallel.h"

namespace moestro::kernels {
namespace {

struct Shape {
  std::int64_t m, n, k;
};

constexpr std::array kShapes = {Shape{4096, 1024, 512}, Shape{2048, 1024, 1024},
                                Shape{512, 1024, 512}};

class ThreadsForNow {
 public:
  explicit ThreadsForNow(int threads) : before_(num_threads()) { set_num_threads(threads); }
  ~ThreadsForNow() { set_num_threads(before_); }
  ThreadsForNow(const ThreadsForNow&) = delete;
  ThreadsForNow& operator=(const ThreadsForNow&) = delete;

 private:
  int before_;
};

double now_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

/// Values in [-1, 1) without a pattern the hardware could profit from.
template <class T>
std::vector<T> arbitrary(std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  std::uint32_t state = 1;
  for (T& value : values) {
    state = state * 1664525U + 1013904223U;  // Numerical Recipes
    value = from_float<T>(static_cast<float>(state >> 8U) * 0x1p-23F - 1.0F);
  }
  return values;
}

template <class T>
FlopsPerSecond measure_shape(const Shape& s, double limit_seconds) {
  const auto a = arbitrary<T>(s.m * s.k);
  const auto b = arbitrary<T>(s.k * s.n);
  std::vector<T> c(static_cast<std::size_t>(s.m * s.n));
  const auto call = [&] {
    gemm(rows_of(a.data(), s.m, s.k), rows_of(b.data(), s.k, s.n), rows_of(c.data(), s.m, s.n));
  };
  call();
  const double start = now_seconds();
  double best = std::numeric_limits<double>::infinity();
  double before = start;
  for (int repetition = 0; repetition < 2 || before - start < limit_seconds; ++repetition) {
    call();
    const double after = now_seconds();
    best = std::min(best, after - before);
    before = after;
  }
  const auto flops =
      2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  return Flops{flops} / Seconds{best};
}

}  // namespace

FlopsPerSecond measure_gemm_peak(GemmType type, int threads, Seconds limit) {
  const ThreadsForNow guard(threads);
  const double each = limit.value() / static_cast<double>(kShapes.size());
  FlopsPerSecond peak;
  for (const Shape& shape : kShapes) {
    peak = std::max(peak, type == GemmType::f32 ? measure_shape<float>(shape, each)
                                                : measure_shape<bf16>(shape, each));
  }
  return peak;
}

}  // namespace moestro::kernels
