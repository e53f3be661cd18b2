#include "moestro/kernels/bias.h"

#include <vector>

#include "moestro/kernels/parallel.h"

namespace moestro::kernels {
namespace {
constexpr std::int64_t kRowBlock = 64;
}

template <class T>
void add_bias(std::int64_t rows, std::int64_t width, const float* bias, T* y) {
  parallel_for(rows, kRowBlock, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      T* row = y + r * width;
      for (std::int64_t i = 0; i < width; ++i) row[i] = from_float<T>(to_float(row[i]) + bias[i]);
    }
  });
}

template <class T>
void add_column_sums(std::int64_t rows, std::int64_t width, const T* x, float* sum) {
  const std::int64_t blocks = (rows + kRowBlock - 1) / kRowBlock;
  std::vector<float> partial(static_cast<std::size_t>(blocks * width), 0.0F);
  parallel_for(rows, kRowBlock, [&](std::int64_t begin, std::int64_t end) {
    float* block = partial.data() + begin / kRowBlock * width;
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::int64_t i = 0; i < width; ++i) block[i] += to_float(x[r * width + i]);
    }
  });
  for (std::int64_t b = 0; b < blocks; ++b) {
    for (std::int64_t i = 0; i < width; ++i)
      sum[i] += partial[static_cast<std::size_t>(b * width + i)];
  }
}

template void add_bias(std::int64_t, std::int64_t, const float*, float*);
template void add_bias(std::int64_t, std::int64_t, const float*, bf16*);
template void add_column_sums(std::int64_t, std::int64_t, const float*, float*);
template void add_column_sums(std::int64_t, std::int64_t, const bf16*, float*);

}  // namespace moestro::kernels
