#include "moestro/layers/parameter.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "moestro/core/error.h"

namespace moestro::layers {

Parameter make_parameter(std::string name, const std::vector<std::int64_t>& shape,
                         std::int64_t slices) {
  MOESTRO_CHECK(!shape.empty() && slices > 0 && shape[0] % slices == 0,
                "parameter {} cannot have {} slices", name, slices);
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.value = at::zeros(shape, at::kFloat);
  parameter.compute = parameter.value;
  parameter.decays = shape.size() >= 2;
  parameter.is_written.assign(static_cast<std::size_t>(slices), false);
  return parameter;
}

void allocate_gradient(Parameter& parameter) {
  parameter.grad = at::empty_like(parameter.value);
}

void set_compute_dtype(Parameter& parameter, at::ScalarType dtype) {
  parameter.compute = dtype == at::kFloat ? parameter.value
                                          : at::empty(parameter.value.sizes(),
                                                      parameter.value.options().dtype(dtype));
  refresh_compute(parameter);
}

void refresh_compute(Parameter& parameter) {
  if (parameter.compute.is_same(parameter.value)) return;
  parameter.compute.copy_(parameter.value);
}

void begin_gradient(Parameter& parameter) {
  std::fill(parameter.is_written.begin(), parameter.is_written.end(), false);
}

void finish_gradient(Parameter& parameter) {
  const auto slices = static_cast<std::int64_t>(parameter.is_written.size());
  const std::int64_t size = parameter.grad.numel() / slices;
  for (std::int64_t i = 0; i < slices; ++i) {
    if (!parameter.is_written[static_cast<std::size_t>(i)]) {
      parameter.grad.view({slices, size}).select(0, i).zero_();
    }
    parameter.is_written[static_cast<std::size_t>(i)] = true;
  }
}

GradientTarget claim_gradient(Parameter& parameter, std::int64_t slice) {
  const auto slices = static_cast<std::int64_t>(parameter.is_written.size());
  const auto index = static_cast<std::size_t>(slice);
  const bool accumulate = parameter.is_written[index];
  parameter.is_written[index] = true;
  return {parameter.grad.data_ptr<float>() + slice * (parameter.grad.numel() / slices), accumulate};
}

float* claim_gradient_for_adding(Parameter& parameter) {
  finish_gradient(parameter);
  return parameter.grad.data_ptr<float>();
}

}  // namespace moestro::layers
