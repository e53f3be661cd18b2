#include "moestro/layers/rope_tables.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <vector>

#include "moestro/core/error.h"

namespace moestro::layers {
namespace {

using std::numbers::pi;

std::vector<double> plain_frequencies(const model::Rope& rope) {
  std::vector<double> frequency(static_cast<std::size_t>(rope.rotary_dim / 2));
  for (std::size_t i = 0; i < frequency.size(); ++i) {
    frequency[i] =
        std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(rope.rotary_dim));
  }
  return frequency;
}

/// Blends plain and stretched frequencies by how often a dimension turns in the original context.
void apply_yarn(const model::Rope& rope, std::vector<double>& frequency) {
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
  for (std::size_t i = 0; i < frequency.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequency[i] *= 1.0 - ramp + ramp / rope.factor;
  }
}

void apply_llama3(const model::Rope& rope, std::vector<double>& frequency) {
  const auto original = static_cast<double>(rope.original_max_positions);
  for (double& f : frequency) {
    const double wavelength = 2.0 * pi / f;
    if (wavelength < original / rope.high_freq_factor) continue;
    if (wavelength > original / rope.low_freq_factor) {
      f /= rope.factor;
      continue;
    }
    const double smooth = (original / wavelength - rope.low_freq_factor) /
                          (rope.high_freq_factor - rope.low_freq_factor);
    f *= (1.0 - smooth) / rope.factor + smooth;
  }
}

double yarn_mscale(double scale, double factor) {
  return factor <= 1.0 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

/// Whether a sequence is longer than the model was first trained for, which longrope asks.
bool is_long(const model::Rope& rope, std::int64_t seq) {
  return seq > rope.original_max_positions;
}

void apply_longrope(const model::Rope& rope, std::int64_t seq, std::vector<double>& frequency) {
  const std::vector<double>& factor = is_long(rope, seq) ? rope.long_factor : rope.short_factor;
  MOESTRO_CHECK(factor.size() == frequency.size(), "{} longrope factors for {} frequencies",
                factor.size(), frequency.size());
  for (std::size_t i = 0; i < frequency.size(); ++i) frequency[i] /= factor[i];
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

std::vector<double> frequencies(const model::Rope& rope, std::int64_t seq) {
  std::vector<double> frequency = plain_frequencies(rope);
  switch (rope.kind) {
    case model::RopeKind::none:
    case model::RopeKind::plain:
    case model::RopeKind::dynamic:       // refused (why_not_trainable)
    case model::RopeKind::proportional:  // so, too
      break;
    case model::RopeKind::linear:
      for (double& f : frequency) f /= rope.factor;
      break;
    case model::RopeKind::yarn:
      apply_yarn(rope, frequency);
      break;
    case model::RopeKind::llama3:
      apply_llama3(rope, frequency);
      break;
    case model::RopeKind::longrope:
      apply_longrope(rope, seq, frequency);
      break;
  }
  return frequency;
}

}  // namespace

RopeTables make_rope_tables(const model::Rope& rope, std::int64_t seq) {
  if (rope.kind == model::RopeKind::none || rope.rotary_dim == 0) return {};
  const std::vector<double> frequency = frequencies(rope, seq);
  const auto half = static_cast<std::int64_t>(frequency.size());
  const double factor = attention_factor(rope, seq);
  RopeTables tables;
  tables.interleaved = rope.interleaved;
  tables.cos = at::empty({seq, half}, at::kFloat);
  tables.sin = at::empty({seq, half}, at::kFloat);
  auto* cos = tables.cos.data_ptr<float>();
  auto* sin = tables.sin.data_ptr<float>();
  for (std::int64_t s = 0; s < seq; ++s) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(s) * frequency[static_cast<std::size_t>(i)];
      cos[s * half + i] = static_cast<float>(std::cos(angle) * factor);
      sin[s * half + i] = static_cast<float>(std::sin(angle) * factor);
    }
  }
  return tables;
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
