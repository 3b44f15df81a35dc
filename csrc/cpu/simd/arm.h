// What NEON has instructions for that the compilers do not find from the generic form (GCC 12).
#pragma once

#include "cpu/simd/register.h"

#if defined(__aarch64__)

namespace fae::cpu {
namespace {
namespace native {

using F4 = Register<float, 16>;
using D2 = Register<double, 16>;

FAE_INLINE F4 mul_add(F4 a, F4 b, F4 c) { return vfmaq_f32(c, a, b); }
FAE_INLINE D2 mul_add(D2 a, D2 b, D2 c) { return vfmaq_f64(c, a, b); }
FAE_INLINE D2 widen_lower(F4 x) { return vcvt_f64_f32(vget_low_f32(x)); }
FAE_INLINE D2 widen_upper(F4 x) { return vcvt_high_f64_f32(x); }
FAE_INLINE F4 narrow_both(D2 low, D2 high) { return vcvt_high_f32_f64(vcvt_f32_f64(low), high); }
FAE_INLINE std::uint32_t signs(F4 x) {
  const int32x4_t to = {0, 1, 2, 3};
  return vaddvq_u32(vshlq_u32(vshrq_n_u32(vreinterpretq_u32_f32(x), 31), to));
}
FAE_INLINE std::uint32_t signs(D2 x) {
  const uint64x2_t bits = vshrq_n_u64(vreinterpretq_u64_f64(x), 63);
  return static_cast<std::uint32_t>(vgetq_lane_u64(bits, 0) | vgetq_lane_u64(bits, 1) << 1);
}
FAE_INLINE std::uint32_t mask_bits(Register<std::int32_t, 16> m) { return signs((F4)m); }
FAE_INLINE std::uint32_t mask_bits(Register<std::int64_t, 16> m) { return signs((D2)m); }

}  // namespace native
}  // namespace
}  // namespace fae::cpu

#endif
