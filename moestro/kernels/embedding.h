#pragma once
// Token embedding: row lookup and its gradient.

#include <cstdint>

namespace moestro::kernels {

/// out[t] = multiplier * table[id[t]]. Shapes: table [vocab, width], id [tokens], out [tokens,
/// width].
void embedding_forward(std::int64_t tokens, std::int64_t width, const float* table,
                       const std::int64_t* id, float multiplier, float* out);

/// d_table[id[t]] += multiplier * d_out[t], in token order for every row: same bits for any number
/// of threads (parallel over column blocks).
void embedding_backward(std::int64_t tokens, std::int64_t width, const std::int64_t* id,
                        float multiplier, const float* d_out, float* d_table);

}  // namespace moestro::kernels
