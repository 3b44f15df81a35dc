// Transposes, built from interleaving inside the 16-byte quarters of registers and from exchanges
// of whole quarters.
#pragma once

#include "cpu/simd/lanes.h"

namespace fae::cpu {
namespace {

// Lane l of an interleaving inside the quarters of two registers of `kLanes` lanes, `kEach` of them
// a quarter: of the first half of each quarter, or of the second.
template <int kEach, int kLanes, bool kUpper>
struct Interleaved {
  static constexpr int at(int l) {
    const int quarter = l / kEach * kEach, within = l % kEach;
    return (within % 2) * kLanes + quarter + within / 2 + (kUpper ? kEach / 2 : 0);
  }
};
// The first halves of both registers, or the second.
template <int kLanes, bool kUpper>
struct Halves {
  static constexpr int at(int l) {
    return l / (kLanes / 2) * kLanes + l % (kLanes / 2) + (kUpper ? kLanes / 2 : 0);
  }
};
// Of four quarters in each register the even ones of both, or the odd ones.
template <int kLanes, bool kOdd>
struct Quarters {
  static constexpr int at(int l) {
    const int quarter = l / (kLanes / 4), within = l % (kLanes / 4);
    return quarter / 2 * kLanes + (quarter % 2 * 2 + (kOdd ? 1 : 0)) * (kLanes / 4) + within;
  }
};

template <class Order, class R, int... kLane>
FAE_INLINE R shuffle_each(R a, R b, Indices<kLane...>) {
  return shuffle<Order::at(kLane)...>(a, b);
}
template <class Order, class R>
FAE_INLINE R shuffle_by(R a, R b) {
  return shuffle_each<Order>(a, b, UpTo<kLanesOf<R>>());
}

// a0 b0 a1 b1 and a2 b2 a3 b3 of each quarter of floats; a0 b0 and a1 b1 of doubles.
template <class R>
FAE_INLINE R interleave_lower(R a, R b) {
  return shuffle_by<Interleaved<16 / sizeof(LaneOf<R>), kLanesOf<R>, false>>(a, b);
}
template <class R>
FAE_INLINE R interleave_upper(R a, R b) {
  return shuffle_by<Interleaved<16 / sizeof(LaneOf<R>), kLanesOf<R>, true>>(a, b);
}

// In each quarter of four registers four rows of four lanes become columns.
template <class R>
FAE_INLINE void transpose_in_quarters(const R (&r)[4], R (&columns)[4]) {
  using Pairs = Register<double, sizeof(R)>;
  const auto a = (Pairs)interleave_lower(r[0], r[1]), b = (Pairs)interleave_upper(r[0], r[1]);
  const auto c = (Pairs)interleave_lower(r[2], r[3]), d = (Pairs)interleave_upper(r[2], r[3]);
  columns[0] = (R)interleave_lower(a, c);
  columns[1] = (R)interleave_upper(a, c);
  columns[2] = (R)interleave_lower(b, d);
  columns[3] = (R)interleave_upper(b, d);
}

// The same of vectors.
template <int N>
FAE_INLINE void TransposeQuarters(const Vec<float, N> (&r)[4], Vec<float, N>* columns) {
  using V = Vec<float, N>;
#pragma GCC unroll 4
  for (int p = 0; p < V::kParts; ++p) {
    const typename V::Part rows[4] = {r[0].part[p], r[1].part[p], r[2].part[p], r[3].part[p]};
    typename V::Part x[4];
    transpose_in_quarters(rows, x);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) columns[k].part[p] = x[k];
  }
}

// A vector of the quarters that piece(0), piece(1), … point to.
template <class V, class Piece>
FAE_INLINE V LoadQuarters(Piece piece) {
  using Quarter = Register<float, 16>;
  const auto load = [&](int q) __attribute__((always_inline)) {
    Quarter x;
    __builtin_memcpy(&x, piece(q), sizeof x);
    return x;
  };
  V y;
#pragma GCC unroll 4
  for (int p = 0; p < V::kParts; ++p) {
    if constexpr (sizeof(typename V::Part) == 16) {
      y.part[p] = load(p);
    } else if constexpr (sizeof(typename V::Part) == 32) {
      y.part[p] = native::combine(load(2 * p), load(2 * p + 1));
    } else {
#if defined(__AVX512F__) && !defined(FAE_WIDE)
      __m512 x = _mm512_castps128_ps512(load(4 * p));
      x = _mm512_mask_broadcast_f32x4(x, 0x00F0, load(4 * p + 1));
      x = _mm512_mask_broadcast_f32x4(x, 0x0F00, load(4 * p + 2));
      y.part[p] = _mm512_mask_broadcast_f32x4(x, 0xF000, load(4 * p + 3));
#else
      y.part[p] = native::combine(native::combine(load(4 * p), load(4 * p + 1)),
                                  native::combine(load(4 * p + 2), load(4 * p + 3)));
#endif
    }
  }
  return y;
}

// Sixteen rows of sixteen lanes of four bytes become sixteen columns.
template <class T>
FAE_INLINE void Transpose16(Vec<T, 16> (&r)[16]) {
  using V = Vec<T, 16>;
  using R = typename V::Part;
  V t[16];  // t[4 g + j] has, in quarter L, column 4 L + j of rows 4 g … 4 g + 3
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
#pragma GCC unroll 4
    for (int p = 0; p < V::kParts; ++p) {
      const R rows[4] = {r[4 * g].part[p], r[4 * g + 1].part[p], r[4 * g + 2].part[p],
                         r[4 * g + 3].part[p]};
      R x[4];
      transpose_in_quarters(rows, x);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) t[4 * g + j].part[p] = x[j];
    }
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    if constexpr (V::kParts == 4) {
#pragma GCC unroll 4
      for (int L = 0; L < 4; ++L) {
#pragma GCC unroll 4
        for (int g = 0; g < 4; ++g) r[4 * L + j].part[g] = t[4 * g + j].part[L];
      }
    } else if constexpr (V::kParts == 2) {
#pragma GCC unroll 2
      for (int p = 0; p < 2; ++p) {
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h) {
          const R a = t[8 * h + j].part[p], b = t[8 * h + 4 + j].part[p];
          r[8 * p + j].part[h] = shuffle_by<Halves<8, false>>(a, b);
          r[8 * p + 4 + j].part[h] = shuffle_by<Halves<8, true>>(a, b);
        }
      }
    } else {
      const R a = shuffle_by<Quarters<16, false>>(t[j].part[0], t[4 + j].part[0]);
      const R b = shuffle_by<Quarters<16, true>>(t[j].part[0], t[4 + j].part[0]);
      const R c = shuffle_by<Quarters<16, false>>(t[8 + j].part[0], t[12 + j].part[0]);
      const R d = shuffle_by<Quarters<16, true>>(t[8 + j].part[0], t[12 + j].part[0]);
      r[j].part[0] = shuffle_by<Quarters<16, false>>(a, c);
      r[8 + j].part[0] = shuffle_by<Quarters<16, true>>(a, c);
      r[4 + j].part[0] = shuffle_by<Quarters<16, false>>(b, d);
      r[12 + j].part[0] = shuffle_by<Quarters<16, true>>(b, d);
    }
  }
}

// As many rows of floats as a register has lanes become columns.
FAE_INLINE void transpose_register_block(Register<float> (&r)[Target::kFloats]) {
  using R = Register<float>;
  constexpr int L = Target::kFloats;
  R t[L];
#pragma GCC unroll 4
  for (int g = 0; g < L; g += 4) {
    const R rows[4] = {r[g], r[g + 1], r[g + 2], r[g + 3]};
    R x[4];
    transpose_in_quarters(rows, x);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) t[g + j] = x[j];
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    if constexpr (L == 4) {
      r[j] = t[j];
    } else if constexpr (L == 8) {
      r[j] = shuffle_by<Halves<8, false>>(t[j], t[4 + j]);
      r[4 + j] = shuffle_by<Halves<8, true>>(t[j], t[4 + j]);
    } else {
      const R a = shuffle_by<Quarters<16, false>>(t[j], t[4 + j]);
      const R b = shuffle_by<Quarters<16, true>>(t[j], t[4 + j]);
      const R c = shuffle_by<Quarters<16, false>>(t[8 + j], t[12 + j]);
      const R d = shuffle_by<Quarters<16, true>>(t[8 + j], t[12 + j]);
      r[j] = shuffle_by<Quarters<16, false>>(a, c);
      r[8 + j] = shuffle_by<Quarters<16, true>>(a, c);
      r[4 + j] = shuffle_by<Quarters<16, false>>(b, d);
      r[12 + j] = shuffle_by<Quarters<16, true>>(b, d);
    }
  }
}

// Eight rows of eight doubles become eight columns.
FAE_INLINE void Transpose8(D8 (&r)[8]) {
  using R = D8::Part;
  D8 t[8];  // t[2 i + u] has, in quarter L, column 2 L + u of rows 2 i and 2 i + 1
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
    for (int p = 0; p < D8::kParts; ++p) {
      t[2 * i].part[p] = interleave_lower(r[2 * i].part[p], r[2 * i + 1].part[p]);
      t[2 * i + 1].part[p] = interleave_upper(r[2 * i].part[p], r[2 * i + 1].part[p]);
    }
  }
#pragma GCC unroll 2
  for (int u = 0; u < 2; ++u) {
    if constexpr (D8::kParts == 4) {
#pragma GCC unroll 4
      for (int L = 0; L < 4; ++L) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) r[2 * L + u].part[i] = t[2 * i + u].part[L];
      }
    } else if constexpr (D8::kParts == 2) {
#pragma GCC unroll 2
      for (int p = 0; p < 2; ++p) {
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h) {
          const R a = t[4 * h + u].part[p], b = t[4 * h + 2 + u].part[p];
          r[4 * p + u].part[h] = shuffle_by<Halves<4, false>>(a, b);
          r[4 * p + 2 + u].part[h] = shuffle_by<Halves<4, true>>(a, b);
        }
      }
    } else {
      const R a = shuffle_by<Quarters<8, false>>(t[u].part[0], t[2 + u].part[0]);
      const R b = shuffle_by<Quarters<8, true>>(t[u].part[0], t[2 + u].part[0]);
      const R c = shuffle_by<Quarters<8, false>>(t[4 + u].part[0], t[6 + u].part[0]);
      const R d = shuffle_by<Quarters<8, true>>(t[4 + u].part[0], t[6 + u].part[0]);
      r[u].part[0] = shuffle_by<Quarters<8, false>>(a, c);
      r[4 + u].part[0] = shuffle_by<Quarters<8, true>>(a, c);
      r[2 + u].part[0] = shuffle_by<Quarters<8, false>>(b, d);
      r[6 + u].part[0] = shuffle_by<Quarters<8, true>>(b, d);
    }
  }
}

}  // namespace
}  // namespace fae::cpu
