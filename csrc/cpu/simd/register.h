// One register of lanes in the compilers' vector extension (GCC and clang), and what is done with
// one: the form that any target can run. A target whose compiler makes something poor of a form has
// its own in x86.h or arm.h; a native test compares the two.
//
// Everything is internal to the including unit, which is compiled for one target: code for one
// instruction set must not be handed to another's machine. For the same reason there are no
// standard templates here, whose symbols are weak.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#define FAE_INLINE inline __attribute__((always_inline))

namespace fae::cpu {
namespace {

// What one target is; the body asks this and nothing else.
struct Target {
#if defined(FAE_WIDE)  // for tests: the lanes of AVX-512 on any machine
  static constexpr int kBytes = 64;
#elif defined(__AVX512F__)
  static constexpr int kBytes = 64;
#elif defined(__AVX2__)
  static constexpr int kBytes = 32;
#else
  static constexpr int kBytes = 16;
#endif
  static constexpr int kFloats = kBytes / 4, kDoubles = kBytes / 8;
#if defined(__AVX512F__) || defined(__aarch64__) || defined(FAE_WIDE)
  static constexpr int kRegisters = 32;
#else
  static constexpr int kRegisters = 16;
#endif
#if defined(__AVX__) || defined(__aarch64__)
  static constexpr bool kBroadcastsLoads = true;  // a number from memory to all lanes
#else
  static constexpr bool kBroadcastsLoads = false;
#endif
#if defined(__FMA__) || defined(__aarch64__)
  static constexpr bool kHasFma = true;
#else
  static constexpr bool kHasFma = false;
#endif
#if defined(__AVX512F__) && !defined(FAE_WIDE)
  static constexpr bool kHasLookup16 = true;  // of a table of 16 lanes by the lanes of another
  static constexpr bool kHasCompress = true;  // to the chosen lanes, without gaps
  static constexpr bool kHasMaskRegisters = true;
#else
  static constexpr bool kHasLookup16 = false, kHasCompress = false, kHasMaskRegisters = false;
#endif
};

template <class T, int kBytes>
struct RegisterOf {
  typedef T Type __attribute__((vector_size(kBytes)));
};
template <class T, int kBytes = Target::kBytes>
using Register = typename RegisterOf<T, kBytes>::Type;

template <class R>
struct RegisterTraits {
  using Lane = decltype(R{}[0] + R{}[0]);
  static constexpr int kLanes = static_cast<int>(sizeof(R) / sizeof(Lane));
};
template <class R>
using LaneOf = typename RegisterTraits<R>::Lane;
template <class R>
constexpr int kLanesOf = RegisterTraits<R>::kLanes;

template <int kSize>
struct IntegerOf;
template <>
struct IntegerOf<4> {
  using Signed = std::int32_t;
  using Unsigned = std::uint32_t;
};
template <>
struct IntegerOf<8> {
  using Signed = std::int64_t;
  using Unsigned = std::uint64_t;
};
// Signed integers in lanes of the same size: what a comparison gives.
template <class R>
using SignedOf = Register<typename IntegerOf<sizeof(LaneOf<R>)>::Signed, sizeof(R)>;

template <int... kIndex>
struct Indices {};
template <int kCount, int... kIndex>
struct MakeIndices : MakeIndices<kCount - 1, kCount - 1, kIndex...> {};
template <int... kIndex>
struct MakeIndices<0, kIndex...> {
  using Type = Indices<kIndex...>;
};
template <int kCount>
using UpTo = typename MakeIndices<kCount>::Type;

// Lanes of `a`, or of `a` then `b`, by constant numbers.
template <int... kLane, class R>
FAE_INLINE R shuffle(R a) {
#if defined(__clang__)
  return __builtin_shufflevector(a, a, kLane...);
#else
  return __builtin_shuffle(a, SignedOf<R>{kLane...});
#endif
}
template <int... kLane, class R>
FAE_INLINE R shuffle(R a, R b) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, kLane...);
#else
  return __builtin_shuffle(a, b, SignedOf<R>{kLane...});
#endif
}

namespace generic {

template <class R, class T, int... kIndex>
FAE_INLINE R set_each(T x, Indices<kIndex...>) {
  return R{(static_cast<void>(kIndex), x)...};
}
template <class R, class T>
FAE_INLINE R set(T x) {
  return set_each<R>(static_cast<LaneOf<R>>(x), UpTo<kLanesOf<R>>());
}

template <class R, int... kIndex>
FAE_INLINE R iota_each(Indices<kIndex...>) {
  return R{static_cast<LaneOf<R>>(kIndex)...};
}
// 0, 1, 2, …
template <class R>
FAE_INLINE R iota() {
  return iota_each<R>(UpTo<kLanesOf<R>>());
}

template <class R>
FAE_INLINE R mul_add(R a, R b, R c) {
  if constexpr (!Target::kHasFma) return a * b + c;
  R sum;
  for (int l = 0; l < kLanesOf<R>; ++l) {
    if constexpr (sizeof(LaneOf<R>) == 4) {
      sum[l] = __builtin_fmaf(a[l], b[l], c[l]);
    } else {
      sum[l] = __builtin_fma(a[l], b[l], c[l]);
    }
  }
  return sum;
}

// Of two numbers, or the second where they do not compare.
template <class R>
FAE_INLINE R min(R a, R b) {
  return a < b ? a : b;
}
template <class R>
FAE_INLINE R max(R a, R b) {
  return a > b ? a : b;
}

template <class R>
FAE_INLINE R abs(R x) {
  using Bits = SignedOf<R>;
  using Lane = typename IntegerOf<sizeof(LaneOf<R>)>::Unsigned;
  return (R)((Bits)x & set<Bits>(static_cast<Lane>(~Lane{0} >> 1)));
}

// The size of the larger.
template <class R>
FAE_INLINE R max_magnitude(R a, R b) {
  return max(abs(a), abs(b));
}

template <class R>
FAE_INLINE SignedOf<R> less(R a, R b) {
  return a < b;
}
template <class R>
FAE_INLINE SignedOf<R> less_equal(R a, R b) {
  return a <= b;
}
template <class R>
FAE_INLINE SignedOf<R> equal(R a, R b) {
  return a == b;
}

template <class R>
FAE_INLINE R select(SignedOf<R> mask, R yes, R no) {
  return mask ? yes : no;
}
template <class R>
FAE_INLINE R zero_unless(SignedOf<R> mask, R x) {
  return (R)((SignedOf<R>)x & mask);
}

// Bit l tells whether the number in lane l has a negative sign.
template <class R>
FAE_INLINE std::uint32_t signs(R x) {
  const auto bits = (SignedOf<R>)x;
  std::uint32_t set = 0;
  for (int l = 0; l < kLanesOf<R>; ++l) set |= (bits[l] < 0 ? 1u : 0u) << l;
  return set;
}
// Bit l tells of lane l of a mask.
template <class M>
FAE_INLINE std::uint32_t mask_bits(M mask) {
  return signs(mask);
}
template <class R>
FAE_INLINE SignedOf<R> mask_of_bits(R, std::uint32_t bits) {
  using Bits = SignedOf<R>;
  Bits each;
  for (int l = 0; l < kLanesOf<R>; ++l) each[l] = 1 << l;
  return (set<Bits>(bits) & each) == each;
}
// The first `count` lanes.
template <class R>
FAE_INLINE SignedOf<R> first_lanes(R, std::int64_t count) {
  using Bits = SignedOf<R>;
  return iota<Bits>() < set<Bits>(count < kLanesOf<R> ? count : kLanesOf<R>);
}

// The first `count` lanes of memory, zeros behind them; nothing else is touched.
template <class R>
FAE_INLINE R load_first(R, const LaneOf<R>* from, std::int64_t count) {
  R x{};
  if (count >= kLanesOf<R>) {
    __builtin_memcpy(&x, from, sizeof x);
  } else {
    LaneOf<R> lane[kLanesOf<R>] = {};
    for (std::int64_t l = 0; l < count; ++l) lane[l] = from[l];
    __builtin_memcpy(&x, lane, sizeof x);
  }
  return x;
}
template <class R>
FAE_INLINE void store_first(R x, LaneOf<R>* to, std::int64_t count) {
  if (count >= kLanesOf<R>) {
    __builtin_memcpy(to, &x, sizeof x);
  } else {
    LaneOf<R> lane[kLanesOf<R>];
    __builtin_memcpy(lane, &x, sizeof x);
    for (std::int64_t l = 0; l < count; ++l) to[l] = lane[l];
  }
}

// Lane l is number index_l, modulo their count, of a table that is aligned like a register.
template <int kCount, class R>
FAE_INLINE R lookup(const LaneOf<R>* table, R index) {
  R x;
  const auto place = (SignedOf<R>)index;
  for (int l = 0; l < kLanesOf<R>; ++l) x[l] = table[place[l] & (kCount - 1)];
  return x;
}

// y 2^n of whole n, in two steps, so that neither factor is less than a normal number.
template <class D>
FAE_INLINE D scale(D y, D n) {
  using Bits = SignedOf<D>;
  const D large = set<D>(0x1.8p52), bias = set<D>(0x1.8p52 + 1023);
  const D half = (n * set<D>(0.5) + large) - large, rest = n - half;
  return y * (D)((Bits)(half + bias) << 52) * (D)((Bits)(rest + bias) << 52);
}

// The exponent of normal numbers.
template <class F>
FAE_INLINE F exponent(F x) {
  return __builtin_convertvector(((SignedOf<F>)x >> 23) - 127, F);
}

template <class R>
using HalfOf = Register<LaneOf<R>, sizeof(R) / 2>;

template <class R>
FAE_INLINE HalfOf<R> lower(R x) {
  HalfOf<R> half;
  __builtin_memcpy(&half, &x, sizeof half);
  return half;
}
template <class R>
FAE_INLINE HalfOf<R> upper(R x) {
  HalfOf<R> half;
  __builtin_memcpy(&half, reinterpret_cast<const char*>(&x) + sizeof half, sizeof half);
  return half;
}
template <class H>
FAE_INLINE Register<LaneOf<H>, 2 * sizeof(H)> combine(H low, H high) {
  Register<LaneOf<H>, 2 * sizeof(H)> x;
  __builtin_memcpy(&x, &low, sizeof low);
  __builtin_memcpy(reinterpret_cast<char*>(&x) + sizeof low, &high, sizeof high);
  return x;
}

// The halves of a mask of lanes of 4 bytes for lanes of 8. Types are deduced: where masks are
// registers of their own, with functions of their own, there is no vector of a mask's size.
FAE_INLINE Register<std::int64_t, 16> widen_mask_lower(Register<std::int32_t, 16> m) {
  return (Register<std::int64_t, 16>)shuffle<0, 0, 1, 1>(m);
}
FAE_INLINE Register<std::int64_t, 16> widen_mask_upper(Register<std::int32_t, 16> m) {
  return (Register<std::int64_t, 16>)shuffle<2, 2, 3, 3>(m);
}
template <class M>
FAE_INLINE auto widen_mask_lower(M m) {
  return __builtin_convertvector(lower(m), Register<std::int64_t, sizeof(M)>);
}
template <class M>
FAE_INLINE auto widen_mask_upper(M m) {
  return __builtin_convertvector(upper(m), Register<std::int64_t, sizeof(M)>);
}

// Masks of lanes of 8 bytes for as many of 4.
template <class M, int... kIndex>
FAE_INLINE M narrow_masks_by(M low, M high, Indices<kIndex...>) {
  return shuffle<(2 * kIndex)...>(low, high);
}
template <class M>
FAE_INLINE auto narrow_masks(M low, M high) {
  using To = Register<std::int32_t, sizeof(M)>;
  return narrow_masks_by((To)low, (To)high, UpTo<kLanesOf<To>>());
}

// float32 to float64 and back: a register of half the bytes, or the halves of one of as many.
template <class F>
FAE_INLINE Register<double, 2 * sizeof(F)> widen(F x) {
  return __builtin_convertvector(x, Register<double, 2 * sizeof(F)>);
}
template <class F>
FAE_INLINE Register<double, sizeof(F)> widen_lower(F x) {
  return widen(lower(x));
}
template <class F>
FAE_INLINE Register<double, sizeof(F)> widen_upper(F x) {
  return widen(upper(x));
}
template <class D>
FAE_INLINE Register<float, sizeof(D) / 2> narrow(D x) {
  return __builtin_convertvector(x, Register<float, sizeof(D) / 2>);
}
template <class D>
FAE_INLINE Register<float, sizeof(D)> narrow_both(D low, D high) {
  return combine(narrow(low), narrow(high));
}

}  // namespace generic

// The forms in use: the generic ones, and a target's own, which are overloads of them.
namespace native {
using generic::abs;
using generic::combine;
using generic::equal;
using generic::exponent;
using generic::first_lanes;
using generic::less;
using generic::less_equal;
using generic::load_first;
using generic::lookup;
using generic::lower;
using generic::mask_bits;
using generic::mask_of_bits;
using generic::max;
using generic::max_magnitude;
using generic::min;
using generic::mul_add;
using generic::narrow;
using generic::narrow_both;
using generic::narrow_masks;
using generic::scale;
using generic::select;
using generic::signs;
using generic::store_first;
using generic::upper;
using generic::widen;
using generic::widen_lower;
using generic::widen_mask_lower;
using generic::widen_mask_upper;
using generic::widen_upper;
using generic::zero_unless;
}  // namespace native

}  // namespace
}  // namespace fae::cpu
