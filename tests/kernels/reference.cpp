#include "reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "moestro/core/rng.h"

namespace moestro::kernels::testing {

template <class T>
std::vector<T> normal(std::int64_t n, std::uint64_t seed, double scale) {
  Rng rng(seed);
  std::vector<T> values(static_cast<std::size_t>(n));
  for (T& value : values) value = from_float<T>(static_cast<float>(scale * rng.normal()));
  return values;
}
template std::vector<float> normal(std::int64_t, std::uint64_t, double);
template std::vector<bf16> normal(std::int64_t, std::uint64_t, double);

Doubles widen(const std::vector<float>& x) {
  return {x.begin(), x.end()};
}

Doubles widen(const std::vector<bf16>& x) {
  Doubles out(x.size());
  std::transform(x.begin(), x.end(), out.begin(),
                 [](bf16 value) { return static_cast<double>(to_float(value)); });
  return out;
}

double relative_error(const Doubles& actual, const Doubles& expected) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (actual.size() != expected.size()) return kInfinity;
  double error = 0.0;
  double largest = 0.0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (!std::isfinite(actual[i]) || !std::isfinite(expected[i])) return kInfinity;
    error = std::max(error, std::abs(actual[i] - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  return error / (largest > 0.0 ? largest : 1.0);
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}
template bool same_bits(const std::vector<float>&, const std::vector<float>&);
template bool same_bits(const std::vector<double>&, const std::vector<double>&);
template bool same_bits(const std::vector<bf16>&, const std::vector<bf16>&);

void with_threads(int threads, const std::function<void()>& body) {
  const int before = num_threads();
  set_num_threads(threads);
  body();
  set_num_threads(before);
}

Doubles numeric_gradient(const std::function<double(const Doubles&)>& f, Doubles x) {
  constexpr double kStep = 1e-5;
  Doubles gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + kStep;
    const double above = f(x);
    x[i] = at - kStep;
    const double below = f(x);
    x[i] = at;
    gradient[i] = (above - below) / (2.0 * kStep);
  }
  return gradient;
}

double dot(const Doubles& a, const Doubles& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Doubles multiply(const Doubles& a, const Doubles& b, std::int64_t m, std::int64_t n,
                 std::int64_t k) {
  Doubles out(static_cast<std::size_t>(m * n), 0.0);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t l = 0; l < k; ++l) {
      const double factor = a[static_cast<std::size_t>(i * k + l)];
      for (std::int64_t j = 0; j < n; ++j) {
        out[static_cast<std::size_t>(i * n + j)] += factor * b[static_cast<std::size_t>(l * n + j)];
      }
    }
  }
  return out;
}

Doubles transpose(const Doubles& a, std::int64_t rows, std::int64_t cols) {
  Doubles out(a.size());
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      out[static_cast<std::size_t>(c * rows + r)] = a[static_cast<std::size_t>(r * cols + c)];
    }
  }
  return out;
}

namespace {

/// Where the rows of one query's head, and of the key and value it meets, begin.
struct Pair {
  std::size_t q, k, v;
};

Pair at(const AttentionShape& s, std::int64_t batch, std::int64_t head, std::int64_t i,
        std::int64_t j) {
  const std::int64_t kv = head * s.kv_heads / s.heads;
  const std::int64_t query_row = (batch * s.seq + i) * s.row();
  const std::int64_t key_row = (batch * s.seq + j) * s.row();
  return {static_cast<std::size_t>(query_row + head * s.head_dim),
          static_cast<std::size_t>(key_row + (s.heads + kv) * s.head_dim),
          static_cast<std::size_t>(key_row + (s.heads + s.kv_heads + kv) * s.head_dim)};
}

std::int64_t first_visible(const AttentionShape& s, std::int64_t i) {
  return s.window > 0 ? std::max<std::int64_t>(0, i - s.window + 1) : 0;
}

/// Softmax of one query over its visible keys, from first_visible on; returns log-sum-exp.
double softmax(const AttentionShape& s, const Doubles& qkv, std::int64_t batch, std::int64_t head,
               std::int64_t i, Doubles& p) {
  p.clear();
  for (std::int64_t j = first_visible(s, i); j <= i; ++j) {
    const Pair pair = at(s, batch, head, i, j);
    double score = 0.0;
    for (std::size_t d = 0; d < static_cast<std::size_t>(s.head_dim); ++d) {
      score += qkv[pair.q + d] * qkv[pair.k + d];
    }
    p.push_back(score * static_cast<double>(s.scale));
  }
  const double peak = *std::max_element(p.begin(), p.end());
  double sum = 0.0;
  for (const double score : p) sum += std::exp(score - peak);
  const double lse = peak + std::log(sum);
  for (double& score : p) score = std::exp(score - lse);
  return lse;
}

void for_queries(const AttentionShape& s,
                 const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& body) {
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      for (std::int64_t i = 0; i < s.seq; ++i) body(b, h, i);
    }
  }
}

std::size_t out_at(const AttentionShape& s, std::int64_t b, std::int64_t h, std::int64_t i) {
  return static_cast<std::size_t>(((b * s.seq + i) * s.heads + h) * s.head_dim);
}

}  // namespace

AttentionResult attention(const AttentionShape& s, const Doubles& qkv) {
  AttentionResult result;
  result.out.resize(static_cast<std::size_t>(s.batch * s.seq * s.heads * s.head_dim));
  Doubles p;
  for_queries(s, [&](std::int64_t b, std::int64_t h, std::int64_t i) {
    result.log_sum_exp.push_back(softmax(s, qkv, b, h, i, p));
    const std::size_t out = out_at(s, b, h, i);
    for (std::size_t n = 0; n < p.size(); ++n) {
      const Pair pair = at(s, b, h, i, first_visible(s, i) + static_cast<std::int64_t>(n));
      for (std::size_t d = 0; d < static_cast<std::size_t>(s.head_dim); ++d) {
        result.out[out + d] += p[n] * qkv[pair.v + d];
      }
    }
  });
  return result;
}

Doubles attention_gradient(const AttentionShape& s, const Doubles& qkv, const Doubles& d_out) {
  Doubles gradient(qkv.size(), 0.0);
  const auto width = static_cast<std::size_t>(s.head_dim);
  Doubles p;
  Doubles d_p;
  for_queries(s, [&](std::int64_t b, std::int64_t h, std::int64_t i) {
    softmax(s, qkv, b, h, i, p);
    const std::size_t out = out_at(s, b, h, i);
    d_p.assign(p.size(), 0.0);
    for (std::size_t n = 0; n < p.size(); ++n) {
      const Pair pair = at(s, b, h, i, first_visible(s, i) + static_cast<std::int64_t>(n));
      for (std::size_t d = 0; d < width; ++d) {
        d_p[n] += d_out[out + d] * qkv[pair.v + d];
        gradient[pair.v + d] += p[n] * d_out[out + d];
      }
    }
    const double mean = dot(p, d_p);
    for (std::size_t n = 0; n < p.size(); ++n) {
      const Pair pair = at(s, b, h, i, first_visible(s, i) + static_cast<std::int64_t>(n));
      const double d_score = p[n] * (d_p[n] - mean) * static_cast<double>(s.scale);
      for (std::size_t d = 0; d < width; ++d) {
        gradient[pair.q + d] += d_score * qkv[pair.k + d];
        gradient[pair.k + d] += d_score * qkv[pair.q + d];
      }
    }
  });
  return gradient;
}

}  // namespace moestro::kernels::testing
