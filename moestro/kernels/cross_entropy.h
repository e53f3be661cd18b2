#pragma once
// Softmax cross-entropy of rows of logits against integer labels, with its gradient in place.

#include <cstdint>

#include "moestro/kernels/bf16.h"

namespace moestro::kernels {

constexpr std::int64_t kIgnoredLabel = -100;  // PyTorch's ignore_index

/// loss[r] = logsumexp(logits[r]) - logits[r][label[r]], 0 for ignored labels. When d_logits is not
/// null: d_logits[r] = scale * (softmax(logits[r]) - onehot(label[r])), zeros for ignored labels;
/// for T = float it may be the same memory as logits. The sum of exponentials is kept in double.
/// Shapes: logits, d_logits [rows, vocab]; label, loss [rows].
template <class T>
void cross_entropy_rows(std::int64_t rows, std::int64_t vocab, const float* logits,
                        const std::int64_t* label, float scale, float* loss, T* d_logits);

}  // namespace moestro::kernels
