// Vectors of 16 floats or 8 doubles: loads of a part, exponential, logarithm, transposes.

using F16 = __m512;
using D8 = __m512d;
using U16 = __m512i;

FAE_INLINE __mmask16 first_lanes16(std::int64_t n) {
  return n >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << n) - 1);
}
FAE_INLINE __mmask8 first_lanes8(std::int64_t n) {
  return n >= 8 ? 0xFF : n <= 0 ? 0 : static_cast<__mmask8>((1u << n) - 1);
}

FAE_INLINE D8 low_half(F16 x) { return _mm512_cvtps_pd(_mm512_castps512_ps256(x)); }
FAE_INLINE D8 high_half(F16 x) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)); }
FAE_INLINE F16 join(D8 low, D8 high) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high), 1);
}

// exp(x) for x <= 0, error below 2 units in the last place; 0 for -inf.
// x = (16 n + j) log 2 / 16 + r, |r| <= log(2) / 32; 2^(j / 16) from a table, exp(r) from its
// Taylor series to the 7th power.
struct ExpTable {
  alignas(64) double power[16];
};

constexpr ExpTable kExpTable = {{
    1.0,
    0x1.0b5586cf9890fp+0,
    0x1.172b83c7d517bp+0,
    0x1.2387a6e756238p+0,
    0x1.306fe0a31b715p+0,
    0x1.3dea64c123422p+0,
    0x1.4bfdad5362a27p+0,
    0x1.5ab07dd485429p+0,
    0x1.6a09e667f3bcdp+0,
    0x1.7a11473eb0187p+0,
    0x1.8ace5422aa0dbp+0,
    0x1.9c49182a3f090p+0,
    0x1.ae89f995ad3adp+0,
    0x1.c199bdd85529cp+0,
    0x1.d5818dcfba487p+0,
    0x1.ea4afa2a490dap+0,
}};

FAE_INLINE D8 exp_double(D8 x) {
  const D8 least = _mm512_set1_pd(-1000), large = _mm512_set1_pd(0x1.8p52);
  const D8 bounded = _mm512_max_pd(x, least);
  const D8 shifted = _mm512_fmadd_pd(bounded, _mm512_set1_pd(16 * 1.44269504088896340736), large);
  const D8 n = _mm512_sub_pd(shifted, large);
  D8 r = _mm512_fnmadd_pd(n, _mm512_set1_pd(6.93147180369123816490e-01 / 16), bounded);
  r = _mm512_fnmadd_pd(n, _mm512_set1_pd(1.90821492927058770002e-10 / 16), r);
  constexpr double kFactorial[] = {1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0,
                                   1.0 / 6.0,    0.5,         1.0};
  D8 y = _mm512_set1_pd(kFactorial[0]);
#pragma GCC unroll 8
  for (int k = 1; k < 7; ++k) y = _mm512_fmadd_pd(y, r, _mm512_set1_pd(kFactorial[k]));
  const D8 power =
      _mm512_permutex2var_pd(_mm512_load_pd(kExpTable.power), _mm512_castpd_si512(shifted),
                             _mm512_load_pd(kExpTable.power + 8));
  y = _mm512_fmadd_pd(_mm512_mul_pd(power, r), y, power);
  return _mm512_scalef_pd(y, _mm512_mul_pd(n, _mm512_set1_pd(1.0 / 16)));
}

// 2^x for |x| <= 126 in float, relative error below 2e-7: x = n + j / 32 + r, |r| <= 1/64, from
// adding a number so large that its last bit is worth 1/32. A table gives 2^(j / 32), an addition
// to the exponent 2^n, and a polynomial of least error, 5.3e-8 relative, 2^r.
struct Exp2Table {
  alignas(64) std::uint32_t bits[32];  // of the power, less what j adds to the exponent's place
};

constexpr Exp2Table kExp2Table = [] {
  Exp2Table table{};
  double power = 1.00000000043;  // the polynomial's constant
  for (std::uint32_t j = 0; j < 32; ++j) {
    table.bits[j] = __builtin_bit_cast(std::uint32_t, static_cast<float>(power)) - (j << 18);
    power *= 1.02189714865411667823;  // 2^(1/32)
  }
  return table;
}();

FAE_INLINE F16 exp2_near(F16 x) {
  const F16 large = _mm512_set1_ps(0x1.8p18f);
  const F16 y = _mm512_add_ps(x, large);
  const F16 r = _mm512_sub_ps(x, _mm512_sub_ps(y, large));
  const U16 bits = _mm512_castps_si512(y);  // the low ones: 32 n + j
  const U16 fraction = _mm512_permutex2var_epi32(_mm512_load_si512(kExp2Table.bits), bits,
                                                 _mm512_load_si512(kExp2Table.bits + 16));
  const F16 power = _mm512_castsi512_ps(_mm512_add_epi32(fraction, _mm512_slli_epi32(bits, 18)));
  const F16 slope =
      _mm512_fmadd_ps(r, _mm512_set1_ps(2.40224746e-1f), _mm512_set1_ps(6.93157343e-1f));
  return _mm512_fmadd_ps(_mm512_mul_ps(power, r), slope, power);
}

// 2^x for x <= 0, 2^-126 below that.
FAE_INLINE F16 exp2_float(F16 x) { return exp2_near(_mm512_max_ps(x, _mm512_set1_ps(-126.0f))); }

// log2 of x / 2 for normal x > 0 in float, error about 1e-7: x = 2^e m, m in [1, 2). The leading
// four bits of m choose u near 1 / m and log2(1 / u) - 1; then log2(m u) of |m u - 1| <= 1/33 by a
// polynomial of least error, 3.8e-8. No division.
struct Log2Table {
  alignas(64) float reciprocal[16], logarithm[16];
};

inline const Log2Table& log2_table() {
  static const Log2Table table = [] {
    constexpr double kConstant = 3.80e-8;  // the polynomial's
    Log2Table t;
    for (int i = 0; i < 16; ++i) {
      t.reciprocal[i] = static_cast<float>(1 / (1 + (i + 0.5) / 16));
      t.logarithm[i] =
          static_cast<float>(-log2(static_cast<double>(t.reciprocal[i])) - 1 + kConstant);
    }
    return t;
  }();
  return table;
}

FAE_INLINE F16 log2_of_half(F16 x, F16 reciprocals, F16 logarithms) {
  const U16 index = _mm512_srli_epi32(_mm512_castps_si512(x), 19);  // the low four bits count
  const U16 m = _mm512_ternarylogic_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x007FFFFF),
                                          _mm512_set1_epi32(0x3F800000), 0xEA);  // (x & a) | b
  const F16 r = _mm512_fmsub_ps(_mm512_castsi512_ps(m), _mm512_permutexvar_ps(index, reciprocals),
                                _mm512_set1_ps(1.0f));
  const F16 whole = _mm512_add_ps(_mm512_getexp_ps(x), _mm512_permutexvar_ps(index, logarithms));
  F16 y = _mm512_set1_ps(4.81296098e-1f);
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(-7.21678908e-1f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.44269492f));
  return _mm512_fmadd_ps(y, r, whole);
}

// Eight rows of eight doubles become eight columns.
FAE_INLINE void transpose8(D8 (&r)[8]) {
  D8 t[8];
#pragma GCC unroll 8
  for (int k = 0; k < 8; k += 2) {
    t[k] = _mm512_unpacklo_pd(r[k], r[k + 1]);
    t[k + 1] = _mm512_unpackhi_pd(r[k], r[k + 1]);
  }
  // Pairs of rows in 128-bit quarters; now exchange quarters.
  const D8 a0 = _mm512_shuffle_f64x2(t[0], t[2], 0x88), a1 = _mm512_shuffle_f64x2(t[0], t[2], 0xDD);
  const D8 b0 = _mm512_shuffle_f64x2(t[1], t[3], 0x88), b1 = _mm512_shuffle_f64x2(t[1], t[3], 0xDD);
  const D8 c0 = _mm512_shuffle_f64x2(t[4], t[6], 0x88), c1 = _mm512_shuffle_f64x2(t[4], t[6], 0xDD);
  const D8 d0 = _mm512_shuffle_f64x2(t[5], t[7], 0x88), d1 = _mm512_shuffle_f64x2(t[5], t[7], 0xDD);
  r[0] = _mm512_shuffle_f64x2(a0, c0, 0x88);
  r[4] = _mm512_shuffle_f64x2(a0, c0, 0xDD);
  r[2] = _mm512_shuffle_f64x2(a1, c1, 0x88);
  r[6] = _mm512_shuffle_f64x2(a1, c1, 0xDD);
  r[1] = _mm512_shuffle_f64x2(b0, d0, 0x88);
  r[5] = _mm512_shuffle_f64x2(b0, d0, 0xDD);
  r[3] = _mm512_shuffle_f64x2(b1, d1, 0x88);
  r[7] = _mm512_shuffle_f64x2(b1, d1, 0xDD);
}

// In each quarter of four vectors, four rows of four floats become columns.
FAE_INLINE void transpose4(const F16 (&r)[4], F16* columns) {
  const F16 a = _mm512_unpacklo_ps(r[0], r[1]), b = _mm512_unpackhi_ps(r[0], r[1]);
  const F16 c = _mm512_unpacklo_ps(r[2], r[3]), d = _mm512_unpackhi_ps(r[2], r[3]);
  columns[0] = _mm512_shuffle_ps(a, c, 0x44);
  columns[1] = _mm512_shuffle_ps(a, c, 0xEE);
  columns[2] = _mm512_shuffle_ps(b, d, 0x44);
  columns[3] = _mm512_shuffle_ps(b, d, 0xEE);
}

// Sixteen rows of sixteen floats become sixteen columns.
FAE_INLINE void transpose16(F16 (&r)[16]) {
  F16 t[16];
#pragma GCC unroll 16
  for (int k = 0; k < 16; k += 4) {
    const F16 a = _mm512_unpacklo_ps(r[k], r[k + 1]), b = _mm512_unpackhi_ps(r[k], r[k + 1]);
    const F16 c = _mm512_unpacklo_ps(r[k + 2], r[k + 3]),
              d = _mm512_unpackhi_ps(r[k + 2], r[k + 3]);
    t[k] = _mm512_shuffle_ps(a, c, 0x44);
    t[k + 1] = _mm512_shuffle_ps(a, c, 0xEE);
    t[k + 2] = _mm512_shuffle_ps(b, d, 0x44);
    t[k + 3] = _mm512_shuffle_ps(b, d, 0xEE);
  }
  // t[4 g + j] holds, in quarter L, column 4 L + j of rows 4 g … 4 g + 3.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const F16 a = _mm512_shuffle_f32x4(t[j], t[4 + j], 0x88);
    const F16 b = _mm512_shuffle_f32x4(t[j], t[4 + j], 0xDD);
    const F16 c = _mm512_shuffle_f32x4(t[8 + j], t[12 + j], 0x88);
    const F16 d = _mm512_shuffle_f32x4(t[8 + j], t[12 + j], 0xDD);
    r[j] = _mm512_shuffle_f32x4(a, c, 0x88);
    r[8 + j] = _mm512_shuffle_f32x4(a, c, 0xDD);
    r[4 + j] = _mm512_shuffle_f32x4(b, d, 0x88);
    r[12 + j] = _mm512_shuffle_f32x4(b, d, 0xDD);
  }
}

struct Divergences {
  F16 js, kl, label_probability;
};
