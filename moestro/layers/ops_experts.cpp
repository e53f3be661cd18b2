// Routed SwiGLU experts. Work is cut into tiles of rows of one expert; a tile runs gather, gate|up,
// SwiGLU and down while it is in cache, and tiles are spread over threads with single-threaded
// products inside, so that bits depend neither on threads nor on how many rows an expert got.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <vector>

#include "moestro/kernels/gemm.h"
#include "moestro/kernels/parallel.h"
#include "moestro/kernels/routing.h"
#include "moestro/kernels/swiglu.h"
#include "moestro/layers/formula.h"
#include "moestro/layers/ops.h"
#include "moestro/layers/products.h"
#include "moestro/layers/typed.h"

namespace moestro::layers {
namespace {

using kernels::rows_of;
using kernels::transposed;

constexpr std::int64_t kTileRows = 640;  // of one task: weights are packed once for all of them
constexpr std::int64_t kGradientRows = 1024;  // output rows of one weight-gradient task

struct Sizes {
  std::int64_t tokens, slots, top_k, experts, hidden, width;
};

struct Tile {
  std::int64_t expert, first, rows;
};

Sizes sizes_of(const at::Tensor& h, const Routing& routing, const Parameter& down) {
  return {h.size(0),          routing.index.numel(), routing.index.size(1),
          down.value.size(0), down.value.size(1),    down.value.size(2)};
}

/// The rows of every expert in equal tiles, the largest first: threads then finish together.
std::vector<Tile> tiles_of(const Sizes& size, const std::int64_t* offset) {
  std::vector<Tile> tiles;
  for (std::int64_t e = 0; e < size.experts; ++e) {
    const std::int64_t rows = offset[e + 1] - offset[e];
    const std::int64_t count = (rows + kTileRows - 1) / kTileRows;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t first = rows * i / count, end = rows * (i + 1) / count;
      tiles.push_back({e, offset[e] + first, end - first});
    }
  }
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const Tile& a, const Tile& b) { return a.rows > b.rows; });
  return tiles;
}

template <class Body>
void for_each_tile(const std::vector<Tile>& tiles, const Body& body) {
  kernels::parallel_for(static_cast<std::int64_t>(tiles.size()), 1,
                        [&](std::int64_t begin, std::int64_t end) {
                          for (std::int64_t i = begin; i < end; ++i) {
                            body(tiles[static_cast<std::size_t>(i)]);
                          }
                        });
}

/// The weights of one expert as GEMM operands.
template <class T>
struct ExpertWeights {
  kernels::Matrix<const T> gate_up;  // [2 * width, hidden]
  kernels::Matrix<const T> down;     // [hidden, width]
};

template <class T>
ExpertWeights<T> expert_weights(const Sizes& size, const Parameter& gate_up, const Parameter& down,
                                std::int64_t expert) {
  return {rows_of<const T>(data<T>(gate_up.compute) + expert * 2 * size.width * size.hidden,
                           2 * size.width, size.hidden),
          rows_of<const T>(data<T>(down.compute) + expert * size.hidden * size.width, size.hidden,
                           size.width)};
}

/// What forward leaves: gate|up of every row, for backward, and the answers, for combining.
template <class T>
void forward_tiles(const Sizes& size, const at::Tensor& h, const Routing& routing,
                   const Parameter& gate_up, const Parameter& down, const at::Tensor& rows_gate_up,
                   const at::Tensor& answers) {
  for_each_tile(tiles_of(size, data<std::int64_t>(routing.offset)), [&](const Tile& tile) {
    const auto weights = expert_weights<T>(size, gate_up, down, tile.expert);
    const at::Tensor gathered = at::empty({tile.rows, size.hidden}, h.options());
    const at::Tensor activation = at::empty({tile.rows, size.width}, h.options());
    T* x = data<T>(gathered);
    T* gu = data<T>(rows_gate_up) + tile.first * 2 * size.width;
    T* a = data<T>(activation);
    T* y = data<T>(answers) + tile.first * size.hidden;
    kernels::gather_rows<T>(tile.rows, size.hidden, size.top_k, data<T>(h),
                            data<std::int64_t>(routing.slot_of_row) + tile.first, x);
    kernels::gemm_rows<T, T>(rows_of<const T>(x, tile.rows, size.hidden),
                             transposed(weights.gate_up), rows_of(gu, tile.rows, 2 * size.width));
    kernels::swiglu_forward<T>(tile.rows, size.width, gu, a);
    kernels::gemm_rows<T, T>(rows_of<const T>(a, tile.rows, size.width), transposed(weights.down),
                             rows_of(y, tile.rows, size.hidden));
  });
}

/// Row-wise results of backward that the weight gradients need too.
struct BackwardRows {
  at::Tensor d_gate_up;     // [n, 2 * width]
  at::Tensor weighted_a;    // [n, width]
  at::Tensor d_row_weight;  // [n] f32
  at::Tensor d_x;           // [n, hidden]
};

template <class T>
BackwardRows backward_tiles(const Sizes& size, const at::Tensor& dy, const Routing& routing,
                            const Parameter& gate_up, const Parameter& down,
                            const at::Tensor& rows_gate_up, const at::Tensor& row_weight) {
  const auto options = dy.options();
  BackwardRows rows{.d_gate_up = at::empty({size.slots, 2 * size.width}, options),
                    .weighted_a = at::empty({size.slots, size.width}, options),
                    .d_row_weight = at::empty({size.slots}, options.dtype(at::kFloat)),
                    .d_x = at::empty({size.slots, size.hidden}, options)};
  for_each_tile(tiles_of(size, data<std::int64_t>(routing.offset)), [&](const Tile& tile) {
    const auto weights = expert_weights<T>(size, gate_up, down, tile.expert);
    const at::Tensor d_answers = at::empty({tile.rows, size.hidden}, options);
    const at::Tensor d_activation = at::empty({tile.rows, size.width}, options);
    T* d_answer = data<T>(d_answers);
    T* d_a = data<T>(d_activation);
    T* d_gate_up = data<T>(rows.d_gate_up) + tile.first * 2 * size.width;
    kernels::gather_rows<T>(tile.rows, size.hidden, size.top_k, data<T>(dy),
                            data<std::int64_t>(routing.slot_of_row) + tile.first, d_answer);
    kernels::gemm_rows<T, T>(rows_of<const T>(d_answer, tile.rows, size.hidden), weights.down,
                             rows_of(d_a, tile.rows, size.width));
    kernels::swiglu_backward<T>(tile.rows, size.width,
                                data<T>(rows_gate_up) + tile.first * 2 * size.width, d_a,
                                data<float>(row_weight) + tile.first, d_gate_up,
                                data<T>(rows.weighted_a) + tile.first * size.width,
                                data<float>(rows.d_row_weight) + tile.first);
    kernels::gemm_rows<T, T>(
        rows_of<const T>(d_gate_up, tile.rows, 2 * size.width), weights.gate_up,
        rows_of(data<T>(rows.d_x) + tile.first * size.hidden, tile.rows, size.hidden));
  });
  return rows;
}

/// One block of rows of one expert's weight gradient: out[block] (+)= left[:, block]^T right.
template <class T>
struct GradientTask {
  kernels::Matrix<const T> left, right;
  kernels::Matrix<float> out;
  bool accumulate;
};

template <class T>
void add_tasks(std::vector<GradientTask<T>>& tasks, const kernels::Matrix<const T>& left,
               const kernels::Matrix<const T>& right, GradientTarget target) {
  for (std::int64_t first = 0; first < left.cols; first += kGradientRows) {
    kernels::Matrix<const T> block = left;
    block.data += first;
    block.cols = std::min(kGradientRows, left.cols - first);
    tasks.push_back({block, right,
                     rows_of(target.data + first * right.cols, block.cols, right.cols),
                     target.accumulate});
  }
}

/// The token of every row.
at::Tensor token_of_row(const Routing& routing) {
  at::Tensor result = at::empty_like(routing.slot_of_row);
  const std::int64_t top_k = routing.index.size(1);
  const std::int64_t* slot = data<std::int64_t>(routing.slot_of_row);
  std::int64_t* token = data<std::int64_t>(result);
  for (std::int64_t r = 0; r < result.numel(); ++r) token[r] = slot[r] / top_k;
  return result;
}

/// Tokens' rows of h and dy are read where they lie.
template <class T>
void add_expert_gradients(const Sizes& size, const at::Tensor& h, const at::Tensor& dy,
                          const Routing& routing, const BackwardRows& rows, Parameter& gate_up,
                          Parameter& down) {
  const at::Tensor tokens = token_of_row(routing);
  const auto* offset = data<std::int64_t>(routing.offset);
  std::vector<GradientTask<T>> tasks;
  for (std::int64_t e = 0; e < size.experts; ++e) {
    const std::int64_t first = offset[e], n = offset[e + 1] - offset[e];
    if (n == 0) continue;  // finish_gradient zeroes what nobody wrote
    auto x = rows_of<const T>(data<T>(h), n, size.hidden);
    auto d_answer = rows_of<const T>(data<T>(dy), n, size.hidden);
    x.index = d_answer.index = data<std::int64_t>(tokens) + first;
    add_tasks<T>(tasks, d_answer,
                 rows_of<const T>(data<T>(rows.weighted_a) + first * size.width, n, size.width),
                 claim_gradient(down, e));
    add_tasks<T>(
        tasks,
        rows_of<const T>(data<T>(rows.d_gate_up) + first * 2 * size.width, n, 2 * size.width), x,
        claim_gradient(gate_up, e));
  }
  // The longest first, so that threads finish together.
  std::stable_sort(tasks.begin(), tasks.end(), [](const auto& a, const auto& b) {
    return a.left.rows * a.left.cols * a.right.cols > b.left.rows * b.left.cols * b.right.cols;
  });
  kernels::parallel_for(
      static_cast<std::int64_t>(tasks.size()), 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const auto& task = tasks[static_cast<std::size_t>(i)];
          kernels::gemm_weight_gradient<T>(task.left, task.right, task.out, task.accumulate);
        }
      });
}

/// values[slot] -> rows, or back.
at::Tensor permute(const at::Tensor& values, const at::Tensor& order) {
  at::Tensor result = at::empty({order.numel()}, values.options());
  const float* in = data<float>(values);
  const std::int64_t* index = data<std::int64_t>(order);
  float* out = data<float>(result);
  for (std::int64_t i = 0; i < order.numel(); ++i) out[i] = in[index[i]];
  return result;
}

template <class T>
at::Tensor experts_on_cpu(const Context& context, const at::Tensor& h, const Routing& routing,
                          Parameter& gate_up, Parameter& down, const at::Tensor& residual,
                          double multiplier) {
  const Sizes size = sizes_of(h, routing, down);
  at::Tensor rows_gate_up = at::empty({size.slots, 2 * size.width}, h.options());
  at::Tensor y;
  {
    const at::Tensor answers = at::empty({size.slots, size.hidden}, h.options());
    forward_tiles<T>(size, h, routing, gate_up, down, rows_gate_up, answers);
    const at::Tensor weight =
        multiplier == 1.0 ? routing.weight.detach() : routing.weight.detach() * multiplier;
    y = at::empty_like(residual);
    kernels::combine_rows<T, float>(size.tokens, size.hidden, size.top_k, data<T>(answers),
                                    data<std::int64_t>(routing.row_of_slot), data<float>(weight),
                                    data<float>(residual), data<float>(y));
  }
  Routing saved = routing;
  saved.weight = routing.weight.detach();
  return record(y, {h, routing.weight, residual},
                [=, &gate_up, &down, x = h.detach(), queue = context.queue,
                 dtype = context.dtype](const at::Tensor& gradient) mutable {
                  const at::Tensor dy = to_compute(gradient, multiplier, dtype);
                  const at::Tensor row_weight = permute(saved.weight.view({-1}), saved.slot_of_row);
                  BackwardRows rows =
                      backward_tiles<T>(size, dy, saved, gate_up, down, rows_gate_up, row_weight);
                  rows_gate_up.reset();
                  at::Tensor d_h = at::empty_like(x);
                  kernels::combine_rows<T, T>(
                      size.tokens, size.hidden, size.top_k, data<T>(rows.d_x),
                      data<std::int64_t>(saved.row_of_slot), nullptr, nullptr, data<T>(d_h));
                  rows.d_x.reset();
                  at::Tensor d_weight =
                      permute(rows.d_row_weight, saved.row_of_slot).view({size.tokens, size.top_k});
                  weight_gradient(queue, [=, &gate_up, &down] {
                    add_expert_gradients<T>(size, x, dy, saved, rows, gate_up, down);
                  });
                  return Tensors{d_h, d_weight, gradient};
                });
}

at::Tensor experts_formula(const Routing& routing, const Tensors& in, const Tensors& weights) {
  const at::Tensor &h = in[0], &weight = in[1], &residual = in[2];
  const std::int64_t top_k = routing.index.size(1);
  at::Tensor sum = at::zeros_like(residual);
  const at::Tensor offset = routing.offset.cpu();
  for (std::int64_t e = 0; e < weights[1].size(0); ++e) {
    const std::int64_t first = offset[e].item<std::int64_t>();
    const std::int64_t n = offset[e + 1].item<std::int64_t>() - first;
    const at::Tensor slot = routing.slot_of_row.narrow(0, first, n).to(h.device());
    const at::Tensor token = at::floor_divide(slot, top_k);
    const auto halves =
        at::matmul(h.index_select(0, token), weights[0].select(0, e).t()).chunk(2, -1);
    const at::Tensor answer =
        at::matmul(at::silu(halves[0]) * halves[1], weights[1].select(0, e).t());
    const at::Tensor share = weight.flatten().index_select(0, slot).unsqueeze(1);
    sum = sum.index_add(0, token, answer.to(at::kFloat) * share);
  }
  return sum;
}

}  // namespace

at::Tensor experts(const Context& context, const at::Tensor& h, const Routing& routing,
                   Parameter& gate_up, Parameter& down, const at::Tensor& residual,
                   double multiplier) {
  if (!uses_kernels(context, h)) {
    Routing plan = routing;
    plan.weight = at::Tensor();
    return apply_formula(context, {h, routing.weight, residual}, {&gate_up, &down},
                         [=](const Tensors& in, const Tensors& w) {
                           return in[2] + experts_formula(plan, in, w) * multiplier;
                         });
  }
  return with_type(context.dtype, [&](auto tag) {
    return experts_on_cpu<decltype(tag)>(context, h, routing, gate_up, down, residual, multiplier);
  });
}

}  // namespace moestro::layers
