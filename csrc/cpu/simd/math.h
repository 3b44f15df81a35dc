// Exponentials and logarithms of all lanes of a vector: from a table where the target looks lanes
// up in a register, from a longer polynomial elsewhere. Results differ between the two by their
// errors.
#pragma once

#include <math.h>

#include "cpu/simd/lanes.h"

namespace fae::cpu {
namespace {

// Sums k_0 + k_1 r + k_2 r² + …; without fused multiply-add six terms by pairs, whose chain of
// dependent instructions is shorter than Horner's. The last step is Horner's, as it rounds best.
template <class V, int kCount>
FAE_INLINE V Polynomial(V r, const typename V::Lane (&k)[kCount]) {
  if constexpr (kCount == 6 && !Target::kHasFma) {
    const V r2 = r * r;
    const V high = MulAdd(r2, Set<V>(k[5]), MulAdd(r, Set<V>(k[4]), Set<V>(k[3])));
    return MulAdd(r, MulAdd(r2, high, MulAdd(r, Set<V>(k[2]), Set<V>(k[1]))), Set<V>(k[0]));
  } else {
    V y = Set<V>(k[kCount - 1]);
#pragma GCC unroll 16
    for (int j = kCount - 2; j >= 0; --j) y = MulAdd(y, r, Set<V>(k[j]));
    return y;
  }
}

struct ExpTable {
  alignas(64) double power[16];
};

// 2^(j / 16)
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

// exp(x) for x <= 0, error below 2 units in the last place; 0 for -inf.
// x = (kParts n + j) log 2 / kParts + r, |r| <= log 2 / (2 kParts): 2^(j / kParts) from a table and
// exp(r) from its Taylor series to the 7th power, or, with a single part, to the 13th.
template <int N>
FAE_INLINE Vec<double, N> Exp(Vec<double, N> x) {
  using V = Vec<double, N>;
  constexpr double kParts = Target::kHasLookup16 ? 16 : 1;
  constexpr double kReciprocal[] = {1.0,
                                    0.5,
                                    1.0 / 6,
                                    1.0 / 24,
                                    1.0 / 120,
                                    1.0 / 720,
                                    1.0 / 5040,
                                    1.0 / 40320,
                                    1.0 / 362880,
                                    1.0 / 3628800,
                                    1.0 / 39916800,
                                    1.0 / 479001600,
                                    1.0 / 6227020800};
  const V large = Set<V>(0x1.8p52);
  const V bounded = Max(x, Set<V>(-1000));
  const V shifted = MulAdd(bounded, Set<V>(kParts * 1.44269504088896340736), large);
  const V n = shifted - large;
  V r = NegMulAdd(n, Set<V>(6.93147180369123816490e-01 / kParts), bounded);
  r = NegMulAdd(n, Set<V>(1.90821492927058770002e-10 / kParts), r);
  V y = Set<V>(kReciprocal[Target::kHasLookup16 ? 6 : 12]);
#pragma GCC unroll 16
  for (int k = Target::kHasLookup16 ? 5 : 11; k >= 0; --k) {
    y = MulAdd(y, r, Set<V>(kReciprocal[k]));
  }
  if constexpr (Target::kHasLookup16) {
    const V power = TableLookup<16>(kExpTable.power, shifted);
    return Scale(MulAdd(power * r, y, power), n * Set<V>(1.0 / 16));
  } else {
    return Scale(MulAdd(r, y, Set<V>(1)), n);
  }
}

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

// 2^x for |x| <= 126 in float, relative error below 2e-7: x = n + j / 32 + r, |r| <= 1/64, from
// adding a number so large that its last bit is worth 1/32. A table gives 2^(j / 32), an addition
// to the exponent 2^n, and a polynomial of least error, 5.3e-8 relative, 2^r. Without a table
// x = n + r, |r| <= 1/2, and the polynomial, exact at 0, is off by 9.2e-8.
template <int N>
FAE_INLINE Vec<float, N> Exp2Near(Vec<float, N> x) {
  using V = Vec<float, N>;
  using Bits = Vec<std::uint32_t, N>;
  if constexpr (Target::kHasLookup16) {
    const V large = Set<V>(0x1.8p18f);
    const V y = x + large;
    const V r = x - (y - large);
    const Bits bits = BitCast<Bits>(y);  // the low ones: 32 n + j
    const Bits fraction = TableLookup<32>(kExp2Table.bits, bits);
    const V power = BitCast<V>(fraction + ShiftLeft(bits, 18));
    const V slope = MulAdd(r, Set<V>(2.40224746e-1f), Set<V>(6.93157343e-1f));
    return MulAdd(power * r, slope, power);
  } else {
    constexpr float kPower[] = {1.0f,           6.93146978e-1f, 2.40222421e-1f,
                                5.55073374e-2f, 9.67151265e-3f, 1.32647271e-3f};
    const V large = Set<V>(0x1.8p23f);
    const V y = x + large;
    const V power = Polynomial(x - (y - large), kPower);
    return BitCast<V>(BitCast<Bits>(power) + ShiftLeft(BitCast<Bits>(y), 23));
  }
}

// 2^x for x <= 0, 2^-126 below that.
template <int N>
FAE_INLINE Vec<float, N> Exp2(Vec<float, N> x) {
  return Exp2Near(Max(x, Set<Vec<float, N>>(-126.0f)));
}

struct Log2Table {
  alignas(64) float reciprocal[16];
  alignas(64) float logarithm[16];
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

// log2 of x / 2 for normal x > 0 in float, error about 1e-7.
// With a table: x = 2^e m, m in [1, 2). The leading four bits of m choose u near 1 / m and
// log2(1 / u) - 1; then log2(m u) of |m u - 1| <= 1/33 by a polynomial of least error, 3.8e-8.
// Without: m in [√½, √2), and log2(m) of m - 1 by one that is off by at most 4.9e-8; without fused
// multiply-add, too, of s = (m - 1) / (m + 1), odd and off by at most 4e-8: a division takes less
// time than the seven instructions that three terms save.
class Log2OfHalf {
 public:
  Log2OfHalf() : table_(Target::kHasLookup16 ? &log2_table() : nullptr) {}

  template <int N>
  FAE_INLINE Vec<float, N> operator()(Vec<float, N> x) const {
    using V = Vec<float, N>;
    using Bits = Vec<std::int32_t, N>;
    const Bits bits = BitCast<Bits>(x);
    const V one = Set<V>(1.0f);
    if constexpr (Target::kHasLookup16) {
      const V index = BitCast<V>(ShiftRight(bits, 19));  // the low four bits count
      const Bits m = (bits & Set<Bits>(0x007FFFFF)) | Set<Bits>(0x3F800000);
      const V r = MulSub(BitCast<V>(m), TableLookup<16>(table_->reciprocal, index), one);
      const V whole = Exponent(x) + TableLookup<16>(table_->logarithm, index);
      constexpr float kLog[] = {1.44269492f, -7.21678908e-1f, 4.81296098e-1f};
      return MulAdd(Polynomial(r, kLog), r, whole);
    } else {
      constexpr float kLog[] = {1.44269477f,    -7.21357149e-1f, 4.80939445e-1f, -3.60087217e-1f,
                                2.86707457e-1f, -2.50069034e-1f, 2.36890370e-1f, -1.45744483e-1f};
      constexpr std::int32_t kRootHalf = 0x3F3504F3, kExponentOne = 1 << 23;
      const Bits shifted = bits - Set<Bits>(kRootHalf + kExponentOne);  // of x / 2
      const Bits m = (shifted & Set<Bits>(0x007FFFFF)) + Set<Bits>(kRootHalf);
      const V r = BitCast<V>(m) - one;
      V whole;
#pragma GCC unroll 16
      for (int k = 0; k < V::kParts; ++k) {
        whole.part[k] = __builtin_convertvector(shifted.part[k] >> 23, typename V::Part);
      }
      if constexpr (Target::kHasFma) {
        return MulAdd(Polynomial(r, kLog), r, whole);
      } else {
        constexpr float kOddLog[] = {2.88539124f, 0.961470842f, 0.598972380f};
        const V s = r / (BitCast<V>(m) + one);
        return MulAdd(Polynomial(s * s, kOddLog), s, whole);
      }
    }
  }

 private:
  const Log2Table* table_;
};

}  // namespace
}  // namespace fae::cpu
