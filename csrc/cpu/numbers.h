// Conversions between the element types, and the exponential.
#pragma once

#include <math.h>
#include <string.h>

#include <cstdint>
#include <cstring>

#include "cpu/variant.h"
#include "fastattnerase/math.h"

namespace fae::cpu {
namespace {

inline float half_to_float(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t exponent = (h >> 10) & 0x1Fu;
  const std::uint32_t fraction = h & 0x3FFu;
  std::uint32_t bits;
  if (exponent == 31) {
    bits = sign | 0x7F800000u | fraction << 13;
  } else if (exponent != 0) {
    bits = sign | (exponent + 112) << 23 | fraction << 13;
  } else {  // zero or subnormal: fraction * 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    std::memcpy(&bits, &magnitude, sizeof bits);
    bits |= sign;
  }
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline float bfloat_to_float(std::uint16_t b) {
  const std::uint32_t bits = static_cast<std::uint32_t>(b) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// `n` elements of `from`, `stride` apart, as float or double.
template <class To>
inline void load_elements(const void* from, std::int32_t dtype, std::int64_t first,
                          std::int64_t stride, std::int64_t n, To* to) {
  // Neighbours in a loop of their own, which is vectorised.
  const auto load = [=](auto x, auto convert) {
    x += first;
    if (stride == 1) {
      for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<To>(convert(x[i]));
    } else {
      for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<To>(convert(x[i * stride]));
    }
  };
  if (dtype == kFloat32) {
    load(static_cast<const float*>(from), [](float x) { return x; });
  } else if (dtype == kFloat64) {
    load(static_cast<const double*>(from), [](double x) { return x; });
  } else if (dtype == kBFloat16) {
    load(static_cast<const std::uint16_t*>(from), bfloat_to_float);
  } else {
    load(static_cast<const std::uint16_t*>(from), half_to_float);
  }
}

// Real results are float64 where the values are.
inline void store_real(void* to, bool wide, std::int64_t index, double value) {
  if (wide) {
    static_cast<double*>(to)[index] = value;
  } else {
    static_cast<float*>(to)[index] = static_cast<float>(value);
  }
}

constexpr double kLog2 = 0.693147180559945309417;
// log(2) rounded down, since float32's nearest is above it.
constexpr float kLog2Below = 0.69314712f;

// A JS divergence, at most log(2) in either type.
inline void store_js(void* to, bool wide, std::int64_t index, double js) {
  store_real(to, wide, index, wide || !(js > kLog2Below) ? js : kLog2Below);
}

inline bool is_finite(double x) { return x - x == 0; }

constexpr double kInf = __builtin_inf();
constexpr double kNan = __builtin_nan("");

}  // namespace
}  // namespace fae::cpu
