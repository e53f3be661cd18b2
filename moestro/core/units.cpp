#include "moestro/core/units.h"

#include <fmt/core.h>

#include <array>
#include <cmath>

namespace moestro {
namespace {

/// Scales by powers of `step` and prints at least three significant digits.
template <std::size_t N>
std::string scaled(double value, double step, const std::array<const char*, N>& units) {
  std::size_t i = 0;
  while (i + 1 < N && std::round(std::abs(value)) >= step) {
    value /= step;
    ++i;
  }
  return fmt::format("{:.{}f} {}", value,
                     std::abs(value) < 10    ? 2
                     : std::abs(value) < 100 ? 1
                                             : 0,
                     units[i]);
}

}  // namespace

std::string to_string(Bytes bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  return scaled(bytes.value(), 1024.0, kUnits);
}

std::string to_string(Seconds seconds) {
  const double s = seconds.value();
  if (std::abs(s) >= 1.0 || s == 0.0) return fmt::format("{:.2f} s", s);
  if (std::abs(s) >= 1e-3) return fmt::format("{:.2f} ms", s * 1e3);
  return fmt::format("{:.2f} us", s * 1e6);
}

std::string to_string(Flops flops) {
  constexpr std::array kUnits = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"};
  return scaled(flops.value(), 1000.0, kUnits);
}

std::string to_string(FlopsPerSecond rate) {
  constexpr std::array kUnits = {"FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"};
  return scaled(rate.value(), 1000.0, kUnits);
}

std::string to_string(BytesPerSecond rate) {
  constexpr std::array kUnits = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
  return scaled(rate.value(), 1000.0, kUnits);
}

}  // namespace moestro
