#include "moestro/layers/rope_tables.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <vector>

#include "moestro/core/error.h"

// Every operation is the f32 operation of transformers, in its order. An angle grows with the
// position and so does its rounding: exact angles differ by 1e-4 at position 2000, which sharp
// attention shows.

namespace moestro::layers {
namespace {

using std::numbers::pi;

at::Tensor numbers(std::int64_t count) {
  return at::arange(count, at::TensorOptions().dtype(at::kFloat));
}

/// number / tensor as Python computes it.
at::Tensor quotient(double number, const at::Tensor& tensor) {
  return at::reciprocal(tensor) * number;
}

/// theta^(2 i / rotary_dim): what a position is divided by in dimension i.
at::Tensor plain_periods(const model::Rope& rope) {
  return at::pow(rope.theta, numbers(rope.rotary_dim / 2) * 2.0 / rope.rotary_dim);
}

/// Blends plain and stretched frequencies by how often a dimension turns in the original context.
at::Tensor yarn_frequencies(const model::Rope& rope) {
  const auto dim = static_cast<double>(rope.rotary_dim);
  const auto original = static_cast<double>(rope.original_max_positions);
  const auto correction = [&](double rotations) {
    return dim * std::log(original / (rotations * 2.0 * pi)) / (2.0 * std::log(rope.theta));
  };
  double low = correction(rope.beta_fast), high = correction(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;
  const at::Tensor periods = plain_periods(rope);
  const at::Tensor ramp = at::clamp((numbers(rope.rotary_dim / 2) - low) / (high - low), 0.0, 1.0);
  const at::Tensor plain_share = 1.0 - ramp;
  return quotient(1.0, rope.factor * periods) * (1.0 - plain_share) +
         quotient(1.0, periods) * plain_share;
}

at::Tensor llama3_frequencies(const model::Rope& rope) {
  const auto original = static_cast<double>(rope.original_max_positions);
  const at::Tensor plain = quotient(1.0, plain_periods(rope));
  const at::Tensor wavelength = quotient(2.0 * pi, plain);
  const at::Tensor smooth = (quotient(original, wavelength) - rope.low_freq_factor) /
                            (rope.high_freq_factor - rope.low_freq_factor);
  const at::Tensor blended = (1.0 - smooth) * plain / rope.factor + smooth * plain;
  const at::Tensor longer =
      at::where(wavelength > original / rope.low_freq_factor, plain / rope.factor, blended);
  return at::where(wavelength < original / rope.high_freq_factor, plain, longer);
}

double yarn_mscale(double scale, double factor) {
  return factor <= 1.0 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

/// Whether a sequence is longer than the model was first trained for, which longrope asks.
bool is_long(const model::Rope& rope, std::int64_t seq) {
  return seq > rope.original_max_positions;
}

at::Tensor longrope_frequencies(const model::Rope& rope, std::int64_t seq) {
  const std::vector<double>& factor = is_long(rope, seq) ? rope.long_factor : rope.short_factor;
  const at::Tensor periods = plain_periods(rope);
  MOESTRO_CHECK(static_cast<std::int64_t>(factor.size()) == periods.numel(),
                "{} longrope factors for {} frequencies", factor.size(), periods.numel());
  return quotient(1.0, at::tensor(factor, at::TensorOptions().dtype(at::kFloat)) * periods);
}

double longrope_scale(const model::Rope& rope, std::int64_t seq) {
  const std::optional<double>& own = is_long(rope, seq) ? rope.long_mscale : rope.short_mscale;
  if (own) return *own;  // Phi's, whatever attention_factor says
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.factor <= 1.0) return 1.0;
  return std::sqrt(1.0 + std::log(rope.factor) /
                             std::log(static_cast<double>(rope.original_max_positions)));
}

/// What cosines and sines are multiplied by.
double attention_factor(const model::Rope& rope, std::int64_t seq) {
  if (rope.kind == model::RopeKind::longrope) return longrope_scale(rope, seq);
  if (rope.kind != model::RopeKind::yarn) return 1.0;
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.mscale && rope.mscale_all_dim) {
    return yarn_mscale(*rope.mscale, rope.factor) / yarn_mscale(*rope.mscale_all_dim, rope.factor);
  }
  return yarn_mscale(1.0, rope.factor);
}

/// Radians per position. Shape: [rotary_dim / 2].
at::Tensor frequencies(const model::Rope& rope, std::int64_t seq) {
  switch (rope.kind) {
    case model::RopeKind::none:
    case model::RopeKind::plain:
    case model::RopeKind::dynamic:       // refused (why_not_trainable)
    case model::RopeKind::proportional:  // so, too
      break;
    case model::RopeKind::linear:
      return quotient(1.0, plain_periods(rope)) / rope.factor;
    case model::RopeKind::yarn:
      return yarn_frequencies(rope);
    case model::RopeKind::llama3:
      return llama3_frequencies(rope);
    case model::RopeKind::longrope:
      return longrope_frequencies(rope, seq);
  }
  return quotient(1.0, plain_periods(rope));
}

}  // namespace

RopeTables make_rope_tables(const model::Rope& rope, std::int64_t seq) {
  if (rope.kind == model::RopeKind::none || rope.rotary_dim == 0) return {};
  const at::Tensor angles = at::outer(numbers(seq), frequencies(rope, seq));
  const double factor = attention_factor(rope, seq);
  return {.cos = at::cos(angles) * factor,
          .sin = at::sin(angles) * factor,
          .interleaved = rope.interleaved};
}

bool serve(const RopeTables& tables, const model::Rope& rope, std::int64_t seq) {
  if (!tables.cos.defined()) return rope.kind == model::RopeKind::none;
  const std::int64_t length = tables.cos.size(0);
  if (rope.kind == model::RopeKind::longrope && is_long(rope, length) != is_long(rope, seq)) {
    return false;
  }
  return length >= seq;
}

}  // namespace moestro::layers
