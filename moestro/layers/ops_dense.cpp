// Embedding, RMSNorm, linear maps and SwiGLU.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>

#include "moestro/kernels/bias.h"
#include "moestro/kernels/embedding.h"
#include "moestro/kernels/rms_norm.h"
#include "moestro/kernels/swiglu.h"
#include "moestro/layers/formula.h"
#include "moestro/layers/ops.h"
#include "moestro/layers/products.h"
#include "moestro/layers/typed.h"

namespace moestro::layers {
namespace {

at::Tensor linear_formula(const at::Tensor& x, const Tensors& weights) {
  const at::Tensor y = at::matmul(x, weights[0].t());
  return weights[1].defined() ? y + weights[1] : y;
}

}  // namespace

at::Tensor embed(const Context& context, const at::Tensor& ids, Parameter& table, double multiplier,
                 std::optional<std::int64_t> padding) {
  // A leaf nobody reads: it makes the lookup part of the graph though ids have no gradient.
  const at::Tensor anchor = at::empty({0}, table.value.options()).set_requires_grad(true);
  const bool on_cpu = uses_kernels(context, ids);
  const std::int64_t width = table.value.size(1);
  at::Tensor y;
  if (on_cpu) {
    y = at::empty({ids.size(0), width}, table.value.options());
    kernels::embedding_forward(ids.size(0), width, data<float>(table.value),
                               data<std::int64_t>(ids), static_cast<float>(multiplier),
                               data<float>(y));
  } else {
    y = table.value.index_select(0, ids) * multiplier;
  }
  return record(y, {anchor}, [=, &table, queue = context.queue](const at::Tensor& gradient) {
    at::Tensor dy = gradient.contiguous();
    if (padding) dy = dy.masked_fill(ids.eq(*padding).unsqueeze(1), 0.0);
    weight_gradient(queue, [=, &table] {
      if (!on_cpu) {
        finish_gradient(table);
        table.grad.index_add_(0, ids, dy * multiplier);
        return;
      }
      kernels::embedding_backward(ids.size(0), width, data<std::int64_t>(ids),
                                  static_cast<float>(multiplier), data<float>(dy),
                                  claim_gradient_for_adding(table));
    });
    return Tensors(1);
  });
}

at::Tensor rms_norm(const Context& context, const at::Tensor& x, Parameter& weight,
                    double epsilon) {
  if (!uses_kernels(context, x)) {
    return apply_formula(context, {x}, {&weight}, [=](const Tensors& in, const Tensors& w) {
      const at::Tensor inverse_rms = at::rsqrt(in[0].square().mean(-1, true) + epsilon);
      return (in[0] * inverse_rms * w[0].to(at::kFloat)).to(w[0].scalar_type());
    });
  }
  return with_type(context.dtype, [&](auto tag) {
    using T = decltype(tag);
    const std::int64_t rows = x.size(0), width = x.size(1);
    const kernels::NormShape shape{.rows = rows,
                                   .width = width,
                                   .in_stride = width,
                                   .out_stride = width,
                                   .epsilon = static_cast<float>(epsilon)};
    at::Tensor y = at::empty({rows, width}, x.options().dtype(context.dtype));
    at::Tensor inverse_rms = at::empty({rows}, x.options());
    kernels::rms_norm_forward<float, T>(shape, data<float>(x), data<float>(weight.value),
                                        data<T>(y), data<float>(inverse_rms));
    return record(y, {x}, [=, &weight, saved = x.detach()](const at::Tensor& gradient) {
      const at::Tensor dy = gradient.contiguous();
      at::Tensor dx = at::empty_like(saved);
      kernels::rms_norm_backward<float, T>(shape, data<float>(saved), data<float>(weight.value),
                                           data<float>(inverse_rms), data<T>(dy), data<float>(dx),
                                           claim_gradient_for_adding(weight));
      return Tensors{dx};
    });
  });
}

at::Tensor linear(const Context& context, const at::Tensor& x, Parameter& weight, Parameter* bias) {
  if (!uses_kernels(context, x)) {
    return apply_formula(context, {x}, {&weight, bias}, [](const Tensors& in, const Tensors& w) {
      return linear_formula(in[0], w);
    });
  }
  at::Tensor y = at::empty({x.size(0), weight.value.size(0)}, x.options());
  multiply(x, weight.compute, y, false);
  if (bias != nullptr) {
    with_type(context.dtype, [&](auto tag) {
      kernels::add_bias(y.size(0), y.size(1), data<float>(bias->value), data<decltype(tag)>(y));
    });
  }
  return record(
      y, {x}, [=, &weight, saved = x.detach(), queue = context.queue](const at::Tensor& g) {
        const at::Tensor dy = g.contiguous();
        weight_gradient(queue, [=, &weight] { add_linear_gradients(saved, dy, weight, bias); });
        return Tensors{input_gradient(dy, weight.compute)};
      });
}

at::Tensor linear_residual(const Context& context, const at::Tensor& x, Parameter& weight,
                           Parameter* bias, const at::Tensor& residual, double multiplier) {
  if (!uses_kernels(context, x)) {
    return apply_formula(context, {x, residual}, {&weight, bias},
                         [=](const Tensors& in, const Tensors& w) {
                           return in[1] + linear_formula(in[0], w).to(at::kFloat) * multiplier;
                         });
  }
  at::Tensor y;
  if (multiplier == 1.0) {
    y = residual.detach().clone();
    multiply(x, weight.compute, y, true);
  } else {
    const at::Tensor product = at::empty_like(residual);
    multiply(x, weight.compute, product, false);
    y = at::add(residual.detach(), product, multiplier);
  }
  if (bias != nullptr) y.add_(bias->value, multiplier);
  return record(y, {x, residual},
                [=, &weight, saved = x.detach(), queue = context.queue](const at::Tensor& g) {
                  const at::Tensor dy = to_compute(g, multiplier, saved.scalar_type());
                  weight_gradient(queue,
                                  [=, &weight] { add_linear_gradients(saved, dy, weight, bias); });
                  return Tensors{input_gradient(dy, weight.compute), g};
                });
}

at::Tensor swiglu(const Context& context, const at::Tensor& gate_up) {
  if (!uses_kernels(context, gate_up)) {
    return apply_formula(context, {gate_up}, {}, [](const Tensors& in, const Tensors&) {
      const auto halves = in[0].chunk(2, -1);
      return at::silu(halves[0]) * halves[1];
    });
  }
  return with_type(context.dtype, [&](auto tag) {
    using T = decltype(tag);
    const std::int64_t rows = gate_up.size(0), width = gate_up.size(1) / 2;
    at::Tensor a = at::empty({rows, width}, gate_up.options());
    kernels::swiglu_forward(rows, width, static_cast<const T*>(data<T>(gate_up)), data<T>(a));
    return record(a, {gate_up}, [=, saved = gate_up.detach()](const at::Tensor& g) {
      const at::Tensor da = g.contiguous();
      at::Tensor d_gate_up = at::empty_like(saved);
      kernels::swiglu_backward<T>(rows, width, data<T>(saved), data<T>(da), nullptr,
                                  data<T>(d_gate_up), nullptr, nullptr);
      return Tensors{d_gate_up};
    });
  });
}

}  // namespace moestro::layers
