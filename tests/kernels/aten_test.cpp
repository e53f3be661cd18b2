// The kernels against PyTorch's own operators, computed in double. The only file here that sees
// torch.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "moestro/kernels/adamw.h"
#include "moestro/kernels/attention.h"
#include "moestro/kernels/cross_entropy.h"
#include "moestro/kernels/embedding.h"
#include "moestro/kernels/rms_norm.h"

namespace moestro::kernels {
namespace {

constexpr double kTolerance = 1e-6;  // of the largest entry: f32 kernels against double

at::Tensor random(at::IntArrayRef shape) {
  return at::randn(shape, at::kDouble).to(at::kFloat);  // values that both sides can hold
}

at::Tensor doubled(const at::Tensor& x, bool requires_grad = false) {
  return x.detach().to(at::kDouble).set_requires_grad(requires_grad);
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected) {
  const at::Tensor difference = (actual.to(at::kDouble) - expected).abs();
  const double scale = std::max(1e-30, expected.abs().max().item<double>());
  EXPECT_LT(difference.max().item<double>() / scale, kTolerance);
}

float* data(const at::Tensor& x) {
  return x.data_ptr<float>();
}

TEST(AgainstAten, RmsNorm) {
  at::manual_seed(1);
  const at::Tensor x = random({37, 130});
  const at::Tensor weight = random({130});
  const at::Tensor dy = random({37, 130});
  const at::Tensor y = at::empty_like(x);
  const at::Tensor dx = at::empty_like(x);
  const at::Tensor d_weight = at::zeros_like(weight);
  const at::Tensor inverse = at::empty({37});
  const NormShape shape{37, 1, 130, 130, 130, 1e-6F};
  rms_norm_forward(shape, data(x), data(weight), data(y), data(inverse));
  rms_norm_backward(shape, data(x), data(weight), data(inverse), data(dy), data(dx),
                    data(d_weight));
  const at::Tensor wide_x = doubled(x, true);
  const at::Tensor wide_weight = doubled(weight, true);
  const at::Tensor expected = at::rms_norm(wide_x, {130}, wide_weight, 1e-6);
  expected.backward(doubled(dy));
  expect_close(y, expected.detach());
  expect_close(dx, wide_x.grad());
  expect_close(d_weight, wide_weight.grad());
}

/// Head `first`, `count` of them, of packed rows [batch, seq, heads * dim] as [batch, count, seq,
/// dim].
at::Tensor heads_of(const at::Tensor& rows, std::int64_t first, std::int64_t count,
                    std::int64_t dim) {
  return rows.view({rows.size(0), rows.size(1), -1, dim}).narrow(2, first, count).transpose(1, 2);
}

/// True where a query may see a key.
at::Tensor visible(std::int64_t seq, std::int64_t window) {
  const at::Tensor causal = at::ones({seq, seq}, at::kBool).tril();
  return window == 0 ? causal
                     : causal.logical_and(at::ones({seq, seq}, at::kBool).triu(1 - window));
}

void check_attention(const AttentionShape& s) {
  at::manual_seed(2);
  const at::Tensor qkv = random({s.batch, s.seq, s.row()});
  const at::Tensor d_out = random({s.batch, s.seq, s.heads * s.head_dim});
  const at::Tensor out = at::empty_like(d_out);
  const at::Tensor d_qkv = at::empty_like(qkv);
  const at::Tensor lse = at::empty({s.batch, s.heads, s.seq});
  attention_forward(s, data(qkv), data(out), data(lse));
  attention_backward(s, data(qkv), data(out), data(lse), data(d_out), data(d_qkv));
  const at::Tensor wide = doubled(qkv, true);
  const at::Tensor expected = at::scaled_dot_product_attention(
      heads_of(wide, 0, s.heads, s.head_dim), heads_of(wide, s.heads, s.kv_heads, s.head_dim),
      heads_of(wide, s.heads + s.kv_heads, s.kv_heads, s.head_dim), visible(s.seq, s.window), 0.0,
      false, static_cast<double>(s.scale), true);
  const at::Tensor rows = expected.transpose(1, 2).reshape({s.batch, s.seq, -1});
  rows.backward(doubled(d_out));
  expect_close(out, rows.detach());
  expect_close(d_qkv, wide.grad());
}

TEST(AgainstAten, ScaledDotProductAttention) {
  check_attention({2, 129, 8, 2, 64, 0.125F, 0});
  check_attention({1, 515, 4, 4, 32, 0.2F, 0});
  check_attention({1, 300, 6, 3, 40, 0.15F, 77});
}

TEST(AgainstAten, CrossEntropy) {
  at::manual_seed(3);
  const at::Tensor logits = random({19, 515});
  at::Tensor label = at::randint(515, {19}, at::kLong);
  label[4] = kIgnoredLabel;
  const at::Tensor loss = at::empty({19});
  const at::Tensor d = at::empty_like(logits);
  cross_entropy_rows(19, 515, data(logits), label.data_ptr<std::int64_t>(), 1.0F / 18.0F,
                     data(loss), data(d));
  const at::Tensor wide = doubled(logits, true);
  const at::Tensor expected = at::cross_entropy_loss(wide, label);
  expected.backward();
  EXPECT_NEAR(loss.sum().item<double>() / 18.0, expected.item<double>(), 1e-6);
  expect_close(d, wide.grad());
}

TEST(AgainstAten, Embedding) {
  at::manual_seed(4);
  const at::Tensor table = random({50, 70});
  const at::Tensor id = at::randint(50, {33}, at::kLong);
  const at::Tensor d_out = random({33, 70});
  const at::Tensor out = at::empty({33, 70});
  const at::Tensor d_table = at::zeros_like(table);
  embedding_forward(33, 70, data(table), id.data_ptr<std::int64_t>(), 1.0F, data(out));
  embedding_backward(33, 70, id.data_ptr<std::int64_t>(), 1.0F, data(d_out), data(d_table));
  const at::Tensor wide = doubled(table, true);
  const at::Tensor expected = at::embedding(wide, id);
  expected.backward(doubled(d_out));
  expect_close(out, expected.detach());
  expect_close(d_table, wide.grad());
}

TEST(AgainstAten, AdamwOverManySteps) {
  at::manual_seed(5);
  const at::Tensor w = random({5000});
  const at::Tensor m = at::zeros_like(w);
  const at::Tensor v = at::zeros_like(w);
  at::Tensor wide_w = doubled(w);
  at::Tensor wide_m = doubled(m);
  at::Tensor wide_v = doubled(v);
  AdamwStep step{1e-2F, 0.9F, 0.95F, 1e-8F, 0.1F, 1.0F, 1};
  for (step.step = 1; step.step <= 30; ++step.step) {
    const at::Tensor g = random({5000});
    adamw(step, 5000, data(w), data(g), data(m), data(v), nullptr);
    const at::Tensor count = at::full({}, static_cast<double>(step.step), at::kFloat);
    at::_fused_adamw_({wide_w}, {doubled(g)}, {wide_m}, {wide_v}, {}, {count},
                      static_cast<double>(step.lr), static_cast<double>(step.beta1),
                      static_cast<double>(step.beta2), static_cast<double>(step.weight_decay),
                      static_cast<double>(step.epsilon), false, false);
  }
  expect_close(w, wide_w);
  expect_close(m, wide_m);
  expect_close(v, wide_v);
}

}  // namespace
}  // namespace moestro::kernels
