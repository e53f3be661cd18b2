// Products of a training step: hidden 512, experts of width 512 (gate | up fused), 4096 tokens,
// 16 experts with about 512 rows each.
#include <limits>
#include <string>
#include <utility>

#include "moestro/kernels/gemm.h"
#include "rates.h"

namespace moestro::kernels {
namespace {

using benches::fastest;
using benches::is_correct;
using benches::kGemmType;
using benches::one_and_all_threads;
using benches::report_flops;
using testing::normal;
using testing::with_threads;

struct Size {
  std::int64_t m, n, k;
};

Flops flops_of(const Size& s, std::int64_t count = 1) {
  return Flops{2.0 * static_cast<double>(count) * static_cast<double>(s.m) *
               static_cast<double>(s.n) * static_cast<double>(s.k)};
}

/// Compares a few entries of c = a b with sums in double.
template <class T, class C>
double sampled_error(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<C>& c) {
  const auto at = [](const auto& m, std::int64_t i, std::int64_t j) {
    return static_cast<double>(
        to_float(m.data[m.is_transposed ? j * m.stride + i : i * m.stride + j]));
  };
  testing::Doubles actual;
  testing::Doubles expected;
  for (std::int64_t i = 0; i < c.rows; i += 1 + c.rows / 13) {
    for (std::int64_t j = 0; j < c.cols; j += 1 + c.cols / 13) {
      double sum = 0.0;
      for (std::int64_t l = 0; l < a.cols; ++l) sum += at(a, i, l) * at(b, l, j);
      expected.push_back(sum);
      actual.push_back(at(c, i, j));
    }
  }
  return testing::relative_error(actual, expected);
}

/// y = x W^T as a linear layer stores its weight.
template <class T, class C>
void linear(benchmark::State& state, Size s) {
  const auto x = normal<T>(s.m * s.k, 1);
  const auto w = normal<T>(s.n * s.k, 2);
  std::vector<C> y(static_cast<std::size_t>(s.m * s.n));
  const int threads = static_cast<int>(state.range(0));
  with_threads(threads, [&] {
    const auto a = rows_of(x.data(), s.m, s.k);
    const auto b = transposed(rows_of(w.data(), s.n, s.k));
    const auto c = rows_of(y.data(), s.m, s.n);
    gemm_rows(a, b, c);
    if (!is_correct(state, sampled_error(a, b, c), testing::kTolerance<C>)) return;
    const Seconds best = fastest(state, [&] { gemm_rows(a, b, c); });
    report_flops(state, flops_of(s), best, kGemmType<T>, threads);
  });
}

/// dx = dy W.
template <class T, class C>
void input_gradient(benchmark::State& state, Size s) {
  const auto dy = normal<T>(s.m * s.k, 1);
  const auto w = normal<T>(s.k * s.n, 2);
  std::vector<C> dx(static_cast<std::size_t>(s.m * s.n));
  const int threads = static_cast<int>(state.range(0));
  with_threads(threads, [&] {
    const auto a = rows_of(dy.data(), s.m, s.k);
    const auto b = rows_of(w.data(), s.k, s.n);
    const auto c = rows_of(dx.data(), s.m, s.n);
    gemm_rows(a, b, c);
    if (!is_correct(state, sampled_error(a, b, c), testing::kTolerance<C>)) return;
    const Seconds best = fastest(state, [&] { gemm_rows(a, b, c); });
    report_flops(state, flops_of(s), best, kGemmType<T>, threads);
  });
}

/// dW [m, n] += dy^T x over k tokens.
template <class T>
void weight_gradient(benchmark::State& state, Size s) {
  const auto dy = normal<T>(s.k * s.m, 1);
  const auto x = normal<T>(s.k * s.n, 2);
  std::vector<float> dw(static_cast<std::size_t>(s.m * s.n));
  const int threads = static_cast<int>(state.range(0));
  with_threads(threads, [&] {
    const auto a = rows_of(dy.data(), s.k, s.m);
    const auto b = rows_of(x.data(), s.k, s.n);
    const auto c = rows_of(dw.data(), s.m, s.n);
    gemm_weight_gradient(a, b, c, false);
    if (!is_correct(state, sampled_error(transposed(a), b, c), testing::kTolerance<float>)) return;
    const Seconds best = fastest(state, [&] { gemm_weight_gradient(a, b, c, true); });
    report_flops(state, flops_of(s), best, kGemmType<T>, threads);
  });
}

/// Rows of each of 16 experts: 8192 in all, as uneven as a router makes them.
std::vector<std::int64_t> expert_offsets() {
  std::vector<std::int64_t> offset = {0};
  for (std::int64_t e = 0; e < 16; ++e) offset.push_back(offset.back() + 512 + 37 * (e % 5 - 2));
  return offset;
}

enum class Pass { forward, input_gradient, weight_gradient };

/// What 16 experts read and write, and views of one's part: products of 1024 x 512 (gate | up).
template <class T>
struct Experts {
  static constexpr std::int64_t kCount = 16;
  static constexpr std::int64_t kIn = 512;
  static constexpr std::int64_t kOut = 1024;

  std::vector<std::int64_t> offset = expert_offsets();
  std::int64_t rows = offset.back();
  std::vector<T> x = normal<T>(rows * kIn, 1);
  std::vector<T> w = normal<T>(kCount * kOut * kIn, 2);
  std::vector<T> dy = normal<T>(rows * kOut, 3);
  std::vector<T> y = std::vector<T>(dy.size());
  std::vector<T> dx = std::vector<T>(x.size());
  std::vector<float> dw = std::vector<float>(w.size());

  template <class V>
  auto part(V& all, std::int64_t e, std::int64_t width) {
    const std::int64_t begin = offset[static_cast<std::size_t>(e)];
    const std::int64_t count = offset[static_cast<std::size_t>(e + 1)] - begin;
    return rows_of(all.data() + begin * width, count, width);
  }
  template <class V>
  static auto weight(V& all, std::int64_t e) {
    return rows_of(all.data() + e * kOut * kIn, kOut, kIn);
  }
  Matrix<const T> in(std::int64_t e) { return part(std::as_const(x), e, kIn); }
  Matrix<const T> d_out(std::int64_t e) { return part(std::as_const(dy), e, kOut); }
  Matrix<const T> weight(std::int64_t e) { return weight(std::as_const(w), e); }

  void run(Pass pass, std::int64_t e) {
    switch (pass) {
      case Pass::forward:
        return gemm_rows(in(e), transposed(weight(e)), part(y, e, kOut));
      case Pass::input_gradient:
        return gemm_rows(d_out(e), weight(e), part(dx, e, kIn));
      case Pass::weight_gradient:
        return gemm_weight_gradient(d_out(e), in(e), weight(dw, e), true);
    }
  }
  /// After one run.
  double error(Pass pass, std::int64_t e) {
    switch (pass) {
      case Pass::forward:
        return sampled_error(in(e), transposed(weight(e)), part(y, e, kOut));
      case Pass::input_gradient:
        return sampled_error(d_out(e), weight(e), part(dx, e, kIn));
      case Pass::weight_gradient:
        return sampled_error(transposed(d_out(e)), in(e), weight(dw, e));
    }
    return std::numeric_limits<double>::infinity();
  }
};

/// One product of every expert, experts in parallel.
template <class T>
void experts(benchmark::State& state, Pass pass) {
  using E = Experts<T>;
  E all;
  const double tolerance =
      pass == Pass::weight_gradient ? testing::kTolerance<float> : testing::kTolerance<T>;
  const int threads = static_cast<int>(state.range(0));
  with_threads(threads, [&] {
    const auto run = [&] {
      parallel_for(E::kCount, 1, [&](std::int64_t e, std::int64_t) { all.run(pass, e); });
    };
    run();
    for (std::int64_t e = 0; e < E::kCount; ++e) {
      if (!is_correct(state, all.error(pass, e), tolerance)) return;
    }
    const Seconds best = fastest(state, run);
    report_flops(state, flops_of({all.rows, E::kOut, E::kIn}), best, kGemmType<T>, threads);
  });
}

void peak(benchmark::State& state, GemmType type) {
  const int threads = static_cast<int>(state.range(0));
  while (state.KeepRunningBatch(1)) benchmark::DoNotOptimize(measure_gemm_peak(type, threads));
  state.counters["FLOP/s"] = benches::gemm_peak(type, threads).value();
}

template <class Function, class... Args>
void add(const std::string& name, Function function, Args... args) {
  one_and_all_threads(benchmark::RegisterBenchmark(
      name.c_str(), [=](benchmark::State& state) { function(state, args...); }));
}

template <class T>
void add_type(const std::string& type) {
  // The dense products of one layer, of the router and of the head.
  add("gemm/qkv/" + type, linear<T, T>, Size{4096, 1024, 512});
  add("gemm/qkv_dx/" + type, input_gradient<T, T>, Size{4096, 512, 1024});
  add("gemm/qkv_dw/" + type, weight_gradient<T>, Size{1024, 512, 4096});
  add("gemm/out/" + type, linear<T, T>, Size{4096, 512, 512});
  add("gemm/out_dw/" + type, weight_gradient<T>, Size{512, 512, 4096});
  add("gemm/router/" + type, linear<T, float>, Size{4096, 16, 512});
  add("gemm/head/" + type, linear<T, float>, Size{1024, 8192, 512});
  add("gemm/head_dx/" + type, input_gradient<T, float>, Size{1024, 512, 8192});
  add("gemm/head_dw/" + type, weight_gradient<T>, Size{8192, 512, 1024});
  add("gemm/experts/" + type, experts<T>, Pass::forward);
  add("gemm/experts_dx/" + type, experts<T>, Pass::input_gradient);
  add("gemm/experts_dw/" + type, experts<T>, Pass::weight_gradient);
}

}  // namespace

void benches::register_gemm() {
  add("gemm/peak/f32", peak, GemmType::f32);
  add_type<float>("f32");
  if (!has_fast_bf16()) return;
  add("gemm/peak/bf16", peak, GemmType::bf16);
  add_type<bf16>("bf16");
}

}  // namespace moestro::kernels
