#include "moestro/runtime/decoder.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>

#include "moestro/core/error.h"
#include "moestro/layers/half_layer.h"
#include "moestro/layers/rope_tables.h"

namespace moestro::runtime {
namespace {

using layers::Context;

layers::RopeTables rope_for(Decoder& decoder, const Context& context) {
  layers::RopeTables& tables = decoder.rope;
  if (!layers::serve(tables, decoder.config.rope, context.seq)) {
    tables = layers::make_rope_tables(decoder.config.rope, context.seq);
  }
  return tables;
}

at::Tensor layer_forward(Decoder& decoder, const Context& context, const layers::RopeTables& rope,
                         int layer, const at::Tensor& x) {
  layers::LayerWeights& weights = decoder.weights.layers[static_cast<std::size_t>(layer)];
  const at::Tensor mixed =
      layers::attention_half(context, decoder.config, layer, weights.attention, rope, x);
  return layers::ffn_half(context, decoder.config, layer, weights, mixed);
}

/// Runs the layer without a graph now and with one in backward. The second run routes alike but
/// must not be counted again.
at::Tensor recomputed_layer(Decoder& decoder, const Context& context,
                            const layers::RopeTables& rope, int layer, const at::Tensor& x) {
  at::Tensor y;
  {
    const c10::NoGradGuard no_grad;
    y = layer_forward(decoder, context, rope, layer, x);
  }
  Context again = context;
  again.routing = nullptr;
  return layers::record(
      y, {x}, [&decoder, again, rope, layer, saved = x.detach()](const at::Tensor& dy) {
        const c10::AutoGradMode with_grad(true);
        const at::Tensor input = saved.detach().set_requires_grad(true);
        const at::Tensor output = layer_forward(decoder, again, rope, layer, input);
        torch::autograd::backward({output}, {dy});
        return layers::Tensors{input.grad()};
      });
}

}  // namespace

Decoder make_decoder(model::ModelConfig config) {
  Decoder decoder;
  decoder.weights = layers::make_weights(config);
  decoder.config = std::move(config);
  return decoder;
}

void prepare_for_training(Decoder& decoder, at::ScalarType dtype) {
  for (layers::Parameter* parameter : layers::parameters(decoder.weights)) {
    layers::allocate_gradient(*parameter);
    layers::set_compute_dtype(*parameter, dtype);
  }
}

at::Tensor forward(Decoder& decoder, const Context& context, const at::Tensor& ids,
                   const ForwardOptions& options) {
  MOESTRO_CHECK(ids.numel() == context.tokens(), "{} ids for {} tokens", ids.numel(),
                context.tokens());
  const model::ModelConfig& config = decoder.config;
  const layers::RopeTables rope = rope_for(decoder, context);
  at::Tensor x = layers::embed(context, ids, decoder.weights.embedding, config.embedding_multiplier,
                               config.padding_token);
  const int num_layers = static_cast<int>(config.layers.size());
  for (int layer = 0; layer < num_layers; ++layer) {
    const bool again = options.recompute == Recompute::layer && layers::needs_gradient({x});
    x = again ? recomputed_layer(decoder, context, rope, layer, x)
              : layer_forward(decoder, context, rope, layer, x);
    if (options.hidden != nullptr && layer + 1 < num_layers) {
      options.hidden->push_back(x.detach().clone());
    }
  }
  return layers::rms_norm(context, x, decoder.weights.final_norm, config.norm_epsilon);
}

double forward_backward(Decoder& decoder, const Context& context, const at::Tensor& ids,
                        const at::Tensor& labels, double scale, Recompute recompute) {
  const c10::AutoGradMode with_grad(true);
  at::Tensor h = forward(decoder, context, ids, {.recompute = recompute});
  const at::Tensor loss = layers::head_loss(context, h, decoder.weights.head_or_embedding(), labels,
                                            scale, decoder.config.logits_divisor);
  h.reset();
  torch::autograd::backward({loss}, {at::ones_like(loss)});
  return loss.item<double>();
}

double evaluate(Decoder& decoder, const Context& context, const at::Tensor& ids,
                const at::Tensor& labels, double scale) {
  const c10::NoGradGuard no_grad;
  const at::Tensor h = forward(decoder, context, ids, {});
  return layers::head_loss(context, h, decoder.weights.head_or_embedding(), labels, scale,
                           decoder.config.logits_divisor)
      .item<double>();
}

at::Tensor logits(Decoder& decoder, const Context& context, const at::Tensor& ids,
                  const ForwardOptions& options) {
  const c10::NoGradGuard no_grad;
  const at::Tensor h = forward(decoder, context, ids, options);
  return layers::head_logits(context, h, decoder.weights.head_or_embedding(),
                             decoder.config.logits_divisor);
}

at::Tensor next_logits(Decoder& decoder, const Context& context, const at::Tensor& ids) {
  const c10::NoGradGuard no_grad;
  const at::Tensor h = forward(decoder, context, ids, {});
  return layers::head_logits(context, h.narrow(0, h.size(0) - 1, 1),
                             decoder.weights.head_or_embedding(), decoder.config.logits_divisor)
      .squeeze(0);
}

}  // namespace moestro::runtime
