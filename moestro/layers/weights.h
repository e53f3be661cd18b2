#pragma once
// The parameters of a decoder, fused the way the operations want them, and how they map to the
// tensors of a checkpoint.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "moestro/layers/parameter.h"
#include "moestro/model/model_config.h"
#include "moestro/model/tensors.h"

namespace moestro::layers {

/// Shapes: norm [hidden]; qkv [(heads + 2 kv_heads) * head_dim, hidden], q rows first;
/// output [hidden, heads * head_dim]. Absent parts are undefined.
struct AttentionWeights {
  Parameter norm, qkv, qkv_bias, output, output_bias, q_norm, k_norm;
};

/// A SwiGLU MLP. Shapes: gate_up [2 * width, hidden], gate rows first; down [hidden, width].
struct MlpWeights {
  Parameter gate_up, down;
};

/// Shapes: router [experts, hidden]; gate_up [experts, 2 * width, hidden];
/// down [experts, hidden, width]. selection_bias [experts] f32 is not trained by gradient.
struct MoeWeights {
  Parameter router, router_bias;
  at::Tensor selection_bias;
  Parameter gate_up, down;
  MlpWeights shared;
};

struct LayerWeights {
  AttentionWeights attention;
  Parameter ffn_norm;
  MlpWeights dense;
  MoeWeights moe;
};

struct ModelWeights {
  Parameter embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  Parameter final_norm;
  Parameter head;  // undefined when tied to the embedding

  [[nodiscard]] Parameter& head_or_embedding() { return head.defined() ? head : embedding; }
};

/// Why this build cannot train the model, or empty when it can.
[[nodiscard]] std::string why_not_trainable(const model::ModelConfig& config);

/// Errors: input, if this build cannot train the model.
void require_trainable(const model::ModelConfig& config);

/// Allocates all parameters as zeros. Errors: as require_trainable.
[[nodiscard]] ModelWeights make_weights(const model::ModelConfig& config);

/// Every parameter in a fixed order (embedding, layers, final norm, head).
[[nodiscard]] std::vector<Parameter*> parameters(ModelWeights& weights);

/// One checkpoint tensor and the contiguous piece of memory that holds it.
struct Binding {
  model::TensorSpec spec;
  at::Tensor tensor;               // the whole master value (or selection bias)
  Parameter* parameter = nullptr;  // null for selection biases
  std::int64_t first = 0;          // element where the piece begins
  [[nodiscard]] float* value() const;
  [[nodiscard]] const float* gradient() const;
};

/// All tensors of the checkpoint that the decoder holds, in the order of model::tensors(); MTP
/// tensors, which only extra training layers would use, are left out.
[[nodiscard]] std::vector<Binding> bindings(const model::ModelConfig& config,
                                            ModelWeights& weights);

/// Draws every tensor from N(0, initializer_range^2) in a stream of its own (seed and tensor name),
/// norms 1, biases 0: the numbers depend neither on fusing nor on threads.
void initialise(const model::ModelConfig& config, std::uint64_t seed, ModelWeights& weights);

}  // namespace moestro::layers
