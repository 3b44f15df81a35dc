// What registers of 128, 256 and 512 bits have instructions for that the compilers do not find from
// the generic form (GCC 12): conversions between float32 and float64, signs to bits, products fused
// with sums, and everything about the mask registers of AVX-512.
#pragma once

#include "cpu/simd/register.h"

#if defined(__x86_64__)

namespace fae::cpu {
namespace {
namespace native {

using F4 = Register<float, 16>;
using D2 = Register<double, 16>;

FAE_INLINE F4 min(F4 a, F4 b) { return _mm_min_ps(a, b); }
FAE_INLINE F4 max(F4 a, F4 b) { return _mm_max_ps(a, b); }
FAE_INLINE D2 min(D2 a, D2 b) { return _mm_min_pd(a, b); }
FAE_INLINE D2 max(D2 a, D2 b) { return _mm_max_pd(a, b); }
FAE_INLINE std::uint32_t signs(F4 x) { return static_cast<std::uint32_t>(_mm_movemask_ps(x)); }
FAE_INLINE std::uint32_t signs(D2 x) { return static_cast<std::uint32_t>(_mm_movemask_pd(x)); }
FAE_INLINE std::uint32_t mask_bits(Register<std::int32_t, 16> m) { return signs((F4)m); }
FAE_INLINE std::uint32_t mask_bits(Register<std::int64_t, 16> m) { return signs((D2)m); }
FAE_INLINE D2 widen_lower(F4 x) { return _mm_cvtps_pd(x); }
FAE_INLINE D2 widen_upper(F4 x) { return _mm_cvtps_pd(_mm_movehl_ps(x, x)); }
FAE_INLINE F4 narrow_both(D2 low, D2 high) {
  return _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
}
#if defined(__FMA__)
FAE_INLINE F4 mul_add(F4 a, F4 b, F4 c) { return _mm_fmadd_ps(a, b, c); }
FAE_INLINE D2 mul_add(D2 a, D2 b, D2 c) { return _mm_fmadd_pd(a, b, c); }
#endif

#if !defined(__AVX__)
// Before SSE4 nothing compares integers of 64 bits, and GCC takes masks of such lanes apart.
using I2 = Register<std::int64_t, 16>;
using I4 = Register<std::int32_t, 16>;

FAE_INLINE I2 less(D2 a, D2 b) { return (I2)_mm_cmplt_pd(a, b); }
FAE_INLINE I2 less_equal(D2 a, D2 b) { return (I2)_mm_cmple_pd(a, b); }
FAE_INLINE I2 equal(D2 a, D2 b) { return (I2)_mm_cmpeq_pd(a, b); }
FAE_INLINE D2 select(I2 m, D2 yes, D2 no) {
  return _mm_or_pd(_mm_and_pd((D2)m, yes), _mm_andnot_pd((D2)m, no));
}
FAE_INLINE I2 mask_of_bits(D2, std::uint32_t bits) {
  const I4 each{1, 1, 2, 2};
  return (I2)_mm_cmpeq_epi32((__m128i)(generic::set<I4>(bits) & each), (__m128i)each);
}
FAE_INLINE I2 first_lanes(D2, std::int64_t count) {
  static constexpr std::int64_t kLanes[] = {-1, -1, 0, 0};
  I2 lanes;
  __builtin_memcpy(&lanes, kLanes + (count <= 0 ? 2 : count == 1 ? 1 : 0), sizeof lanes);
  return lanes;
}
#endif

#if defined(__AVX2__)
using F8 = Register<float, 32>;
using D4 = Register<double, 32>;

FAE_INLINE F8 min(F8 a, F8 b) { return _mm256_min_ps(a, b); }
FAE_INLINE F8 max(F8 a, F8 b) { return _mm256_max_ps(a, b); }
FAE_INLINE D4 min(D4 a, D4 b) { return _mm256_min_pd(a, b); }
FAE_INLINE D4 max(D4 a, D4 b) { return _mm256_max_pd(a, b); }
FAE_INLINE F8 mul_add(F8 a, F8 b, F8 c) { return _mm256_fmadd_ps(a, b, c); }
FAE_INLINE D4 mul_add(D4 a, D4 b, D4 c) { return _mm256_fmadd_pd(a, b, c); }
FAE_INLINE std::uint32_t signs(F8 x) { return static_cast<std::uint32_t>(_mm256_movemask_ps(x)); }
FAE_INLINE std::uint32_t signs(D4 x) { return static_cast<std::uint32_t>(_mm256_movemask_pd(x)); }
FAE_INLINE std::uint32_t mask_bits(Register<std::int32_t, 32> m) { return signs((F8)m); }
FAE_INLINE std::uint32_t mask_bits(Register<std::int64_t, 32> m) { return signs((D4)m); }
FAE_INLINE F4 lower(F8 x) { return _mm256_castps256_ps128(x); }
FAE_INLINE F4 upper(F8 x) { return _mm256_extractf128_ps(x, 1); }
FAE_INLINE D2 lower(D4 x) { return _mm256_castpd256_pd128(x); }
FAE_INLINE D2 upper(D4 x) { return _mm256_extractf128_pd(x, 1); }
FAE_INLINE F8 combine(F4 low, F4 high) { return _mm256_set_m128(high, low); }
FAE_INLINE D4 combine(D2 low, D2 high) { return _mm256_set_m128d(high, low); }
FAE_INLINE D4 widen(F4 x) { return _mm256_cvtps_pd(x); }
FAE_INLINE D4 widen_lower(F8 x) { return _mm256_cvtps_pd(lower(x)); }
FAE_INLINE D4 widen_upper(F8 x) { return _mm256_cvtps_pd(upper(x)); }
FAE_INLINE F4 narrow(D4 x) { return _mm256_cvtpd_ps(x); }
FAE_INLINE F8 narrow_both(D4 low, D4 high) { return combine(narrow(low), narrow(high)); }
#endif

#if defined(__AVX512F__)
using F16 = Register<float, 64>;
using D8 = Register<double, 64>;
using I16 = Register<std::int32_t, 64>;
using I8 = Register<std::int64_t, 64>;
using U16 = Register<std::uint32_t, 64>;
using U8 = Register<std::uint64_t, 64>;

FAE_INLINE F16 min(F16 a, F16 b) { return _mm512_min_ps(a, b); }
FAE_INLINE F16 max(F16 a, F16 b) { return _mm512_max_ps(a, b); }
FAE_INLINE D8 min(D8 a, D8 b) { return _mm512_min_pd(a, b); }
FAE_INLINE D8 max(D8 a, D8 b) { return _mm512_max_pd(a, b); }
FAE_INLINE U16 min(U16 a, U16 b) { return (U16)_mm512_min_epu32((__m512i)a, (__m512i)b); }
FAE_INLINE U16 max(U16 a, U16 b) { return (U16)_mm512_max_epu32((__m512i)a, (__m512i)b); }
FAE_INLINE F16 abs(F16 x) { return _mm512_abs_ps(x); }
FAE_INLINE D8 abs(D8 x) { return _mm512_abs_pd(x); }
FAE_INLINE F16 max_magnitude(F16 a, F16 b) { return _mm512_range_ps(a, b, 11); }
FAE_INLINE F16 mul_add(F16 a, F16 b, F16 c) { return _mm512_fmadd_ps(a, b, c); }
FAE_INLINE D8 mul_add(D8 a, D8 b, D8 c) { return _mm512_fmadd_pd(a, b, c); }
FAE_INLINE F8 lower(F16 x) { return _mm512_castps512_ps256(x); }
FAE_INLINE F8 upper(F16 x) { return _mm512_extractf32x8_ps(x, 1); }
FAE_INLINE D4 lower(D8 x) { return _mm512_castpd512_pd256(x); }
FAE_INLINE D4 upper(D8 x) { return _mm512_extractf64x4_pd(x, 1); }
FAE_INLINE F16 combine(F8 low, F8 high) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}
FAE_INLINE D8 combine(D4 low, D4 high) {
  return _mm512_insertf64x4(_mm512_castpd256_pd512(low), high, 1);
}
FAE_INLINE D8 widen(F8 x) { return _mm512_cvtps_pd(x); }
FAE_INLINE D8 widen_lower(F16 x) { return widen(lower(x)); }
FAE_INLINE D8 widen_upper(F16 x) { return widen(upper(x)); }
FAE_INLINE F8 narrow(D8 x) { return _mm512_cvtpd_ps(x); }
FAE_INLINE F16 narrow_both(D8 low, D8 high) { return combine(narrow(low), narrow(high)); }

FAE_INLINE __mmask8 widen_mask_lower(__mmask16 m) { return static_cast<__mmask8>(m); }
FAE_INLINE __mmask8 widen_mask_upper(__mmask16 m) { return static_cast<__mmask8>(m >> 8); }
FAE_INLINE __mmask16 narrow_masks(__mmask8 low, __mmask8 high) {
  return _mm512_kunpackb(high, low);
}
FAE_INLINE __mmask16 less(F16 a, F16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
FAE_INLINE __mmask16 less_equal(F16 a, F16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
FAE_INLINE __mmask16 equal(F16 a, F16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
FAE_INLINE __mmask8 less(D8 a, D8 b) { return _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ); }
FAE_INLINE __mmask8 less_equal(D8 a, D8 b) { return _mm512_cmp_pd_mask(a, b, _CMP_LE_OQ); }
FAE_INLINE __mmask8 equal(D8 a, D8 b) { return _mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ); }
#define FAE_COMPARISONS(Mask, Vector, suffix)                    \
  FAE_INLINE Mask less(Vector a, Vector b) {                     \
    return _mm512_cmplt_##suffix##_mask((__m512i)a, (__m512i)b); \
  }                                                              \
  FAE_INLINE Mask less_equal(Vector a, Vector b) {               \
    return _mm512_cmple_##suffix##_mask((__m512i)a, (__m512i)b); \
  }                                                              \
  FAE_INLINE Mask equal(Vector a, Vector b) {                    \
    return _mm512_cmpeq_##suffix##_mask((__m512i)a, (__m512i)b); \
  }
FAE_COMPARISONS(__mmask16, I16, epi32)
FAE_COMPARISONS(__mmask16, U16, epu32)
FAE_COMPARISONS(__mmask8, I8, epi64)
FAE_COMPARISONS(__mmask8, U8, epu64)
#undef FAE_COMPARISONS

FAE_INLINE F16 select(__mmask16 m, F16 yes, F16 no) { return _mm512_mask_mov_ps(no, m, yes); }
FAE_INLINE D8 select(__mmask8 m, D8 yes, D8 no) { return _mm512_mask_mov_pd(no, m, yes); }
FAE_INLINE F16 zero_unless(__mmask16 m, F16 x) { return _mm512_maskz_mov_ps(m, x); }
FAE_INLINE D8 zero_unless(__mmask8 m, D8 x) { return _mm512_maskz_mov_pd(m, x); }
#define FAE_CHOICES(Mask, Vector, suffix)                                  \
  FAE_INLINE Vector select(Mask m, Vector yes, Vector no) {                \
    return (Vector)_mm512_mask_mov_##suffix((__m512i)no, m, (__m512i)yes); \
  }                                                                        \
  FAE_INLINE Vector zero_unless(Mask m, Vector x) {                        \
    return (Vector)_mm512_maskz_mov_##suffix(m, (__m512i)x);               \
  }
FAE_CHOICES(__mmask16, I16, epi32)
FAE_CHOICES(__mmask16, U16, epi32)
FAE_CHOICES(__mmask8, I8, epi64)
FAE_CHOICES(__mmask8, U8, epi64)
#undef FAE_CHOICES

FAE_INLINE std::uint32_t signs(F16 x) { return _mm512_movepi32_mask(_mm512_castps_si512(x)); }
FAE_INLINE std::uint32_t signs(D8 x) { return _mm512_movepi64_mask(_mm512_castpd_si512(x)); }
FAE_INLINE F16 exponent(F16 x) { return _mm512_getexp_ps(x); }
FAE_INLINE D8 scale(D8 y, D8 n) { return _mm512_scalef_pd(y, n); }
template <int kCount>
FAE_INLINE F16 lookup(const float* table, F16 index) {
  static_assert(kCount == 16);
  return _mm512_permutexvar_ps(_mm512_castps_si512(index), _mm512_load_ps(table));
}
template <int kCount>
FAE_INLINE U16 lookup(const std::uint32_t* table, U16 index) {
  static_assert(kCount == 32);
  return (U16)_mm512_permutex2var_epi32(_mm512_load_si512(table), (__m512i)index,
                                        _mm512_load_si512(table + 16));
}
template <int kCount>
FAE_INLINE D8 lookup(const double* table, D8 index) {
  static_assert(kCount == 16);
  return _mm512_permutex2var_pd(_mm512_load_pd(table), _mm512_castpd_si512(index),
                                _mm512_load_pd(table + 8));
}
FAE_INLINE std::uint32_t mask_bits(__mmask16 m) { return m; }
FAE_INLINE std::uint32_t mask_bits(__mmask8 m) { return m; }

FAE_INLINE __m512 native512(F16 x) { return x; }
FAE_INLINE __m512d native512(D8 x) { return x; }
FAE_INLINE __m512i native512(I16 x) { return (__m512i)x; }
FAE_INLINE __m512i native512(U16 x) { return (__m512i)x; }
FAE_INLINE __m512i native512(I8 x) { return (__m512i)x; }
FAE_INLINE __m512i native512(U8 x) { return (__m512i)x; }
#define FAE_PARTS(Mask, Vector, Lane, kLanes, suffix)                                          \
  FAE_INLINE Mask mask_of_bits(Vector, std::uint32_t bits) { return static_cast<Mask>(bits); } \
  FAE_INLINE Mask first_lanes(Vector, std::int64_t n) {                                        \
    return static_cast<Mask>(n >= kLanes ? ~0u : n <= 0 ? 0u : (1u << n) - 1);                 \
  }                                                                                            \
  FAE_INLINE Vector load_first(Vector like, const Lane* from, std::int64_t n) {                \
    return (Vector)_mm512_maskz_loadu_##suffix(first_lanes(like, n), from);                    \
  }                                                                                            \
  FAE_INLINE void store_first(Vector x, Lane* to, std::int64_t n) {                            \
    _mm512_mask_storeu_##suffix(to, first_lanes(x, n), native512(x));                          \
  }
FAE_PARTS(__mmask16, F16, float, 16, ps)
FAE_PARTS(__mmask8, D8, double, 8, pd)
FAE_PARTS(__mmask16, I16, std::int32_t, 16, epi32)
FAE_PARTS(__mmask16, U16, std::uint32_t, 16, epi32)
FAE_PARTS(__mmask8, I8, std::int64_t, 8, epi64)
FAE_PARTS(__mmask8, U8, std::uint64_t, 8, epi64)
#undef FAE_PARTS
#endif

}  // namespace native
}  // namespace
}  // namespace fae::cpu

#endif
