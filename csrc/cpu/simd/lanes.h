// Vectors of any number of lanes, in as many registers as the target needs for them: the body is
// written for 16 floats or 8 doubles, which are one register with AVX-512, two with AVX2 and four
// with 128 bits. Sums of them are added in the same order on every target.
//
// Names and meanings are those of Highway where it has the operation. `N` is the number of lanes.
#pragma once

#include "cpu/simd/arm.h"
#include "cpu/simd/register.h"
#include "cpu/simd/x86.h"

namespace fae::cpu {
namespace {

template <class T, int N>
struct Vec {
  using Lane = T;
  static constexpr int kLanes = N;
  static constexpr int kBytes = N * static_cast<int>(sizeof(T)) < Target::kBytes
                                    ? N * static_cast<int>(sizeof(T))
                                    : Target::kBytes;
  using Part = Register<T, kBytes>;
  static constexpr int kParts = N * static_cast<int>(sizeof(T)) / kBytes;
  static constexpr int kPartLanes = N / kParts;
  Part part[kParts];
};

// Chosen lanes: a register of ones and zeros, or a number with a bit a lane.
template <class T, int N>
struct Mask {
  using V = Vec<T, N>;
  using Part = decltype(native::less(typename V::Part{}, typename V::Part{}));
  Part part[V::kParts];
};

using F8 = Vec<float, 8>;
using F16 = Vec<float, 16>;
using D8 = Vec<double, 8>;
using U16 = Vec<std::uint32_t, 16>;
using I16 = Vec<std::int32_t, 16>;

#define FAE_EACH_PART(V) _Pragma("GCC unroll 16") for (int k = 0; k < V::kParts; ++k)

// V of one number in every lane.
template <class V>
FAE_INLINE V Set(typename V::Lane x) {
  V y;
  FAE_EACH_PART(V) y.part[k] = generic::set<typename V::Part>(x);
  return y;
}
template <class V>
FAE_INLINE V Zero() {
  V y;
  FAE_EACH_PART(V) y.part[k] = typename V::Part{};
  return y;
}
// first, first + 1, …
template <class V>
FAE_INLINE V Iota(typename V::Lane first = 0) {
  V y;
  FAE_EACH_PART(V) {
    y.part[k] = generic::iota<typename V::Part>() +
                generic::set<typename V::Part>(static_cast<typename V::Lane>(
                    first + static_cast<typename V::Lane>(k * V::kPartLanes)));
  }
  return y;
}

// Lane 0.
template <class T, int N>
FAE_INLINE T GetLane(Vec<T, N> x) {
  return x.part[0][0];
}

// Memory needs no alignment.
template <class V>
FAE_INLINE V Load(const typename V::Lane* from) {
  V y;
  FAE_EACH_PART(V) __builtin_memcpy(&y.part[k], from + k * V::kPartLanes, sizeof y.part[k]);
  return y;
}
template <class T, int N>
FAE_INLINE void Store(Vec<T, N> x, T* to) {
  using V = Vec<T, N>;
  FAE_EACH_PART(V) __builtin_memcpy(to + k * V::kPartLanes, &x.part[k], sizeof x.part[k]);
}
// Has the compiler compute or load x here, once.
template <class V>
FAE_INLINE void in_register(V& x) {
#if defined(FAE_WIDE)
  static_cast<void>(x);
#else
#pragma GCC unroll 4
  for (int k = 0; k < V::kParts; ++k) {
#if defined(__AVX512F__)
    asm("" : "+v"(x.part[k]));
#elif defined(__x86_64__)
    asm("" : "+x"(x.part[k]));
#elif defined(__aarch64__)
    asm("" : "+w"(x.part[k]));
#endif
  }
#endif
}

// The first `count` lanes (none where it is negative, all where it is more than there are), zeros
// in the others; no other memory is touched.
template <class V>
FAE_INLINE V LoadN(const typename V::Lane* from, std::int64_t count) {
  if (!Target::kHasMaskRegisters && count >= V::kLanes) return Load<V>(from);
  V y;
  FAE_EACH_PART(V) {
    y.part[k] =
        native::load_first(typename V::Part{}, from + k * V::kPartLanes, count - k * V::kPartLanes);
  }
  return y;
}
template <class T, int N>
FAE_INLINE void StoreN(Vec<T, N> x, T* to, std::int64_t count) {
  using V = Vec<T, N>;
  if (!Target::kHasMaskRegisters && count >= N) return Store(x, to);
  FAE_EACH_PART(V) {
    native::store_first(x.part[k], to + k * V::kPartLanes, count - k * V::kPartLanes);
  }
}

#define FAE_OPERATOR(op)                                       \
  template <class T, int N>                                    \
  FAE_INLINE Vec<T, N> operator op(Vec<T, N> a, Vec<T, N> b) { \
    using V = Vec<T, N>;                                       \
    V y;                                                       \
    FAE_EACH_PART(V) y.part[k] = a.part[k] op b.part[k];       \
    return y;                                                  \
  }
FAE_OPERATOR(+)
FAE_OPERATOR(-)
FAE_OPERATOR(*)
FAE_OPERATOR(/)
#undef FAE_OPERATOR

// Of bits, in lanes of any type.
#define FAE_OPERATOR(op)                                                                     \
  template <class T, int N>                                                                  \
  FAE_INLINE Vec<T, N> operator op(Vec<T, N> a, Vec<T, N> b) {                               \
    using V = Vec<T, N>;                                                                     \
    using Bits = SignedOf<typename V::Part>;                                                 \
    V y;                                                                                     \
    FAE_EACH_PART(V) { y.part[k] = (typename V::Part)((Bits)a.part[k] op(Bits) b.part[k]); } \
    return y;                                                                                \
  }
FAE_OPERATOR(&)
FAE_OPERATOR(|)
FAE_OPERATOR(^)
#undef FAE_OPERATOR

template <class T, int N>
FAE_INLINE Vec<T, N> operator~(Vec<T, N> a) {
  using V = Vec<T, N>;
  V y;
  FAE_EACH_PART(V) y.part[k] = ~a.part[k];
  return y;
}
// Of integers; to the right by their sign where they have one.
template <class T, int N>
FAE_INLINE Vec<T, N> ShiftLeft(Vec<T, N> a, int bits) {
  using V = Vec<T, N>;
  V y;
  FAE_EACH_PART(V) y.part[k] = a.part[k] << static_cast<T>(bits);
  return y;
}
template <class T, int N>
FAE_INLINE Vec<T, N> ShiftRight(Vec<T, N> a, int bits) {
  using V = Vec<T, N>;
  V y;
  FAE_EACH_PART(V) y.part[k] = a.part[k] >> static_cast<T>(bits);
  return y;
}

// The lanes' bits as lanes of another type of the same size.
template <class V, class T, int N>
FAE_INLINE V BitCast(Vec<T, N> x) {
  static_assert(sizeof(typename V::Lane) == sizeof(T) && V::kLanes == N);
  V y;
  FAE_EACH_PART(V) y.part[k] = (typename V::Part)x.part[k];
  return y;
}

// a b + c, rounded once where the target can.
template <class T, int N>
FAE_INLINE Vec<T, N> MulAdd(Vec<T, N> a, Vec<T, N> b, Vec<T, N> c) {
  using V = Vec<T, N>;
  V y;
  FAE_EACH_PART(V) y.part[k] = native::mul_add(a.part[k], b.part[k], c.part[k]);
  return y;
}
// c - a b
template <class T, int N>
FAE_INLINE Vec<T, N> NegMulAdd(Vec<T, N> a, Vec<T, N> b, Vec<T, N> c) {
  using V = Vec<T, N>;
  V y;
  FAE_EACH_PART(V) y.part[k] = native::mul_add(-a.part[k], b.part[k], c.part[k]);
  return y;
}
// a b - c
template <class T, int N>
FAE_INLINE Vec<T, N> MulSub(Vec<T, N> a, Vec<T, N> b, Vec<T, N> c) {
  using V = Vec<T, N>;
  V y;
  FAE_EACH_PART(V) y.part[k] = native::mul_add(a.part[k], b.part[k], -c.part[k]);
  return y;
}

#define FAE_BINARY(Name, form)                                       \
  template <class T, int N>                                          \
  FAE_INLINE Vec<T, N> Name(Vec<T, N> a, Vec<T, N> b) {              \
    using V = Vec<T, N>;                                             \
    V y;                                                             \
    FAE_EACH_PART(V) y.part[k] = native::form(a.part[k], b.part[k]); \
    return y;                                                        \
  }
FAE_BINARY(Min, min)
FAE_BINARY(Max, max)
FAE_BINARY(MaxMagnitude, max_magnitude)  // of two numbers the larger's size, of whichever sign
#undef FAE_BINARY

template <class T, int N>
FAE_INLINE Vec<T, N> Abs(Vec<T, N> a) {
  using V = Vec<T, N>;
  V y;
  FAE_EACH_PART(V) y.part[k] = native::abs(a.part[k]);
  return y;
}

#define FAE_COMPARISON(op, form, first, second)                                   \
  template <class T, int N>                                                       \
  FAE_INLINE Mask<T, N> operator op(Vec<T, N> a, Vec<T, N> b) {                   \
    using V = Vec<T, N>;                                                          \
    Mask<T, N> y;                                                                 \
    FAE_EACH_PART(V) { y.part[k] = native::form(first.part[k], second.part[k]); } \
    return y;                                                                     \
  }
FAE_COMPARISON(<, less, a, b)
FAE_COMPARISON(>, less, b, a)
FAE_COMPARISON(<=, less_equal, a, b)
FAE_COMPARISON(>=, less_equal, b, a)
FAE_COMPARISON(==, equal, a, b)
#undef FAE_COMPARISON

#define FAE_OPERATOR(op)                                                    \
  template <class T, int N>                                                 \
  FAE_INLINE Mask<T, N> operator op(Mask<T, N> a, Mask<T, N> b) {           \
    using V = Vec<T, N>;                                                    \
    using Part = typename Mask<T, N>::Part;                                 \
    Mask<T, N> y;                                                           \
    FAE_EACH_PART(V) y.part[k] = static_cast<Part>(a.part[k] op b.part[k]); \
    return y;                                                               \
  }
FAE_OPERATOR(&)
FAE_OPERATOR(|)
#undef FAE_OPERATOR
template <class T, int N>
FAE_INLINE Mask<T, N> Not(Mask<T, N> a) {
  using V = Vec<T, N>;
  Mask<T, N> y;
  FAE_EACH_PART(V) y.part[k] = static_cast<typename Mask<T, N>::Part>(~a.part[k]);
  return y;
}

// The mask for lanes of another type of the same size.
template <class V, class T>
FAE_INLINE Mask<typename V::Lane, V::kLanes> RebindMask(Mask<T, V::kLanes> m) {
  static_assert(sizeof(typename V::Lane) == sizeof(T));
  Mask<typename V::Lane, V::kLanes> y;
  FAE_EACH_PART(V) y.part[k] = m.part[k];
  return y;
}

// The first `count` lanes.
template <class V>
FAE_INLINE Mask<typename V::Lane, V::kLanes> FirstN(std::int64_t count) {
  Mask<typename V::Lane, V::kLanes> y;
  FAE_EACH_PART(V) {
    y.part[k] = native::first_lanes(typename V::Part{}, count - k * V::kPartLanes);
  }
  return y;
}
// Bit l for lane l, of at most 32 lanes.
template <class V>
FAE_INLINE Mask<typename V::Lane, V::kLanes> MaskFromBits(std::uint32_t bits) {
  Mask<typename V::Lane, V::kLanes> y;
  FAE_EACH_PART(V) {
    y.part[k] = native::mask_of_bits(typename V::Part{}, bits >> k * V::kPartLanes);
  }
  return y;
}
// The lanes whose byte's lowest bit is set.
FAE_INLINE Mask<double, 8> MaskFromBytes(const unsigned char* bytes) {
  std::uint64_t all;
  __builtin_memcpy(&all, bytes, sizeof all);
  all &= 0x0101010101010101ull;
  return MaskFromBits<D8>(static_cast<std::uint32_t>(all * 0x0102040810204080ull >> 56));
}
template <class T, int N>
FAE_INLINE std::uint32_t BitsFromMask(Mask<T, N> m) {
  using V = Vec<T, N>;
  std::uint32_t bits = 0;
  FAE_EACH_PART(V) bits |= native::mask_bits(m.part[k]) << k * V::kPartLanes;
  return bits;
}
template <class T, int N>
FAE_INLINE bool AnyTrue(Mask<T, N> m) {
  using V = Vec<T, N>;
  auto any = m.part[0];
  FAE_EACH_PART(V) any = static_cast<decltype(any)>(any | m.part[k]);
  return native::mask_bits(any) != 0;
}
// Bit l tells whether lane l has a negative sign.
template <class T, int N>
FAE_INLINE std::uint32_t SignBits(Vec<T, N> x) {
  using V = Vec<T, N>;
  std::uint32_t bits = 0;
  FAE_EACH_PART(V) bits |= native::signs(x.part[k]) << k * V::kPartLanes;
  return bits;
}
template <class T, int N>
FAE_INLINE bool AnyNegative(Vec<T, N> x) {
  using V = Vec<T, N>;
  using Bits = SignedOf<typename V::Part>;
  Bits any = (Bits)x.part[0];
  FAE_EACH_PART(V) any |= (Bits)x.part[k];
  return native::signs((typename V::Part)any) != 0;
}

template <class T, int N>
FAE_INLINE Vec<T, N> IfThenElse(Mask<T, N> m, Vec<T, N> yes, Vec<T, N> no) {
  using V = Vec<T, N>;
  V y;
  FAE_EACH_PART(V) y.part[k] = native::select(m.part[k], yes.part[k], no.part[k]);
  return y;
}
template <class T, int N>
FAE_INLINE Vec<T, N> IfThenElseZero(Mask<T, N> m, Vec<T, N> yes) {
  using V = Vec<T, N>;
  V y;
  FAE_EACH_PART(V) y.part[k] = native::zero_unless(m.part[k], yes.part[k]);
  return y;
}
template <class T, int N>
FAE_INLINE Vec<T, N> IfThenZeroElse(Mask<T, N> m, Vec<T, N> no) {
  return IfThenElseZero(Not(m), no);
}

template <class T, int N>
FAE_INLINE Vec<T, N / 2> LowerHalf(Vec<T, N> x) {
  Vec<T, N / 2> y;
  if constexpr (Vec<T, N>::kParts == 1) {
    y.part[0] = native::lower(x.part[0]);
  } else {
    FAE_EACH_PART(decltype(y)) y.part[k] = x.part[k];
  }
  return y;
}
template <class T, int N>
FAE_INLINE Vec<T, N / 2> UpperHalf(Vec<T, N> x) {
  Vec<T, N / 2> y;
  if constexpr (Vec<T, N>::kParts == 1) {
    y.part[0] = native::upper(x.part[0]);
  } else {
    FAE_EACH_PART(decltype(y)) y.part[k] = x.part[decltype(y)::kParts + k];
  }
  return y;
}
// The lanes of `low`, then those of `high`.
template <class T, int N>
FAE_INLINE Vec<T, 2 * N> Combine(Vec<T, N> low, Vec<T, N> high) {
  Vec<T, 2 * N> y;
  if constexpr (Vec<T, 2 * N>::kParts == 1) {
    y.part[0] = native::combine(low.part[0], high.part[0]);
  } else {
    FAE_EACH_PART(decltype(low)) {
      y.part[k] = low.part[k];
      y.part[decltype(low)::kParts + k] = high.part[k];
    }
  }
  return y;
}

// Between int32 and float32, towards zero.
template <class V, class T>
FAE_INLINE V ConvertTo(Vec<T, V::kLanes> x) {
  V y;
  FAE_EACH_PART(V) y.part[k] = __builtin_convertvector(x.part[k], typename V::Part);
  return y;
}

// A mask of lanes of 4 bytes for as many of 8.
template <class T, int N>
FAE_INLINE Mask<double, N> PromoteMaskTo(Mask<T, N> m) {
  using From = Vec<T, N>;
  Mask<double, N> y;
  static_assert(sizeof(T) == 4 && Vec<double, N>::kParts == 2 * From::kParts);
  FAE_EACH_PART(From) {
    y.part[2 * k] = native::widen_mask_lower(m.part[k]);
    y.part[2 * k + 1] = native::widen_mask_upper(m.part[k]);
  }
  return y;
}

// The reverse.
template <class T, int N>
FAE_INLINE Mask<std::int32_t, N> DemoteMaskTo(Mask<T, N> m) {
  using To = Vec<std::int32_t, N>;
  Mask<std::int32_t, N> y;
  static_assert(sizeof(T) == 8 && Vec<T, N>::kParts == 2 * To::kParts);
  FAE_EACH_PART(To) y.part[k] = native::narrow_masks(m.part[2 * k], m.part[2 * k + 1]);
  return y;
}

// float32 to float64.
template <int N>
FAE_INLINE Vec<double, N> PromoteTo(Vec<float, N> x) {
  using From = Vec<float, N>;
  Vec<double, N> y;
  if constexpr (From::kParts == Vec<double, N>::kParts) {
    FAE_EACH_PART(From) y.part[k] = native::widen(x.part[k]);
  } else {
    FAE_EACH_PART(From) {
      y.part[2 * k] = native::widen_lower(x.part[k]);
      y.part[2 * k + 1] = native::widen_upper(x.part[k]);
    }
  }
  return y;
}
FAE_INLINE D8 LoadPromoted(const float* from) { return PromoteTo(Load<F8>(from)); }
template <int N>
FAE_INLINE Vec<double, N / 2> PromoteLowerTo(Vec<float, N> x) {
  return PromoteTo(LowerHalf(x));
}
template <int N>
FAE_INLINE Vec<double, N / 2> PromoteUpperTo(Vec<float, N> x) {
  return PromoteTo(UpperHalf(x));
}
// float64 to float32.
template <int N>
FAE_INLINE Vec<float, N> DemoteTo(Vec<double, N> x) {
  using To = Vec<float, N>;
  To y;
  if constexpr (To::kParts == Vec<double, N>::kParts) {
    FAE_EACH_PART(To) y.part[k] = native::narrow(x.part[k]);
  } else {
    FAE_EACH_PART(To) y.part[k] = native::narrow_both(x.part[2 * k], x.part[2 * k + 1]);
  }
  return y;
}
template <int N>
FAE_INLINE Vec<float, 2 * N> OrderedDemote2To(Vec<double, N> low, Vec<double, N> high) {
  return DemoteTo(Combine(low, high));
}

// Over the lanes, halves with halves: the same tree whatever the registers.
template <class R, class Op>
FAE_INLINE LaneOf<R> fold(R x, Op op) {
  if constexpr (sizeof(R) > 16) {
    return fold(op(native::lower(x), native::upper(x)), op);
  } else if constexpr (kLanesOf<R> == 4) {
    const R y = op(x, shuffle<2, 3, 0, 1>(x));
    return op(y, shuffle<1, 0, 3, 2>(y))[0];
  } else {
    return op(x, shuffle<1, 0>(x))[0];
  }
}
template <class T, int N, class Op>
FAE_INLINE T fold_lanes(Vec<T, N> x, Op op) {
  using V = Vec<T, N>;
#pragma GCC unroll 4
  for (int half = V::kParts / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int k = 0; k < half; ++k) x.part[k] = op(x.part[k], x.part[half + k]);
  }
  return fold(x.part[0], op);
}
template <class T, int N>
FAE_INLINE T ReduceSum(Vec<T, N> x) {
  return fold_lanes(x, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
}
template <class T, int N>
FAE_INLINE T ReduceMin(Vec<T, N> x) {
  return fold_lanes(
      x, [](auto a, auto b) __attribute__((always_inline)) { return native::min(a, b); });
}
template <class T, int N>
FAE_INLINE T ReduceMax(Vec<T, N> x) {
  return fold_lanes(
      x, [](auto a, auto b) __attribute__((always_inline)) { return native::max(a, b); });
}

// Lane l is number index_l, modulo their count, of a table of that many that is aligned to 64
// bytes; the index is in the bits of the lanes, whatever their type. Cheap where
// Target::kHasLookup16.
template <int kCount, class T, int N>
FAE_INLINE Vec<T, N> TableLookup(const T* table, Vec<T, N> index) {
  using V = Vec<T, N>;
  V y;
  FAE_EACH_PART(V) y.part[k] = native::lookup<kCount>(table, index.part[k]);
  return y;
}

// y 2^n of whole n, down to the smallest numbers.
template <int N>
FAE_INLINE Vec<double, N> Scale(Vec<double, N> y, Vec<double, N> n) {
  using V = Vec<double, N>;
  FAE_EACH_PART(V) y.part[k] = native::scale(y.part[k], n.part[k]);
  return y;
}

// floor(log2 x) of normal positive numbers.
template <int N>
FAE_INLINE Vec<float, N> Exponent(Vec<float, N> x) {
  using V = Vec<float, N>;
  FAE_EACH_PART(V) x.part[k] = native::exponent(x.part[k]);
  return x;
}

// Writes the chosen lanes one after the other, and perhaps others behind them up to N in all;
// returns how many were chosen.
template <int N, class T>
FAE_INLINE std::int64_t CompressStore(Vec<std::uint32_t, N> x, Mask<T, N> m, std::uint32_t* to) {
  std::uint32_t bits = BitsFromMask(m);
#if defined(__AVX512F__) && !defined(FAE_WIDE)
  if constexpr (N == 16) {
    const auto chosen = static_cast<__mmask16>(bits);
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(chosen, (__m512i)x.part[0]));
    return __builtin_popcount(bits);
  }
#endif
  std::int64_t count = 0;
  if (bits == 0) return 0;
  std::uint32_t lane[N];
  Store(x, lane);
  for (; bits != 0; bits &= bits - 1) to[count++] = lane[__builtin_ctz(bits)];
  return count;
}

#undef FAE_EACH_PART

}  // namespace
}  // namespace fae::cpu
