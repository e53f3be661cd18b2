#pragma once
// Quantities with their unit in the type, so that seconds and bytes cannot mix.
//
//   Flops work{2.0 * m * n * k};
//   FlopsPerSecond rate = work / Seconds{0.5};
//   to_string(rate)  ->  "1.05 GFLOP/s"
//
// .value() is the SI base unit (B, s, FLOP, FLOP/s); use it only in formulas, parsers and printers.

#include <compare>
#include <string>

namespace moestro {

/// A number of some unit; Tag makes each unit its own type.
template <class Tag>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(double value) : value_(value) {}
  [[nodiscard]] constexpr double value() const { return value_; }
  constexpr auto operator<=>(const Quantity&) const = default;

  constexpr Quantity& operator+=(Quantity other) {
    value_ += other.value_;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) {
    return Quantity(a.value_ + b.value_);
  }
  friend constexpr Quantity operator-(Quantity a, Quantity b) {
    return Quantity(a.value_ - b.value_);
  }
  friend constexpr Quantity operator*(Quantity a, double s) { return Quantity(a.value_ * s); }
  friend constexpr Quantity operator*(double s, Quantity a) { return a * s; }
  friend constexpr Quantity operator/(Quantity a, double s) { return Quantity(a.value_ / s); }
  friend constexpr double operator/(Quantity a, Quantity b) { return a.value_ / b.value_; }

 private:
  double value_ = 0.0;
};

using Bytes = Quantity<struct BytesTag>;
using Seconds = Quantity<struct SecondsTag>;
using Flops = Quantity<struct FlopsTag>;
using BytesPerSecond = Quantity<struct BytesPerSecondTag>;
using FlopsPerSecond = Quantity<struct FlopsPerSecondTag>;

constexpr BytesPerSecond operator/(Bytes a, Seconds t) {
  return BytesPerSecond(a.value() / t.value());
}
constexpr FlopsPerSecond operator/(Flops a, Seconds t) {
  return FlopsPerSecond(a.value() / t.value());
}
constexpr Seconds operator/(Bytes a, BytesPerSecond r) {
  return Seconds(a.value() / r.value());
}
constexpr Seconds operator/(Flops a, FlopsPerSecond r) {
  return Seconds(a.value() / r.value());
}

/// At least three significant digits and the unit that fits: "1.50 GiB", "12.00 ms", "260 GFLOP".
[[nodiscard]] std::string to_string(Bytes bytes);
[[nodiscard]] std::string to_string(Seconds seconds);
[[nodiscard]] std::string to_string(Flops flops);
[[nodiscard]] std::string to_string(FlopsPerSecond rate);
[[nodiscard]] std::string to_string(BytesPerSecond rate);

}  // namespace moestro
