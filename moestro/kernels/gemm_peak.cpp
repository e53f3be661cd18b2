#include "moestro/kernels/gemm_peak.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <future>
#include <limits>
#include <system_error>
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
// Every thread has a result of its own: with many, fewer rows keep all of them within 128 MiB.
constexpr std::int64_t kRowsOfAll = 32768, kLeastRows = 512;

double now_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

/// Processor time of the calling thread: what other programs take is not in it.
double used_seconds() {
  timespec used{};
  if (::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) != 0) return now_seconds();
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
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

struct Timing {
  double fastest = std::numeric_limits<double>::infinity();  // seconds of a call
  double used = 0.0;                                         // seconds of all of them
};

/// Repeats `call` in this thread until `end` of now_seconds(), at least three times: the first
/// compiles it and touches memory.
template <class Call>
Timing time_calls(const Call& call, double end) {
  Timing timing;
  for (int repetition = 0; repetition < 3 || now_seconds() < end; ++repetition) {
    const double before = used_seconds();
    call();
    const double seconds = used_seconds() - before;
    timing.fastest = std::min(timing.fastest, seconds);
    timing.used += seconds;
  }
  return timing;
}

class OneThreadForNow {
 public:
  OneThreadForNow() : before_(num_threads()) { set_num_threads(1); }
  ~OneThreadForNow() { set_num_threads(before_); }
  OneThreadForNow(const OneThreadForNow&) = delete;
  OneThreadForNow& operator=(const OneThreadForNow&) = delete;

 private:
  int before_;
};

/// Runs `work` in the calling thread and in as many others as there are threads to be had.
template <class Work>
std::vector<Timing> run_side_by_side(int threads, const Work& work) {
  std::vector<std::future<Timing>> others;
  try {
    while (static_cast<int>(others.size()) < threads - 1) {
      others.push_back(std::async(std::launch::async, work));
    }
  } catch (const std::system_error&) {
    // A limit of processes: the thread team does with fewer, too.
  }
  std::vector<Timing> timings = {work()};
  for (std::future<Timing>& other : others) timings.push_back(other.get());
  return timings;
}

template <class T>
GemmPeak measure_shape(const Shape& shape, int threads, double limit_seconds) {
  Shape s = shape;
  s.m = std::min(s.m, std::max(kLeastRows, kRowsOfAll / threads));
  const auto a = arbitrary<T>(s.m * s.k);
  const auto b = arbitrary<T>(s.k * s.n);
  const double start = now_seconds();
  const auto work = [&] {
    const OneThreadForNow guard;
    std::vector<T> c(static_cast<std::size_t>(s.m * s.n));
    const auto multiply = [&] {
      gemm(rows_of(a.data(), s.m, s.k), rows_of(b.data(), s.k, s.n), rows_of(c.data(), s.m, s.n));
    };
    return time_calls(multiply, start + limit_seconds);
  };
  const std::vector<Timing> timings = run_side_by_side(threads, work);
  const auto flops =
      2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  double rate = 0.0;
  double used = 0.0;
  for (const Timing& timing : timings) {
    rate += flops / timing.fastest;
    used += timing.used;
  }
  const double passed = (now_seconds() - start) * static_cast<double>(timings.size());
  return {FlopsPerSecond{rate}, std::min(1.0, used / passed)};
}

}  // namespace

GemmPeak measure_gemm_peak(GemmType type, int threads, Seconds limit) {
  const int cores = available_cores();
  const int count = threads > 0 ? std::min(threads, cores) : cores;
  const double each = limit.value() / static_cast<double>(kShapes.size());
  GemmPeak peak{.core_share = 0.0};
  for (const Shape& shape : kShapes) {
    const GemmPeak found = type == GemmType::f32 ? measure_shape<float>(shape, count, each)
                                                 : measure_shape<bf16>(shape, count, each);
    peak.rate = std::max(peak.rate, found.rate);
    peak.core_share += found.core_share / static_cast<double>(kShapes.size());
  }
  return peak;
}

}  // namespace moestro::kernels
