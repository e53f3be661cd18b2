#pragma once
// Cosine and sine tables of the rotary embeddings that model descriptions name.

#include <cstdint>

#include "moestro/layers/ops.h"
#include "moestro/model/model_config.h"

namespace moestro::layers {

/// Tables for positions 0 .. seq - 1, in f32 throughout as transformers computes them, so that long
/// sequences agree with it; the attention factor of YaRN and longrope is folded in. Shapes:
/// [seq, rotary_dim / 2]. Longrope uses its long factors for all positions when seq is
/// more than original_max_positions, and its short ones otherwise. Undefined tables for
/// RopeKind::none. Source: Su et al. 2021 (RoPE); Peng et al. 2023 (YaRN); Ding et al. 2024
/// (LongRoPE); all rules as in transformers' modeling_rope_utils.
[[nodiscard]] RopeTables make_rope_tables(const model::Rope& rope, std::int64_t seq);

/// Whether tables of make_rope_tables hold what a sequence of length seq needs.
[[nodiscard]] bool serve(const RopeTables& tables, const model::Rope& rope, std::int64_t seq);

}  // namespace moestro::layers
