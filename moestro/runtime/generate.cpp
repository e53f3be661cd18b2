#include "moestro/runtime/generate.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>

#include "moestro/core/error.h"
#include "moestro/core/rng.h"

namespace moestro::runtime {
namespace {

data::Token sample(const float* logits, std::int64_t vocab, double temperature, Rng& rng) {
  const float* best = std::max_element(logits, logits + vocab);
  if (temperature <= 0.0) return static_cast<data::Token>(best - logits);
  std::vector<double> weight(static_cast<std::size_t>(vocab));
  double total = 0.0;
  for (std::int64_t i = 0; i < vocab; ++i) {
    const double w = std::exp(static_cast<double>(logits[i] - *best) / temperature);
    weight[static_cast<std::size_t>(i)] = w;
    total += w;
  }
  double left = rng.uniform() * total;
  for (std::int64_t i = 0; i < vocab; ++i) {
    left -= weight[static_cast<std::size_t>(i)];
    if (left < 0.0) return static_cast<data::Token>(i);
  }
  return static_cast<data::Token>(best - logits);
}

}  // namespace

std::vector<data::Token> generate(Decoder& decoder, at::ScalarType dtype,
                                  std::vector<data::Token> prompt, const GenerateOptions& options) {
  const std::int64_t vocab = decoder.config.vocab;
  const auto outside = [&](data::Token id) { return id < 0 || id >= vocab; };
  if (prompt.empty() || std::any_of(prompt.begin(), prompt.end(), outside)) {
    throw input_error("prompt", "expected at least one token of the model's vocabulary ({})",
                      vocab);
  }
  Rng rng(options.seed, "generate");
  const auto is_stopped = [&] { return options.stop != nullptr && options.stop->load(); };
  for (std::int64_t i = 0; i < options.tokens && !is_stopped(); ++i) {
    const auto length =
        std::min<std::int64_t>(static_cast<std::int64_t>(prompt.size()), options.context_length);
    layers::Context context;
    context.batch = 1;
    context.seq = length;
    context.dtype = dtype;
    const std::vector<std::int64_t> tail(prompt.end() - length, prompt.end());
    const at::Tensor scores = next_logits(decoder, context, at::tensor(tail, at::kLong));
    prompt.push_back(sample(scores.data_ptr<float>(), vocab, options.temperature, rng));
  }
  return prompt;
}

}  // namespace moestro::runtime
