// The language-model head: logits and cross-entropy, a chunk of rows at a time.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cstdint>

#include "moestro/kernels/cross_entropy.h"
#include "moestro/kernels/gemm.h"
#include "moestro/layers/formula.h"
#include "moestro/layers/ops.h"
#include "moestro/layers/typed.h"

namespace moestro::layers {
namespace {

using kernels::rows_of;
using kernels::transposed;

/// Rows whose logits exist at a time: every chunk reads the whole head, and reads and writes its
/// gradient, so that few rows would cost more than they save.
std::int64_t chunk_rows(std::int64_t vocab) {
  constexpr std::int64_t kChunkBytes = std::int64_t{64} << 20;
  const std::int64_t rows = kChunkBytes / (vocab * static_cast<std::int64_t>(sizeof(float)));
  return std::clamp<std::int64_t>(rows / 256 * 256, 256, 2048);
}

/// The loss of all rows, and when asked for the gradients of h and the head.
template <class T>
double head_on_cpu(const at::Tensor& h, Parameter& weight, const at::Tensor& labels, float scale,
                   float divisor, at::Tensor* d_h) {
  const std::int64_t tokens = h.size(0), hidden = h.size(1), vocab = weight.value.size(0);
  const std::int64_t rows = std::min(chunk_rows(vocab), std::max<std::int64_t>(tokens, 1));
  at::Tensor logits = at::empty({rows, vocab}, at::kFloat);
  at::Tensor d_logits =
      d_h == nullptr || std::is_same_v<T, float> ? logits : at::empty({rows, vocab}, h.options());
  at::Tensor losses = at::empty({rows}, at::kFloat);
  const auto w = rows_of<const T>(data<T>(weight.compute), vocab, hidden);
  double total = 0.0;
  for (std::int64_t first = 0; first < tokens; first += rows) {
    const std::int64_t n = std::min(rows, tokens - first);
    const auto x = rows_of<const T>(data<T>(h) + first * hidden, n, hidden);
    kernels::gemm_rows<T, float>(x, transposed(w), rows_of(data<float>(logits), n, vocab));
    if (divisor != 1.0F) logits.narrow(0, 0, n).div_(divisor);
    kernels::cross_entropy_rows<T>(
        n, vocab, data<float>(logits), data<std::int64_t>(labels) + first, scale / divisor,
        data<float>(losses), d_h == nullptr ? nullptr : static_cast<T*>(d_logits.data_ptr()));
    for (std::int64_t r = 0; r < n; ++r) total += static_cast<double>(losses.data_ptr<float>()[r]);
    if (d_h == nullptr) continue;
    const auto g = rows_of<const T>(data<T>(d_logits), n, vocab);
    kernels::gemm_rows<T, T>(g, w, rows_of(data<T>(*d_h) + first * hidden, n, hidden));
    const GradientTarget target = claim_gradient(weight);
    kernels::gemm_weight_gradient<T>(g, x, rows_of(target.data, vocab, hidden), target.accumulate);
  }
  return total * static_cast<double>(scale);
}

}  // namespace

at::Tensor head_loss(const Context& context, const at::Tensor& h, Parameter& weight,
                     const at::Tensor& labels, double scale, double divisor) {
  if (!uses_kernels(context, h)) {
    return apply_formula(context, {h}, {&weight}, [=](const Tensors& in, const Tensors& w) {
      const at::Tensor logits = at::matmul(in[0], w[0].t()).to(at::kFloat) / divisor;
      return at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum,
                                    kernels::kIgnoredLabel) *
             scale;
    });
  }
  return with_type(context.dtype, [&](auto tag) {
    using T = decltype(tag);
    const bool with_gradient = needs_gradient({h});
    at::Tensor d_h = with_gradient ? at::empty_like(h) : at::Tensor();
    const double loss = head_on_cpu<T>(h, weight, labels, static_cast<float>(scale),
                                       static_cast<float>(divisor), with_gradient ? &d_h : nullptr);
    const at::Tensor result = at::scalar_tensor(loss, at::kDouble);
    return record(result, {h}, [d_h](const at::Tensor& gradient) {
      MOESTRO_CHECK(gradient.item<double>() == 1.0,
                    "head_loss made its gradients for a loss that is not scaled afterwards");
      return Tensors{d_h};
    });
  });
}

at::Tensor head_logits(const Context& context, const at::Tensor& h, Parameter& weight,
                       double divisor) {
  if (!uses_kernels(context, h)) {
    return at::matmul(h, weight.compute.t()).to(at::kFloat) / divisor;
  }
  return with_type(context.dtype, [&](auto tag) {
    using T = decltype(tag);
    const std::int64_t tokens = h.size(0), hidden = h.size(1), vocab = weight.value.size(0);
    at::Tensor logits = at::empty({tokens, vocab}, at::kFloat);
    kernels::gemm_rows<T, float>(
        rows_of<const T>(data<T>(h), tokens, hidden),
        transposed(rows_of<const T>(data<T>(weight.compute), vocab, hidden)),
        rows_of(data<float>(logits), tokens, vocab));
    if (divisor != 1.0) logits.div_(divisor);
    return logits;
  });
}

}  // namespace moestro::layers
