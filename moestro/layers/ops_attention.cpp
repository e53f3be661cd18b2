// Softmax attention with what surrounds it on packed q | k | v rows: q/k norm, clipping, RoPE.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "moestro/kernels/attention.h"
#include "moestro/kernels/parallel.h"
#include "moestro/kernels/rms_norm.h"
#include "moestro/kernels/rope.h"
#include "moestro/layers/formula.h"
#include "moestro/layers/ops.h"
#include "moestro/layers/typed.h"

namespace moestro::layers {
namespace {

kernels::AttentionShape shape_of(const Context& context, const AttentionSpec& spec) {
  return {.batch = context.batch,
          .seq = context.seq,
          .heads = spec.heads,
          .kv_heads = spec.kv_heads,
          .head_dim = spec.head_dim,
          .scale = static_cast<float>(spec.scale),
          .window = spec.window};
}

/// Rows [first, first + rows) of packed q | k | v.
struct RowBlock {
  std::int64_t first, rows;
};

RowBlock all_rows(const kernels::AttentionShape& shape) {
  return {0, shape.batch * shape.seq};
}

kernels::RopeShape rope_shape(const kernels::AttentionShape& shape, const RopeTables& tables,
                              const RowBlock& block) {
  return {.rows = block.rows,
          .seq = shape.seq,
          .heads = shape.heads + shape.kv_heads,  // q heads and k heads are neighbours
          .head_dim = shape.head_dim,
          .stride = shape.row(),
          .half = tables.cos.size(1),
          .interleaved = tables.interleaved,
          .first = block.first};
}

/// The q or the k part of packed rows, as the q/k norm sees it.
struct NormPart {
  kernels::NormShape shape;
  std::int64_t first = 0;  // element of a row where the part begins
  Parameter* weight = nullptr;
};

NormPart norm_part(const AttentionSpec& spec, const kernels::AttentionShape& shape,
                   const RowBlock& block, bool is_key) {
  const std::int64_t heads = is_key ? spec.kv_heads : spec.heads;
  const bool per_head = spec.qk_norm != model::QkNorm::whole;
  return {.shape = {.rows = block.rows,
                    .groups = per_head ? heads : 1,
                    .width = per_head ? spec.head_dim : heads * spec.head_dim,
                    .in_stride = shape.row(),
                    .out_stride = shape.row(),
                    .epsilon = static_cast<float>(spec.norm_epsilon)},
          .first = is_key ? spec.heads * spec.head_dim : 0,
          .weight = is_key ? spec.k_norm : spec.q_norm};
}

/// What lies between the projection and the softmax, and what its backward needs.
struct Prepared {
  at::Tensor qkv;             // normalised, clipped, rotated
  at::Tensor inverse_rms[2];  // of q and k; undefined without q/k norm
};

bool changes_projection(const AttentionSpec& spec) {
  return spec.qk_norm != model::QkNorm::none || spec.clip_qkv.has_value();
}

/// q and k normalised, v and what is not normalised copied.
template <class T>
void normalise_rows(const kernels::AttentionShape& shape, const AttentionSpec& spec,
                    const RowBlock& block, const T* projected, const Prepared& prepared) {
  const std::int64_t begin = block.first * shape.row();
  T* qkv = data<T>(prepared.qkv) + begin;
  std::int64_t copied = 0;  // from which element of a row
  if (spec.qk_norm != model::QkNorm::none) {
    copied = shape.row() - spec.kv_heads * spec.head_dim;
    for (const bool is_key : {false, true}) {
      const NormPart part = norm_part(spec, shape, block, is_key);
      kernels::rms_norm_forward<T, T>(
          part.shape, projected + begin + part.first, data<float>(part.weight->value),
          qkv + part.first,
          data<float>(prepared.inverse_rms[is_key ? 1 : 0]) + block.first * part.shape.groups);
    }
  }
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const std::int64_t at = r * shape.row();
    std::copy(projected + begin + at + copied, projected + begin + at + shape.row(),
              qkv + at + copied);
  }
}

template <class T>
void rotate_rows(const kernels::AttentionShape& shape, const AttentionSpec& spec,
                 const RowBlock& block, const at::Tensor& qkv, bool inverse) {
  if (!spec.rope.cos.defined()) return;
  kernels::rope(rope_shape(shape, spec.rope, block), data<T>(qkv) + block.first * shape.row(),
                data<float>(spec.rope.cos), data<float>(spec.rope.sin), inverse);
}

template <class T>
Prepared prepare(const kernels::AttentionShape& shape, const AttentionSpec& spec,
                 const at::Tensor& projected) {
  constexpr std::int64_t kRowsAtOnce = 16;  // they stay in the cache from one step to the next
  Prepared prepared{.qkv = at::empty_like(projected)};
  for (const bool is_key : {false, true}) {
    if (spec.qk_norm == model::QkNorm::none) break;
    const NormPart part = norm_part(spec, shape, all_rows(shape), is_key);
    prepared.inverse_rms[is_key ? 1 : 0] =
        at::empty({part.shape.rows * part.shape.groups}, projected.options().dtype(at::kFloat));
  }
  const T* rows = data<T>(projected);
  kernels::parallel_for(all_rows(shape).rows, kRowsAtOnce,
                        [&](std::int64_t begin, std::int64_t end) {
                          for (std::int64_t first = begin; first < end; first += kRowsAtOnce) {
                            const RowBlock block{first, std::min(kRowsAtOnce, end - first)};
                            normalise_rows(shape, spec, block, rows, prepared);
                            if (!spec.clip_qkv) {
                              rotate_rows<T>(shape, spec, block, prepared.qkv, false);
                            }
                          }
                        });
  if (spec.clip_qkv) {
    prepared.qkv.clamp_(-*spec.clip_qkv, *spec.clip_qkv);
    rotate_rows<T>(shape, spec, all_rows(shape), prepared.qkv, false);
  }
  return prepared;
}

/// From the gradient of prepared q | k | v (destroyed) to that of the projection.
template <class T>
void prepare_backward(const kernels::AttentionShape& shape, const AttentionSpec& spec,
                      const at::Tensor& projected, const Prepared& prepared, at::Tensor& gradient) {
  rotate_rows<T>(shape, spec, all_rows(shape), gradient, true);
  if (spec.clip_qkv) {
    // Clipping happens after the norm and before the rotation, which hides what was clipped.
    AttentionSpec before = spec;
    before.clip_qkv.reset();
    before.rope = {};
    const Prepared unclipped = prepare<T>(shape, before, projected);
    gradient.masked_fill_(unclipped.qkv.abs().gt(*spec.clip_qkv), 0.0);
  }
  if (spec.qk_norm == model::QkNorm::none) return;
  for (const bool is_key : {false, true}) {
    const NormPart part = norm_part(spec, shape, all_rows(shape), is_key);
    // d_x over d_y in place: a row's group is read before it is written.
    T* d = data<T>(gradient) + part.first;
    kernels::rms_norm_backward<T, T>(part.shape, data<T>(projected) + part.first,
                                     data<float>(part.weight->value),
                                     data<float>(prepared.inverse_rms[is_key ? 1 : 0]), d, d,
                                     claim_gradient_for_adding(*part.weight));
  }
}

template <class T>
at::Tensor attention_on_cpu(const Context& context, const at::Tensor& qkv,
                            const AttentionSpec& spec) {
  const kernels::AttentionShape shape = shape_of(context, spec);
  Prepared prepared = prepare<T>(shape, spec, qkv);
  at::Tensor out = at::empty({qkv.size(0), spec.heads * spec.head_dim}, qkv.options());
  at::Tensor log_sum_exp =
      at::empty({shape.batch * shape.heads * shape.seq}, qkv.options().dtype(at::kFloat));
  kernels::attention_forward<T>(shape, data<T>(prepared.qkv), data<T>(out),
                                data<float>(log_sum_exp));
  if (!needs_gradient({qkv})) return out;
  // Keep one packed tensor: the projection when it must be normalised again, else the rotated one.
  const bool again = changes_projection(spec);
  const at::Tensor saved = again ? qkv.detach() : prepared.qkv;
  prepared = {};
  return record(out, {qkv}, [=, result = out.detach()](const at::Tensor& gradient) {
    const at::Tensor d_out = gradient.contiguous();
    Prepared inputs = again ? prepare<T>(shape, spec, saved) : Prepared{saved, {}};
    at::Tensor d_qkv = at::empty_like(saved);
    kernels::attention_backward<T>(shape, data<T>(inputs.qkv), data<T>(result),
                                   data<float>(log_sum_exp), data<T>(d_out), data<T>(d_qkv));
    inputs.qkv.reset();
    prepare_backward<T>(shape, spec, saved, inputs, d_qkv);
    return Tensors{d_qkv};
  });
}

// ---- the ATen meaning --------------------------------------------------------------------------

at::Tensor normalise(const AttentionSpec& spec, const at::Tensor& x, const at::Tensor& weight) {
  // x [batch, seq, heads, head_dim]
  if (spec.qk_norm == model::QkNorm::none) return x;
  const at::Tensor rows = spec.qk_norm == model::QkNorm::whole ? x.flatten(2) : x;
  const at::Tensor f = rows.to(at::kFloat);
  const at::Tensor y =
      f * at::rsqrt(f.square().mean(-1, true) + spec.norm_epsilon) * weight.to(at::kFloat);
  return y.to(x.scalar_type()).view(x.sizes());
}

at::Tensor rotate(const RopeTables& tables, const at::Tensor& x) {
  // x [batch, seq, heads, head_dim]
  if (!tables.cos.defined()) return x;
  const std::int64_t seq = x.size(1), half = tables.cos.size(1);
  const at::Tensor cos = tables.cos.narrow(0, 0, seq).unsqueeze(1),
                   sin = tables.sin.narrow(0, 0, seq).unsqueeze(1);
  const at::Tensor turned = x.narrow(-1, 0, 2 * half),
                   rest = x.narrow(-1, 2 * half, x.size(-1) - 2 * half);
  at::Tensor result;
  if (tables.interleaved) {
    const at::Tensor pairs = turned.unflatten(-1, {half, 2});
    const at::Tensor a = pairs.select(-1, 0), b = pairs.select(-1, 1);
    result = at::stack({a * cos - b * sin, b * cos + a * sin}, -1).flatten(-2);
  } else {
    const at::Tensor a = turned.narrow(-1, 0, half), b = turned.narrow(-1, half, half);
    result = at::cat({a * cos - b * sin, b * cos + a * sin}, -1);
  }
  return at::cat({result.to(x.scalar_type()), rest}, -1);
}

/// True where a query must not look. Shapes: [seq, seq].
at::Tensor hidden_keys(const Context& context, const AttentionSpec& spec,
                       const at::Device& device) {
  const at::Tensor position =
      at::arange(context.seq, at::TensorOptions().dtype(at::kLong).device(device));
  const at::Tensor distance = position.unsqueeze(1) - position.unsqueeze(0);
  const at::Tensor future = distance.lt(0);
  return spec.window > 0 ? at::logical_or(future, distance.ge(spec.window)) : future;
}

at::Tensor attention_formula(const Context& context, const AttentionSpec& spec,
                             const at::Tensor& qkv, const Tensors& weights) {
  const std::int64_t heads = spec.heads, kv = spec.kv_heads, group = heads / kv;
  const at::Tensor rows = qkv.view({context.batch, context.seq, heads + 2 * kv, spec.head_dim});
  at::Tensor q = normalise(spec, rows.narrow(2, 0, heads), weights[0]);
  at::Tensor k = normalise(spec, rows.narrow(2, heads, kv), weights[1]);
  at::Tensor v = rows.narrow(2, heads + kv, kv);
  if (spec.clip_qkv) {
    const double c = *spec.clip_qkv;
    q = q.clamp(-c, c);
    k = k.clamp(-c, c);
    v = v.clamp(-c, c);
  }
  const auto to_heads = [](const at::Tensor& x) { return x.transpose(1, 2); };
  q = to_heads(rotate(spec.rope, q));
  k = to_heads(rotate(spec.rope, k)).repeat_interleave(group, 1);
  v = to_heads(v).repeat_interleave(group, 1);
  const at::Tensor scores = at::matmul(q, k.transpose(-1, -2)).to(at::kFloat) * spec.scale;
  const at::Tensor masked = scores.masked_fill(hidden_keys(context, spec, qkv.device()),
                                               -std::numeric_limits<float>::infinity());
  const at::Tensor out = at::matmul(at::softmax(masked, -1).to(v.scalar_type()), v);
  return out.transpose(1, 2).reshape({context.tokens(), heads * spec.head_dim});
}

}  // namespace

at::Tensor attention(const Context& context, const at::Tensor& qkv, const AttentionSpec& spec) {
  if (!uses_kernels(context, qkv)) {
    return apply_formula(context, {qkv}, {spec.q_norm, spec.k_norm},
                         [=](const Tensors& in, const Tensors& w) {
                           return attention_formula(context, spec, in[0], w);
                         });
  }
  return with_type(context.dtype,
                   [&](auto tag) { return attention_on_cpu<decltype(tag)>(context, qkv, spec); });
}

}  // namespace moestro::layers
