#pragma once
// From router logits to chosen experts, and from chosen experts to the order in which expert
// kernels read tokens. Ties are broken by the lowest expert index, so every machine agrees.

#include <cstdint>

#include "moestro/kernels/bf16.h"

namespace moestro::kernels {

/// The router rules of models.md section 2.
struct RoutingRule {
  enum class Score { softmax, sigmoid, softmax_of_chosen };
  enum class GroupScore { max, sum_of_two_best };
  std::int64_t experts = 0;
  std::int64_t top_k = 0;
  Score score = Score::softmax;
  bool renormalise = false;
  float scaling_factor = 1.0F;
  std::int64_t groups = 1;
  std::int64_t topk_groups = 1;
  GroupScore group_score = GroupScore::sum_of_two_best;
  float masked_group_score = 0.0F;  // what experts outside the kept groups compete with
};

/// Chooses experts. Shapes: logits [tokens, experts] f32; selection_bias [experts] or null;
/// scores [tokens, experts] f32 out (softmax or sigmoid of the logits; softmax for
/// softmax_of_chosen too, which the auxiliary loss needs); index [tokens, top_k] int64 out, best
/// first; weight [tokens, top_k] f32 out.
void route_forward(const RoutingRule& rule, std::int64_t tokens, const float* logits,
                   const float* selection_bias, float* scores, std::int64_t* index, float* weight);

/// d_logits [tokens, experts] (written whole) from d_weight [tokens, top_k], plus, when not null,
/// d_scores [experts]: a gradient of the (for sigmoid: row-normalised) scores that is the same for
/// every token (auxiliary loss), plus z_scale * 2 * logsumexp(logits) * softmax(logits) (z-loss).
void route_backward(const RoutingRule& rule, std::int64_t tokens, const float* logits,
                    const float* scores, const std::int64_t* index, const float* weight,
                    const float* d_weight, const float* d_scores, float z_scale, float* d_logits);

/// Sums over tokens of scores (for sigmoid: normalised to sum 1 per token); double accumulation in
/// token order blocks, same bits for any threads. Shapes: scores [tokens, experts], score_sum
/// [experts].
void routing_sums(const RoutingRule& rule, std::int64_t tokens, const float* scores,
                  double* score_sum);

/// Stable counting sort of token slots by expert. Slot s = token * top_k + j.
/// Shapes: index [slots]; offset [experts + 1]; slot_of_row [slots]; row_of_slot [slots]. Rows of
/// expert e are offset[e] .. offset[e + 1], in token order.
void group_by_expert(std::int64_t slots, std::int64_t experts, const std::int64_t* index,
                     std::int64_t* offset, std::int64_t* slot_of_row, std::int64_t* row_of_slot);

/// rows[r] = x[slot_of_row[r] / top_k]. Shapes: x [tokens, width], rows [slots, width].
template <class T>
void gather_rows(std::int64_t slots, std::int64_t width, std::int64_t top_k, const T* x,
                 const std::int64_t* slot_of_row, T* rows);

/// out[t] = base[t] + sum_j weight[t, j] * rows[row_of_slot[t * top_k + j]], f32 accumulation in
/// slot order j = 0 .. top_k - 1. weight may be null (1), base null (0) or the same as out. Shapes:
/// base and out [tokens, width].
template <class T, class Out>
void combine_rows(std::int64_t tokens, std::int64_t width, std::int64_t top_k, const T* rows,
                  const std::int64_t* row_of_slot, const float* weight, const Out* base, Out* out);

}  // namespace moestro::kernels
