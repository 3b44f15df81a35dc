// The language the kernels are written in: CUDA under nvcc, the host emulation elsewhere.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define FAE_SHARED(name) extern __shared__ __align__(128) unsigned char name[]
#define FAE_NOINLINE __noinline__
// Marks a kernel argument: its address may be taken without a copy in local memory.
#define FAE_PARAMETER __grid_constant__
#else
#include "emulator/emulator.h"
#define FAE_SHARED(name) unsigned char* name = emu::dynamic_shared()
#define FAE_NOINLINE __attribute__((noinline))
#define FAE_PARAMETER
#endif

#include "fastattnerase/math.h"
#include "fastattnerase/params.h"

#define FAE_DEV __device__ __forceinline__

namespace fae {

constexpr unsigned kAllLanes = 0xffffffffu;

struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

FAE_DEV float to_real(float x) { return x; }
FAE_DEV double to_real(double x) { return x; }
FAE_DEV float to_real(BFloat16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }
FAE_DEV float to_real(Float16 x) {
#if defined(__CUDACC__)
  return __half2float(__ushort_as_half(x.bits));
#else
  const unsigned sign = static_cast<unsigned>(x.bits & 0x8000u) << 16;
  const unsigned exponent = (x.bits >> 10) & 31u;
  const unsigned mantissa = x.bits & 1023u;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    const float tiny = static_cast<float>(mantissa) * (1.0f / 16777216.0f);
    return sign ? -tiny : tiny;
  }
  return __uint_as_float(sign | ((exponent + 112u) << 23) | (mantissa << 13));
#endif
}

// Loads element `index` of an array whose type is known at run time, as float64.
FAE_DEV double load_real(const void* array, std::int32_t dtype, std::int64_t index) {
  switch (dtype) {
    case kFloat32:
      return static_cast<const float*>(array)[index];
    case kFloat64:
      return static_cast<const double*>(array)[index];
    case kBFloat16:
      return to_real(static_cast<const BFloat16*>(array)[index]);
    default:
      return to_real(static_cast<const Float16*>(array)[index]);
  }
}

FAE_DEV bool is_finite(double x) { return fabs(x) <= DBL_MAX; }
FAE_DEV bool is_nan(double x) { return x != x; }
FAE_DEV double infinity() { return HUGE_VAL; }

// Returns x through an optimisation barrier: the compiler knows nothing of the result, so that it
// computes again what follows from x (rematerialises) instead of keeping it live through calls and
// loops. Saves registers.
FAE_DEV int launder(int x) {
#if defined(__CUDACC__)
  asm volatile("" : "+r"(x));
#endif
  return x;
}

template <typename T>
FAE_DEV T* launder(T* address) {
#if defined(__CUDACC__)
  asm volatile("" : "+l"(address));
#endif
  return address;
}

FAE_DEV int ceil_div(int a, int b) { return (a + b - 1) / b; }

// Returns the smallest power of two that is at least x >= 1.
__host__ FAE_DEV int next_power_of_two(int x) {
  int p = 1;
  while (p < x) p <<= 1;
  return p;
}

}  // namespace fae
