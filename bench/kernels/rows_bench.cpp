// Everything that is no product, at the sizes of a training step: 4096 tokens, hidden 512, top 2 of
// 16 experts of width 512, vocabulary 8192. Bytes are the least that must be read and written.
#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <string>

#include "moestro/kernels/adamw.h"
#include "moestro/kernels/cross_entropy.h"
#include "moestro/kernels/embedding.h"
#include "moestro/kernels/rms_norm.h"
#include "moestro/kernels/rope.h"
#include "moestro/kernels/routing.h"
#include "moestro/kernels/swiglu.h"
#include "rates.h"

namespace moestro::kernels {
namespace {

using testing::normal;
using testing::with_threads;

constexpr std::int64_t kTokens = 4096;
constexpr std::int64_t kHidden = 512;
constexpr std::int64_t kExperts = 16;
constexpr std::int64_t kTopK = 2;
constexpr std::int64_t kSlots = kTokens * kTopK;
constexpr std::int64_t kWidth = 512;
constexpr std::int64_t kVocabulary = 8192;
constexpr std::int64_t kParameters = 8 << 20;

/// Times `body`; `error` is computed after its first call (in shares of the tolerances where they
/// differ, with a `tolerance` of 1).
void run(benchmark::State& state, std::int64_t bytes, double tolerance,
         const std::function<void()>& body, const std::function<double()>& error) {
  const int threads = static_cast<int>(state.range(0));
  with_threads(threads, [&] {
    body();
    if (!benches::is_correct(state, error(), tolerance)) return;
    const Seconds best = benches::fastest(state, body);
    benches::report_bytes(state, Bytes{static_cast<double>(bytes)}, best, threads);
  });
}

template <class T>
std::int64_t bytes_of(const std::vector<T>& x) {
  return static_cast<std::int64_t>(x.size() * sizeof(T));
}
template <class T>
double entry(const std::vector<T>& x, std::int64_t i) {
  return static_cast<double>(to_float(x[static_cast<std::size_t>(i)]));
}

double relative(double actual, double expected) {
  return std::abs(actual - expected) / std::max(1.0, std::abs(expected));
}

double worst(std::initializer_list<double> errors) {
  double most = 0.0;
  for (const double e : errors) {
    if (std::isnan(e)) return e;
    most = std::max(most, e);
  }
  return most;
}

/// A layer's norm reads f32 and writes T.
constexpr NormShape kLayerNorm{kTokens, 1, kHidden, kHidden, kHidden, 1e-6F};
/// Norm of the q and k heads in packed q | k | v rows: 49152 rows of 64 values of T.
constexpr NormShape kHeadNorm{kTokens, 12, 64, 1024, 1024, 1e-6F};

template <class In, class Out>
struct Norm {
  NormShape shape;
  std::vector<In> x = normal<In>(shape.rows * shape.in_stride, 1);
  std::vector<float> weight = normal<float>(shape.width, 2);
  std::vector<Out> dy = normal<Out>(shape.rows * shape.out_stride, 3);
  std::vector<Out> y = std::vector<Out>(dy.size());
  std::vector<float> inverse =
      std::vector<float>(static_cast<std::size_t>(shape.rows * shape.groups));
  std::vector<In> dx = std::vector<In>(x.size());
  std::vector<float> d_weight = std::vector<float>(weight.size());

  void forward() { rms_norm_forward(shape, x.data(), weight.data(), y.data(), inverse.data()); }
  void backward() {
    rms_norm_backward(shape, x.data(), weight.data(), inverse.data(), dy.data(), dx.data(),
                      d_weight.data());
  }
  /// Bytes of x read, of y written (or of dy read), and of dx written in the backward.
  std::int64_t bytes(bool is_backward) const {
    const std::size_t inputs = (is_backward ? 2 : 1) * sizeof(In);
    return shape.rows * shape.groups * shape.width *
           static_cast<std::int64_t>(inputs + sizeof(Out));
  }
  double scale(std::int64_t begin) const {
    double sum = 0.0;
    for (std::int64_t i = begin; i < begin + shape.width; ++i) sum += entry(x, i) * entry(x, i);
    return 1.0 / std::sqrt(sum / static_cast<double>(shape.width) + 1e-6);
  }
  double forward_error() const {
    return relative(entry(y, 7), entry(x, 7) * scale(0) * entry(weight, 7));
  }
  /// After one run: weight gradients are added to.
  double backward_error() const {
    double mean = 0.0;  // of w dy x, in the first group of the last row
    const std::int64_t last_x = (shape.rows - 1) * shape.in_stride;
    const std::int64_t last_y = (shape.rows - 1) * shape.out_stride;
    for (std::int64_t i = 0; i < shape.width; ++i) {
      mean += entry(weight, i) * entry(dy, last_y + i) * entry(x, last_x + i) /
              static_cast<double>(shape.width);
    }
    const double r = scale(last_x);
    const double slope = entry(weight, 7) * entry(dy, last_y + 7) * r;
    const double expected_dx = slope - entry(x, last_x + 7) * mean * r * r * r;
    double expected_d_weight = 0.0;
    for (std::int64_t t = 0; t < shape.rows; ++t) {
      for (std::int64_t g = 0; g < shape.groups; ++g) {
        const std::int64_t begin = t * shape.in_stride + g * shape.width;
        expected_d_weight += entry(dy, t * shape.out_stride + g * shape.width + 7) *
                             entry(x, begin + 7) * scale(begin);
      }
    }
    return worst({relative(entry(dx, last_x + 7), expected_dx),
                  relative(entry(d_weight, 7), expected_d_weight)});
  }
};

template <class In, class Out>
void rms_norm(benchmark::State& state, const NormShape& shape, bool is_backward) {
  Norm<In, Out> n{shape};
  n.forward();
  run(
      state, n.bytes(is_backward), testing::kTolerance<Out>,
      [&] { is_backward ? n.backward() : n.forward(); },
      [&] { return is_backward ? n.backward_error() : n.forward_error(); });
}

template <class T>
void swiglu(benchmark::State& state, bool is_backward) {
  const auto gate_up = normal<T>(kSlots * 2 * kWidth, 1);
  const auto d_a = normal<T>(kSlots * kWidth, 2);
  const auto row_weight = normal<float>(kSlots, 3);
  std::vector<T> a(d_a.size()), d_gate_up(gate_up.size());
  std::vector<float> d_row_weight(kSlots);
  const auto sigmoid = [&](std::int64_t i) { return 1.0 / (1.0 + std::exp(-entry(gate_up, i))); };
  const auto silu = [&](std::int64_t i) { return entry(gate_up, i) * sigmoid(i); };
  const auto forward = [&] { swiglu_forward(kSlots, kWidth, gate_up.data(), a.data()); };
  const auto backward = [&] {
    swiglu_backward(kSlots, kWidth, gate_up.data(), d_a.data(), row_weight.data(), d_gate_up.data(),
                    a.data(), d_row_weight.data());
  };
  const auto backward_error = [&] {  // of the first row
    const double weight = entry(row_weight, 0);
    const double slope = entry(d_a, 5) * weight;
    const double up = entry(gate_up, kWidth + 5);
    const double d_silu = sigmoid(5) * (1.0 + entry(gate_up, 5) * (1.0 - sigmoid(5)));
    double inner = 0.0;
    for (std::int64_t i = 0; i < kWidth; ++i) {
      inner += silu(i) * entry(gate_up, kWidth + i) * entry(d_a, i);
    }
    return worst({relative(entry(a, 5), silu(5) * up * weight),
                  relative(entry(d_gate_up, 5), slope * up * d_silu),
                  relative(entry(d_gate_up, kWidth + 5), slope * silu(5)),
                  relative(entry(d_row_weight, 0), inner)});
  };
  if (is_backward) {
    run(state, 2 * bytes_of(gate_up) + bytes_of(d_a) + bytes_of(a), testing::kTolerance<T>,
        backward, backward_error);
  } else {
    run(state, bytes_of(gate_up) + bytes_of(a), testing::kTolerance<T>, forward,
        [&] { return relative(entry(a, 5), silu(5) * entry(gate_up, kWidth + 5)); });
  }
}

template <class T>
void rope_qk(benchmark::State& state) {
  const RopeShape s{kTokens, kTokens, 12, 64, 1024, 32, false};
  const auto before = normal<T>(kTokens * 1024, 1);
  auto data = before;
  const std::vector<float> cos(kTokens * 32, 0.6F);
  const std::vector<float> sin(kTokens * 32, 0.8F);
  run(
      state, kTokens * 12 * 64 * static_cast<std::int64_t>(2 * sizeof(T)), testing::kTolerance<T>,
      [&] { rope(s, data.data(), cos.data(), sin.data(), false); },
      [&] { return relative(entry(data, 3), 0.6 * entry(before, 3) - 0.8 * entry(before, 35)); });
}

template <class T>
void cross_entropy(benchmark::State& state) {
  constexpr std::int64_t kRows = 1024;
  const auto logits = normal<float>(kRows * kVocabulary, 1);
  const std::vector<std::int64_t> label(kRows, 77);
  std::vector<float> loss(kRows);
  std::vector<T> d(logits.size());
  run(
      state, bytes_of(logits) + bytes_of(d), 1.0,
      [&] {
        cross_entropy_rows(kRows, kVocabulary, logits.data(), label.data(), 1.0F, loss.data(),
                           d.data());
      },
      [&] {
        double sum = 0.0;
        for (std::int64_t i = 0; i < kVocabulary; ++i) sum += std::exp(entry(logits, i));
        const double expected = std::log(sum) - entry(logits, 77);
        const double other = entry(d, 78) / std::exp(entry(logits, 78) - std::log(sum));
        return worst({relative(entry(loss, 0), expected) / 1e-6,
                      relative(entry(d, 77), std::exp(-expected) - 1.0) / testing::kTolerance<T>,
                      std::abs(other - 1.0) / testing::kTolerance<T>});
      });
}

void adamw_step(benchmark::State& state, bool rounds) {
  auto w = normal<float>(kParameters, 1);
  const auto g = normal<float>(kParameters, 2);
  const double before = entry(w, 9);
  std::vector<float> m(w.size()), v(w.size());
  std::vector<bf16> compute(rounds ? w.size() : 0);
  const AdamwStep step{1e-3F, 0.9F, 0.95F, 1e-8F, 0.1F, 1.0F, 1};
  run(
      state, 7 * bytes_of(w) + bytes_of(compute), 1.0,
      [&] {
        adamw(step, kParameters, w.data(), g.data(), m.data(), v.data(),
              rounds ? compute.data() : nullptr);
      },
      [&] {  // the first step moves by lr times the gradient's sign
        const double moved = before * (1.0 - 1e-4) - (entry(g, 9) > 0.0 ? 1e-3 : -1e-3);
        const double rounded = rounds ? relative(entry(compute, 9), moved) : 0.0;
        return worst({relative(entry(w, 9), moved) / 1e-6, rounded / testing::kTolerance<bf16>});
      });
}

void sum_squares(benchmark::State& state) {
  const std::vector<float> x(kParameters, 0.5F);
  double sum = 0.0;
  run(
      state, bytes_of(x), 1e-12, [&] { sum = sum_of_squares(kParameters, x.data()); },
      [&] { return relative(sum, 0.25 * kParameters); });
}

struct Routing {
  RoutingRule rule;
  std::vector<float> logits = normal<float>(kTokens * kExperts, 1);
  std::vector<float> scores = std::vector<float>(kTokens * kExperts);
  std::vector<float> weight = std::vector<float>(kSlots);
  std::vector<std::int64_t> index = std::vector<std::int64_t>(kSlots);
  std::vector<std::int64_t> offset = std::vector<std::int64_t>(kExperts + 1);
  std::vector<std::int64_t> slot_of_row = std::vector<std::int64_t>(kSlots);
  std::vector<std::int64_t> row_of_slot = std::vector<std::int64_t>(kSlots);

  Routing() {
    rule.experts = kExperts;
    rule.top_k = kTopK;
    rule.renormalise = true;
    run();
  }
  void run() {
    route_forward(rule, kTokens, logits.data(), nullptr, scores.data(), index.data(),
                  weight.data());
    group_by_expert(kSlots, kExperts, index.data(), offset.data(), slot_of_row.data(),
                    row_of_slot.data());
  }
};

void route(benchmark::State& state) {
  Routing r;
  run(
      state, 2 * bytes_of(r.logits), 1e-6, [&] { r.run(); },
      [&] { return relative(entry(r.weight, 0) + entry(r.weight, 1), 1.0); });
}

template <class T>
void gather(benchmark::State& state) {
  const Routing r;
  const auto x = normal<T>(kTokens * kHidden, 1);
  std::vector<T> rows(static_cast<std::size_t>(kSlots * kHidden));
  run(
      state, bytes_of(x) + bytes_of(rows), 1e-12,
      [&] { gather_rows(kSlots, kHidden, kTopK, x.data(), r.slot_of_row.data(), rows.data()); },
      [&] { return relative(entry(rows, 3), entry(x, r.slot_of_row[0] / kTopK * kHidden + 3)); });
}

template <class T>
void combine(benchmark::State& state) {
  const Routing r;
  const auto rows = normal<T>(kSlots * kHidden, 1);
  std::vector<float> out(static_cast<std::size_t>(kTokens * kHidden));
  run(
      state, bytes_of(rows) + bytes_of(out), 1e-6,
      [&] {
        combine_rows<T, float>(kTokens, kHidden, kTopK, rows.data(), r.row_of_slot.data(),
                               r.weight.data(), nullptr, out.data());
      },
      [&] {
        const double expected = entry(r.weight, 0) * entry(rows, r.row_of_slot[0] * kHidden) +
                                entry(r.weight, 1) * entry(rows, r.row_of_slot[1] * kHidden);
        return relative(entry(out, 0), expected);
      });
}

template <class Function, class... Args>
void add(const std::string& name, Function function, Args... args) {
  benches::one_and_all_threads(benchmark::RegisterBenchmark(
      name.c_str(), [=](benchmark::State& state) { function(state, args...); }));
}

template <class T>
void add_type(const std::string& type) {
  add("rows/rms_norm/" + type, rms_norm<float, T>, kLayerNorm, false);
  add("rows/rms_norm_backward/" + type, rms_norm<float, T>, kLayerNorm, true);
  add("rows/head_norm/" + type, rms_norm<T, T>, kHeadNorm, false);
  add("rows/head_norm_backward/" + type, rms_norm<T, T>, kHeadNorm, true);
  add("rows/swiglu/" + type, swiglu<T>, false);
  add("rows/swiglu_backward/" + type, swiglu<T>, true);
  add("rows/rope/" + type, rope_qk<T>);
  add("rows/cross_entropy/" + type, cross_entropy<T>);
  add("rows/gather/" + type, gather<T>);
  add("rows/combine/" + type, combine<T>);
}

}  // namespace

void benches::register_rows() {
  add_type<float>("f32");
  add_type<bf16>("bf16");
  add("rows/adamw/f32", adamw_step, false);
  add("rows/adamw/bf16", adamw_step, true);
  add("rows/sum_of_squares/f32", sum_squares);
  add("rows/route/f32", route);
}

}  // namespace moestro::kernels
