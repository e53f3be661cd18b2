#include "moestro/kernels/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "moestro/core/error.h"
#include "moestro/kernels/clones.h"
#include "moestro/kernels/internal/scratch.h"
#include "moestro/kernels/parallel.h"
#include "moestro/kernels/vector_math.h"

namespace moestro::kernels {
namespace {

using Score = RoutingRule::Score;
using internal::Purpose;
using internal::scratch;

constexpr std::int64_t kTokensPerBlock = 64;
constexpr std::int64_t kTokensPerSum = 512;  // fixes the order of the sums over tokens
constexpr float kLeastSum = 1e-20F;          // what transformers adds before it divides by a sum
constexpr float kNever = -std::numeric_limits<float>::infinity();

void check(const RoutingRule& rule) {
  MOESTRO_CHECK(rule.experts > 0 && rule.top_k > 0 && rule.top_k <= rule.experts,
                "routing: top {} of {} experts", rule.top_k, rule.experts);
  MOESTRO_CHECK(rule.groups > 0 && rule.experts % rule.groups == 0 && rule.topk_groups > 0 &&
                    rule.topk_groups <= rule.groups,
                "routing: {} of {} groups of {} experts", rule.topk_groups, rule.groups,
                rule.experts);
}

/// Writes softmax(x); returns logsumexp(x).
[[gnu::always_inline]] inline float softmax_row(std::int64_t n, const float* x, float* out) {
  const float peak = largest_of(n, x);
  float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) {
    const float e = exp_fast(x[i] - peak);
    out[i] = e;
    sum += e;
  }
  const float inverse = 1.0F / sum;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] *= inverse;
  return peak + std::log(sum);
}

MOESTRO_CLONES void score_rows(Score score, std::int64_t experts, std::int64_t begin,
                               std::int64_t end, const float* logits, float* scores) {
  if (score == Score::sigmoid) {
#pragma omp simd
    for (std::int64_t i = begin * experts; i < end * experts; ++i) {
      scores[i] = sigmoid_fast(logits[i]);
    }
    return;
  }
  for (std::int64_t t = begin; t < end; ++t) {
    softmax_row(experts, logits + t * experts, scores + t * experts);
  }
}

/// Takes the k largest of n keys out, largest first, the lowest index among equals: each one taken
/// is marked with NaN, so that it loses every later comparison. NaNs must have been replaced.
void take_largest(std::int64_t n, std::int64_t k, float* keys, std::int64_t* index) {
  for (std::int64_t j = 0; j < k; ++j) {
    std::int64_t best = -1;
    for (std::int64_t e = 0; e < n; ++e) {
      const bool is_free = keys[e] == keys[e];
      if (is_free && (best < 0 || keys[e] > keys[best])) best = e;
    }
    index[j] = best;
    keys[best] = std::numeric_limits<float>::quiet_NaN();
  }
}

float group_score(RoutingRule::GroupScore kind, std::int64_t size, const float* keys) {
  float best = kNever;
  float second = kNever;
  for (std::int64_t i = 0; i < size; ++i) {
    if (keys[i] > best) {
      second = best;
      best = keys[i];
    } else {
      second = larger(keys[i], second);
    }
  }
  const bool is_sum = kind == RoutingRule::GroupScore::sum_of_two_best && size > 1;
  return is_sum ? best + second : best;
}

/// Work memory of one thread for one token.
struct Work {
  float* keys;           // [experts]
  float* group_keys;     // [groups]
  std::int64_t* groups;  // [topk_groups], the kept ones
};

Work work_of(const RoutingRule& rule) {
  auto* floats = scratch<float>(Purpose::row_statistics, rule.experts + rule.groups);
  return {floats, floats + rule.experts,
          scratch<std::int64_t>(Purpose::partial_sums, rule.topk_groups)};
}

/// Replaces the keys of experts outside the best groups.
void mask_groups(const RoutingRule& rule, const Work& work) {
  const std::int64_t size = rule.experts / rule.groups;
  for (std::int64_t g = 0; g < rule.groups; ++g) {
    work.group_keys[g] = group_score(rule.group_score, size, work.keys + g * size);
  }
  take_largest(rule.groups, rule.topk_groups, work.group_keys, work.groups);
  for (std::int64_t g = 0; g < rule.groups; ++g) {
    const bool is_kept = work.group_keys[g] != work.group_keys[g];  // taken
    if (!is_kept) std::fill_n(work.keys + g * size, size, rule.masked_group_score);
  }
}

void choose(const RoutingRule& rule, const float* row_keys, const float* bias, const Work& work,
            std::int64_t* index) {
  for (std::int64_t e = 0; e < rule.experts; ++e) {
    const float key = row_keys[e] + (bias == nullptr ? 0.0F : bias[e]);
    work.keys[e] = key == key ? key : kNever;
  }
  if (rule.topk_groups < rule.groups) mask_groups(rule, work);
  take_largest(rule.experts, rule.top_k, work.keys, index);
}

float sum_at(std::int64_t k, const float* values, const std::int64_t* index) {
  float sum = 0.0F;
  for (std::int64_t j = 0; j < k; ++j) sum += values[index[j]];
  return sum;
}

/// What the chosen scores are divided by.
float divisor_of(const RoutingRule& rule, const float* scores, const std::int64_t* index) {
  return rule.renormalise ? sum_at(rule.top_k, scores, index) + kLeastSum : 1.0F;
}

void weigh(const RoutingRule& rule, const float* logits, const float* scores,
           const std::int64_t* index, float* weight) {
  if (rule.score == Score::softmax_of_chosen) {
    for (std::int64_t j = 0; j < rule.top_k; ++j) weight[j] = logits[index[j]];
    softmax_row(rule.top_k, weight, weight);
  } else {
    const float divisor = divisor_of(rule, scores, index);
    for (std::int64_t j = 0; j < rule.top_k; ++j) weight[j] = scores[index[j]] / divisor;
  }
  for (std::int64_t j = 0; j < rule.top_k; ++j) weight[j] *= rule.scaling_factor;
}

/// d_scores of one token from the gradient of its weights: zeros where not chosen. A lone expert's
/// share is exactly 1 and its gradient exactly 0: AdamW would make whole steps of what rounding
/// leaves there.
void scatter_weight_gradient(const RoutingRule& rule, const float* scores,
                             const std::int64_t* index, const float* d_weight, float* d_scores) {
  std::fill_n(d_scores, rule.experts, 0.0F);
  const float divisor = divisor_of(rule, scores, index);
  float mean = 0.0F;
  if (rule.renormalise) {
    for (std::int64_t j = 0; j < rule.top_k; ++j) {
      mean += d_weight[j] * (scores[index[j]] / divisor);
    }
  }
  for (std::int64_t j = 0; j < rule.top_k; ++j) {
    d_scores[index[j]] = rule.scaling_factor * ((d_weight[j] - mean) / divisor);
  }
}

/// d_logits += gradient through weight = scaling_factor * softmax(chosen logits).
void add_softmax_of_chosen(const RoutingRule& rule, const std::int64_t* index, const float* weight,
                           const float* d_weight, float* d_logits) {
  if (rule.scaling_factor == 0.0F) return;
  float mean = 0.0F;
  for (std::int64_t j = 0; j < rule.top_k; ++j) {
    mean += d_weight[j] * (weight[j] / rule.scaling_factor);
  }
  for (std::int64_t j = 0; j < rule.top_k; ++j) {
    d_logits[index[j]] += weight[j] * (d_weight[j] - mean);
  }
}

/// d_scores += gradient that the auxiliary loss has for every token's (normalised) scores.
[[gnu::always_inline]] inline void add_shared_gradient(const RoutingRule& rule, const float* scores,
                                                       const float* shared, float* d_scores) {
  float factor = 1.0F;
  float pull = 0.0F;
  if (rule.score == Score::sigmoid) {
    float sum = 0.0F;
    float dot = 0.0F;
    for (std::int64_t e = 0; e < rule.experts; ++e) {
      sum += scores[e];
      dot += scores[e] * shared[e];
    }
    factor = 1.0F / (sum + kLeastSum);
    pull = dot * factor;
  }
  for (std::int64_t e = 0; e < rule.experts; ++e) d_scores[e] += (shared[e] - pull) * factor;
}

/// In place: gradient of the scores to gradient of the logits.
[[gnu::always_inline]] inline void through_score(Score score, std::int64_t experts, const float* s,
                                                 float* d) {
  if (score == Score::sigmoid) {
    for (std::int64_t e = 0; e < experts; ++e) d[e] *= s[e] * (1.0F - s[e]);
    return;
  }
  float mean = 0.0F;
  for (std::int64_t e = 0; e < experts; ++e) mean += s[e] * d[e];
  for (std::int64_t e = 0; e < experts; ++e) d[e] = s[e] * (d[e] - mean);
}

struct Backward {
  const RoutingRule& rule;
  const float* logits;
  const float* scores;
  const std::int64_t* index;
  const float* weight;
  const float* d_weight;
  const float* d_scores;
  float z_scale;
  float* d_logits;
};

void backward_token(const Backward& b, std::int64_t t, float* softmax) {
  const RoutingRule& rule = b.rule;
  const std::int64_t at = t * rule.experts;
  const std::int64_t slot = t * rule.top_k;
  const float* scores = b.scores + at;
  float* d = b.d_logits + at;
  const bool is_of_chosen = rule.score == Score::softmax_of_chosen;
  if (is_of_chosen) {
    std::fill_n(d, rule.experts, 0.0F);
  } else {
    scatter_weight_gradient(rule, scores, b.index + slot, b.d_weight + slot, d);
  }
  if (b.d_scores != nullptr) add_shared_gradient(rule, scores, b.d_scores, d);
  through_score(rule.score, rule.experts, scores, d);
  if (is_of_chosen) {
    add_softmax_of_chosen(rule, b.index + slot, b.weight + slot, b.d_weight + slot, d);
  }
  if (b.z_scale != 0.0F) {
    const float factor = 2.0F * b.z_scale * softmax_row(rule.experts, b.logits + at, softmax);
    for (std::int64_t e = 0; e < rule.experts; ++e) d[e] += factor * softmax[e];
  }
}

/// One block's part of routing_sums.
void sum_block(const RoutingRule& rule, std::int64_t begin, std::int64_t end, const float* scores,
               double* sums) {
  std::fill_n(sums, rule.experts, 0.0);
  for (std::int64_t t = begin; t < end; ++t) {
    const float* row = scores + t * rule.experts;
    double factor = 1.0;
    if (rule.score == Score::sigmoid) {
      double sum = 0.0;
      for (std::int64_t e = 0; e < rule.experts; ++e) sum += static_cast<double>(row[e]);
      factor = 1.0 / (sum + static_cast<double>(kLeastSum));
    }
    for (std::int64_t e = 0; e < rule.experts; ++e) sums[e] += factor * static_cast<double>(row[e]);
  }
}

}  // namespace

void route_forward(const RoutingRule& rule, std::int64_t tokens, const float* logits,
                   const float* selection_bias, float* scores, std::int64_t* index, float* weight) {
  check(rule);
  parallel_for(tokens, kTokensPerBlock, [&](std::int64_t begin, std::int64_t end) {
    score_rows(rule.score, rule.experts, begin, end, logits, scores);
    const Work work = work_of(rule);
    const float* keys = rule.score == Score::softmax_of_chosen ? logits : scores;
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t at = t * rule.experts;
      const std::int64_t slot = t * rule.top_k;
      choose(rule, keys + at, selection_bias, work, index + slot);
      weigh(rule, logits + at, scores + at, index + slot, weight + slot);
    }
  });
}

void route_backward(const RoutingRule& rule, std::int64_t tokens, const float* logits,
                    const float* scores, const std::int64_t* index, const float* weight,
                    const float* d_weight, const float* d_scores, float z_scale, float* d_logits) {
  check(rule);
  const Backward backward{rule,     logits,   scores,  index,   weight,
                          d_weight, d_scores, z_scale, d_logits};
  parallel_for(tokens, kTokensPerBlock, [&](std::int64_t begin, std::int64_t end) {
    auto* softmax = scratch<float>(Purpose::row_statistics, rule.experts);
    for (std::int64_t t = begin; t < end; ++t) backward_token(backward, t, softmax);
  });
}

void routing_sums(const RoutingRule& rule, std::int64_t tokens, const float* scores,
                  double* score_sum) {
  check(rule);
  const std::int64_t blocks = (tokens + kTokensPerSum - 1) / kTokensPerSum;
  const std::int64_t width = rule.experts;
  auto* partial = scratch<double>(Purpose::partial_sums, blocks * width);
  parallel_for(tokens, kTokensPerSum, [&](std::int64_t begin, std::int64_t end) {
    sum_block(rule, begin, end, scores, partial + begin / kTokensPerSum * width);
  });
  std::fill_n(score_sum, rule.experts, 0.0);
  for (std::int64_t b = 0; b < blocks; ++b) {
    for (std::int64_t e = 0; e < width; ++e) score_sum[e] += partial[b * width + e];
  }
}

}  // namespace moestro::kernels
