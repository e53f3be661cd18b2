#pragma once
// A decoder built from a model description: weights, forward and backward of a micro-batch.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "moestro/layers/context.h"
#include "moestro/layers/ops.h"
#include "moestro/layers/weights.h"
#include "moestro/model/model_config.h"
#include "moestro/runtime/run_config.h"

namespace moestro::runtime {

struct Decoder {
  model::ModelConfig config;
  layers::ModelWeights weights;
  layers::RopeTables rope;  // remade when a sequence needs others
};

/// Allocates weights (zeros) for a model. Errors: input, if the model is not trainable here.
[[nodiscard]] Decoder make_decoder(model::ModelConfig config);

/// Allocates gradients and makes the compute copies of the given dtype.
void prepare_for_training(Decoder& decoder, at::ScalarType dtype);

/// Residual stream after the embedding and after every layer but the last, as filled by forward.
using HiddenStates = std::vector<at::Tensor>;

/// How one forward pass is run.
struct ForwardOptions {
  Recompute recompute = Recompute::none;
  HiddenStates* hidden = nullptr;  // receives detached copies, [T, hidden] f32 each
};

/// The normalised output of the last layer. Shapes: ids [T] int64 with T = context.tokens(),
/// result [T, hidden] dtype. With Recompute::layer only the input of each layer is kept and its
/// inside is computed again in backward, to the same bits.
[[nodiscard]] at::Tensor forward(Decoder& decoder, const layers::Context& context,
                                 const at::Tensor& ids, const ForwardOptions& options);

/// Forward, loss and backward of one micro-batch; adds to the parameters' gradients.
/// Returns scale * sum of the cross-entropy over labels that are not -100, in nats.
/// Shapes: ids, labels [T] int64.
double forward_backward(Decoder& decoder, const layers::Context& context, const at::Tensor& ids,
                        const at::Tensor& labels, double scale, Recompute recompute);

/// The same loss without gradients.
[[nodiscard]] double evaluate(Decoder& decoder, const layers::Context& context,
                              const at::Tensor& ids, const at::Tensor& labels, double scale);

/// Logits of every position without gradients. Shapes: ids [T], result [T, vocab] f32.
[[nodiscard]] at::Tensor logits(Decoder& decoder, const layers::Context& context,
                                const at::Tensor& ids, const ForwardOptions& options);

/// Logits of what follows the last position, to the bits of the last row of `logits`. Shapes: ids
/// [T] of one sequence, result [vocab] f32.
[[nodiscard]] at::Tensor next_logits(Decoder& decoder, const layers::Context& context,
                                     const at::Tensor& ids);

}  // namespace moestro::runtime
