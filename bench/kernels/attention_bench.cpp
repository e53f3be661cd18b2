// Causal attention of 4096 tokens in all, 8 query and 4 key-value heads of 64: sequences of 512 to
// 4096, and one of 8192. FLOPs count the visible half of the scores only.
#include <cmath>
#include <string>

#include "moestro/kernels/attention.h"
#include "moestro/kernels/gemm.h"
#include "rates.h"

namespace moestro::kernels {
namespace {

using testing::normal;
using testing::with_threads;

AttentionShape shape_of(std::int64_t batch, std::int64_t seq, std::int64_t window) {
  return {batch, seq, 8, 4, 64, 0.125F, window};
}

/// Products of queries and keys of the visible pairs, forward; the backward has 2.5 times as many.
Flops forward_flops(const AttentionShape& s) {
  double pairs = 0.0;
  for (std::int64_t i = 0; i < s.seq; ++i) {
    pairs += static_cast<double>(s.window > 0 ? std::min(s.window, i + 1) : i + 1);
  }
  return Flops{4.0 * pairs * static_cast<double>(s.batch * s.heads * s.head_dim)};
}

template <class T>
struct Buffers {
  std::vector<T> qkv, out, d_out, d_qkv;
  std::vector<float> log_sum_exp;

  explicit Buffers(const AttentionShape& s)
      : qkv(normal<T>(s.batch * s.seq * s.row(), 1)),
        out(static_cast<std::size_t>(s.batch * s.seq * s.heads * s.head_dim)),
        d_out(normal<T>(s.batch * s.seq * s.heads * s.head_dim, 2)),
        d_qkv(qkv.size()),
        log_sum_exp(static_cast<std::size_t>(s.batch * s.heads * s.seq)) {}

  void forward(const AttentionShape& s) {
    attention_forward(s, qkv.data(), out.data(), log_sum_exp.data());
  }
  void backward(const AttentionShape& s) {
    attention_backward(s, qkv.data(), out.data(), log_sum_exp.data(), d_out.data(), d_qkv.data());
  }
};

/// A shape small enough for the reference in double, with the same heads and blocks cut short.
template <class T>
double error_of_small_shape(std::int64_t window) {
  const AttentionShape s = shape_of(1, 300, window);
  Buffers<T> b(s);
  b.forward(s);
  b.backward(s);
  const auto expected =
      testing::attention_gradient(s, testing::widen(b.qkv), testing::widen(b.d_out));
  return testing::relative_error(b.d_qkv, expected);
}

template <class T>
void attention(benchmark::State& state, const AttentionShape& shape, bool is_backward) {
  const int threads = static_cast<int>(state.range(0));
  with_threads(threads, [&] {
    const double error = error_of_small_shape<T>(shape.window);
    if (!benches::is_correct(state, error, 2 * testing::kTolerance<T>)) return;
    Buffers<T> buffers(shape);
    buffers.forward(shape);
    const Seconds best = benches::fastest(state, [&] {
      if (is_backward) {
        buffers.backward(shape);
      } else {
        buffers.forward(shape);
      }
    });
    const Flops flops = (is_backward ? 2.5 : 1.0) * forward_flops(shape);
    benches::report_flops(state, flops, best, benches::kGemmType<T>, threads);
  });
}

template <class T>
void add_type(const std::string& type) {
  for (const std::int64_t seq : {512, 1024, 2048, 4096, 8192}) {
    const auto shape = shape_of(std::max<std::int64_t>(1, 4096 / seq), seq, 0);
    for (const bool is_backward : {false, true}) {
      const std::string name =
          "attention/S=" + std::to_string(seq) + (is_backward ? "/backward/" : "/forward/") + type;
      benches::one_and_all_threads(benchmark::RegisterBenchmark(
          name.c_str(), [=](benchmark::State& state) { attention<T>(state, shape, is_backward); }));
    }
  }
}

}  // namespace

void benches::register_attention() {
  add_type<float>("f32");
  if (has_fast_bf16()) add_type<bf16>("bf16");
}

}  // namespace moestro::kernels
