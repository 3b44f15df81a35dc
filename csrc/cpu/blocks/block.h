// Sixteen instances of at most 16 items in the lanes of vectors, from the scores to the margins.
//
// Every number of a block is an array over its 16 instances, which are worked on a register at a
// time: 16, 8 or 4 floats, 8, 4 or 2 doubles. Nothing is summed or compared across lanes, so that
// targets differ in their exponentials alone, and next to no branch depends on the data: a block
// costs what its longest instance does. Small integers (labels, ranks, lengths) are floats beside
// floats and doubles beside doubles, so that no mask has to change its width.
//   - Loads: four items of 4 instances are 4 pieces of a column, transposed inside a quarter of a
//     vector, as in the projection.
//   - Items that an instance lacks have no weight and no contribution.
#pragma once

#include "cpu/instance.h"
#include "cpu/simd/lanes.h"
#include "cpu/simd/math.h"
#include "cpu/simd/transpose.h"
#include "cpu/usual/projection.h"

namespace fae::cpu {
namespace {

constexpr std::int64_t kShort = 16;  // items
constexpr int kInstances = 16;       // of a block
constexpr int kFloats = Target::kFloats, kDoubles = Target::kDoubles;

using Floats = Vec<float, kFloats>;
using Doubles = Vec<double, kDoubles>;
using Words = Vec<std::int32_t, kFloats>;
using WideDoubles = Vec<double, kFloats>;  // beside Floats

// The slot s of class c is c, or c - 1 beyond the label.
struct Block {
  std::int64_t count;  // instances; the lanes beyond repeat the last one
  std::int64_t items;  // of the longest, made even
  std::int64_t index[kInstances], first[kInstances];
  std::int64_t offset[kInstances];  // of the first item in the run
  alignas(64) float n[kInstances];
  bool any_massless;  // some item has no weight
  std::uint32_t odd;  // bits of instances for the general way
  // By item.
  alignas(64) double e[kShort][kInstances];  // scores or weights as given
  alignas(64) double a[kShort][kInstances];
  alignas(64) float weight[kShort][kInstances];  // a rounded
  alignas(64) double gradient[kShort][kInstances];
  alignas(64) float contributions[15][kShort][kInstances];  // to class c + 1, less that to class 0
  alignas(64) float lowered[kShort][kShort][kInstances];    // margins by slot
  alignas(64) double margins[kShort][kShort][kInstances];   // the contract's, beside first flips
  // Of the ranking at hand: keys as `Keys` in rank.h stores them.
  alignas(64) std::int32_t keys[kShort][2 * kInstances];
  alignas(64) float ranks[kShort][kInstances];
  alignas(64) float least[kShort][kInstances];  // of an item's sums
  // By instance.
  alignas(64) double smallest[kInstances];  // weight that is not zero
  alignas(64) double tolerance[kInstances];
  alignas(64) float label[kInstances], bias_label[kInstances];
  alignas(64) double own_probability[kInstances], own_bias[kInstances];
  alignas(64) double probability[15][kInstances], bias[15][kInstances];  // of the slots
  alignas(64) double relative[15][kInstances];                           // z_c - z_y
};

// Slots; S where that is known, else 0.
template <int S>
FAE_INLINE std::int64_t slots(const SweepParams& p) {
  return S > 0 ? S : p.C - 1;
}

FAE_INLINE Doubles promoted(const float* from) {
  return PromoteTo(Load<Vec<float, kDoubles>>(from));
}
FAE_INLINE void store_rounded(Doubles x, float* to) { Store(DemoteTo(x), to); }

// Which instances from lane l on have item i.
FAE_INLINE auto present(const Block& B, std::int64_t i, int l) {
  return Set<Floats>(static_cast<float>(i)) < Load<Floats>(B.n + l);
}
FAE_INLINE auto present_wide(const Block& B, std::int64_t i, int l) {
  return Set<Doubles>(static_cast<double>(i)) < promoted(B.n + l);
}

// x + y where the mask is set, else x.
template <class T, int N>
FAE_INLINE Vec<T, N> add_where(Vec<T, N> x, Mask<T, N> m, Vec<T, N> y) {
  return Target::kHasMaskRegisters ? IfThenElse(m, x + y, x) : x + IfThenElseZero(m, y);
}

// The same through a multiplication by `unit`, 1, which other pipes do.
template <class T, int N>
FAE_INLINE Vec<T, N> add_multiple_where(Vec<T, N> x, Mask<T, N> m, Vec<T, N> y, Vec<T, N> unit) {
  if constexpr (!Target::kHasFma) return add_where(x, m, y);
  return Target::kHasMaskRegisters ? IfThenElse(m, MulAdd(y, unit, x), x)
                                   : MulAdd(IfThenElseZero(m, y), unit, x);
}

// Items item … item + 3 of the instances from lane l on.
FAE_INLINE void gather_items(const Block& B, const float* column, std::int64_t item, int l,
                             Floats (&x)[4]) {
  Floats r[4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    r[j] = LoadQuarters<Floats>([&](int q) __attribute__((always_inline)) {
      return column + item + B.offset[l + 4 * q + j];
    });
  }
  TransposeQuarters(r, x);
}

// Scores or weights as given, in `nothing` where an instance has no item.
inline void load_block(const SweepParams& p, const float* scores, double nothing, Block& B) {
  if (p.attention_dtype == kFloat64) {
    for (std::int64_t i = 0; i < B.items; ++i) {
      for (int l = 0; l < kInstances; ++l) {
        B.e[i][l] = nothing;
        if (static_cast<float>(i) >= B.n[l]) continue;
        load_elements(p.attention, p.attention_dtype, (B.first[l] + i) * p.attention_stride_t, 1, 1,
                      B.e[i] + l);
      }
    }
    return;
  }
  for (int l = 0; l < kInstances; l += kFloats) {
    for (std::int64_t i = 0; i < B.items; i += 4) {
      Floats x[4];
      gather_items(B, scores, i, l, x);
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        const Floats absent = Set<Floats>(static_cast<float>(nothing));
        Store(PromoteTo(IfThenElse(present(B, i + k, l), x[k], absent)), B.e[i + k] + l);
      }
    }
  }
}

// Weights, and which instances are odd in them.
template <bool kScores>
inline __attribute__((noinline)) void weigh(const SweepParams& p, const float* scores, Block& B) {
  const double absent = kScores ? -kInf : 0.0;
  load_block(p, scores, absent, B);
  const WideDoubles nothing = Set<WideDoubles>(absent), zero = Zero<WideDoubles>();
  B.any_massless = false;
  for (int l = 0; l < kInstances; l += kFloats) {
    WideDoubles largest = nothing;
    for (std::int64_t i = 0; i < B.items; ++i)
      largest = Max(largest, Load<WideDoubles>(B.e[i] + l));
    const WideDoubles bound =
        kScores ? Set<WideDoubles>(-kUnderflowSpan) : largest * Set<WideDoubles>(1e-280);
    const auto usual = [&](WideDoubles e) __attribute__((always_inline)) {
      return (kScores ? e - largest : e) >= bound;
    };
    WideDoubles sum = zero;
    auto suspects = MaskFromBits<WideDoubles>(0);
    for (std::int64_t i = 0; i < B.items; ++i) {
      const WideDoubles e = Load<WideDoubles>(B.e[i] + l);
      suspects = suspects | (PromoteMaskTo(present(B, i, l)) & Not(usual(e)));
      const WideDoubles w = kScores ? Exp(e - largest) : e;
      Store(w, B.a[i] + l);
      sum = sum + w;
    }
    sum = Set<WideDoubles>(1) / sum;
    WideDoubles smallest = Set<WideDoubles>(1);
    for (std::int64_t i = 0; i < B.items; ++i) {
      const WideDoubles a = Load<WideDoubles>(B.a[i] + l) * sum;
      Store(a, B.a[i] + l);
      smallest = IfThenElse(a > zero, Min(smallest, a), smallest);
      Store(DemoteTo(a), B.weight[i] + l);
    }
    Store(smallest, B.smallest + l);
    auto odd = MaskFromBits<WideDoubles>(0);
    if (!kScores) {
      odd = Not((largest <= Set<WideDoubles>(1e250)) & (largest >= Set<WideDoubles>(1e-250)));
    }
    if (AnyTrue(suspects)) {
      B.any_massless = true;
      auto massless = Not(MaskFromBits<WideDoubles>(0));
      for (std::int64_t i = 0; i < B.items; ++i) {
        const WideDoubles e = Load<WideDoubles>(B.e[i] + l);
        const auto none = e == nothing;
        massless = massless & none;
        odd = odd | (PromoteMaskTo(present(B, i, l)) & Not(none | usual(e)));
      }
      odd = odd | massless;
    }
    B.odd |= BitsFromMask(odd) << l;
  }
}

// Contributions, zeros where an instance has no item.
template <int S>
inline void load_contributions(const SweepParams& p, const float* columns, std::int64_t pitch,
                               Block& B) {
  const std::int64_t others = slots<S>(p);
  for (int l = 0; l < kInstances; l += kFloats) {
    for (std::int64_t i = 0; i < B.items; i += 4) {
      for (std::int64_t s = 0; s < others; ++s) {
        Floats x[4];
        gather_items(B, columns + (s + 1) * pitch, i, l, x);
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) {
          Store(IfThenElseZero(present(B, i + k, l), x[k]), B.contributions[s][i + k] + l);
        }
      }
    }
  }
}

// The largest squared norm of each instance's items.
inline void largest_norms(const float* norms, Block& B, float* norm2) {
  for (int l = 0; l < kInstances; l += kFloats) {
    Floats largest = Zero<Floats>();
    for (std::int64_t i = 0; i < B.items; i += 4) {
      Floats x[4];
      gather_items(B, norms, i, l, x);
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        const auto here = present(B, i + k, l);
        largest = IfThenElse(here, Max(largest, x[k]), largest);
        // The maximum of a number and NaN may be the number.
        B.odd |= BitsFromMask(here & Not(x[k] == x[k])) << l;
      }
    }
    Store(largest, norm2 + l);
  }
}

// What the original decision of every instance gives to its results.
template <int S>
inline void write_originals(const SweepParams& p, const Block& B, std::uint32_t near,
                            const float (&probabilities)[16][kInstances],
                            const double (&logits)[16][kInstances]) {
  const std::int64_t C = slots<S>(p) + 1;
  for (std::int64_t l = 0; l < B.count; ++l) {
    const std::int64_t b = B.index[l];
    const auto n = static_cast<std::int64_t>(B.n[l]);
    if (p.label != nullptr) p.label[b] = static_cast<std::int64_t>(B.label[l]);
    if (p.status != nullptr) {
      std::int64_t status = n == 1 ? kSingle : StatusBit{};
      if ((near >> l & 1) != 0) status |= kNearTie;
      p.status[b] = status;
    }
    if (p.probabilities != nullptr) {
      float* to = static_cast<float*>(p.probabilities) + b * C;
#pragma GCC unroll 5
      for (std::int64_t c = 0; c < C; ++c) to[c] = probabilities[c][l];
    }
    if (p.logits != nullptr) {
      const auto weight = [&](std::int64_t i) { return B.a[i][l]; };
      const double first = first_class_sum(p, B.first[l], n, weight);
      float* to = static_cast<float*>(p.logits) + b * C;
      for (std::int64_t c = 0; c < C; ++c) to[c] = static_cast<float>(logits[c][l] + first);
    }
    for (std::int64_t i = 0; p.weights != nullptr && i < n; ++i) {
      p.weights[B.first[l] + i] = B.a[i][l];
    }
  }
}

// Logits, label, probabilities, tolerance, status; results of theirs.
template <int S>
inline __attribute__((noinline)) void judge_originals(const Context& ctx, const float* norms,
                                                      Block& B) {
  constexpr int kClasses = S > 0 ? S + 1 : 16;
  const SweepParams& p = ctx.p;
  const std::int64_t C = slots<S>(p) + 1;
  alignas(64) float norm2[kInstances];
  largest_norms(norms, B, norm2);
  alignas(64) double norm[kInstances];
  for (int l = 0; l < kInstances; ++l) norm[l] = sqrt(static_cast<double>(norm2[l]));
  std::uint32_t near = 0;
  alignas(64) float probabilities[16][kInstances];
  alignas(64) double logits[16][kInstances];  // less the contributions to class 0
  double shared[16];
  if (p.head_bias_stride_b == 0) load_elements(p.head_bias, p.head_bias_dtype, 0, 1, C, shared);
  const Doubles zero = Zero<Doubles>();
  for (int l = 0; l < kInstances; l += kDoubles) {
    Doubles z[kClasses], bias[kClasses], q[kClasses];
    Doubles largest_bias = zero;
#pragma GCC unroll 5
    for (std::int64_t c = 0; c < C; ++c) {
      if (p.head_bias_stride_b == 0) {
        bias[c] = Set<Doubles>(shared[c]);
      } else {
        double b[kDoubles];
        for (int k = 0; k < kDoubles; ++k) {
          load_elements(p.head_bias, p.head_bias_dtype, B.index[l + k] * p.head_bias_stride_b + c,
                        1, 1, b + k);
        }
        bias[c] = Load<Doubles>(b);
      }
      z[c] = zero;
      largest_bias = Max(largest_bias, Abs(bias[c]));
    }
    for (std::int64_t i = 0; i < B.items; ++i) {
      const Doubles a = Load<Doubles>(B.a[i] + l);
#pragma GCC unroll 5
      for (std::int64_t c = 1; c < C; ++c) {
        z[c] = MulAdd(a, promoted(B.contributions[c - 1][i] + l), z[c]);
      }
    }
#pragma GCC unroll 5
    for (std::int64_t c = 0; c < C; ++c) z[c] = z[c] + bias[c];
    const Doubles n2 = promoted(norm2 + l);
    const Doubles size = Load<Doubles>(norm + l) * Set<Doubles>(ctx.max_head_norm);
    const Doubles tolerance = Set<Doubles>(kNearTieTolerance) * (size + largest_bias);
    // The smallest weight, and it times what matters beside it, must be a normal float by far.
    const Doubles smallest = Load<Doubles>(B.smallest + l);
    auto usual = (n2 > Set<Doubles>(1e-30)) & (n2 < Set<Doubles>(1e37)) &
                 (size < Set<Doubles>(kMostContribution)) & (smallest > Set<Doubles>(1e-36)) &
                 (smallest * tolerance > Set<Doubles>(1e-36)) & (tolerance < Set<Doubles>(1e30));
    Doubles top = z[0], bias_top = bias[0];
#pragma GCC unroll 5
    for (std::int64_t c = 0; c < C; ++c) {
      usual = usual & (z[c] - z[c] == zero);
      top = Max(top, z[c]);
      bias_top = Max(bias_top, bias[c]);
    }
    B.odd |= BitsFromMask(Not(usual)) << l;
    Doubles label = zero, bias_label = zero, own_bias = bias[0], sum = zero;
#pragma GCC unroll 5
    for (std::int64_t c = C - 1; c >= 0; --c) {
      const Doubles its = Set<Doubles>(static_cast<double>(c));
      const auto here = z[c] == top;
      label = IfThenElse(here, its, label);
      own_bias = IfThenElse(here, bias[c], own_bias);
      bias_label = IfThenElse(bias[c] == bias_top, its, bias_label);
      if (p.logits != nullptr) Store(z[c], logits[c] + l);
      z[c] = z[c] - top;
      q[c] = Exp(z[c]);
    }
#pragma GCC unroll 5
    for (std::int64_t c = 0; c < C; ++c) sum = sum + q[c];
    const Doubles per_sum = Set<Doubles>(1) / sum;
    Store(tolerance, B.tolerance + l);
    Store(own_bias, B.own_bias + l);
    Store(per_sum, B.own_probability + l);
    store_rounded(label, B.label + l);
    store_rounded(bias_label, B.bias_label + l);
#pragma GCC unroll 5
    for (std::int64_t c = 0; c < C; ++c) {
      q[c] = q[c] * per_sum;
      store_rounded(q[c], probabilities[c] + l);
    }
    const Doubles clear = tolerance * Set<Doubles>(-(1 + 1e-9));
    auto close = MaskFromBits<Doubles>(0);
#pragma GCC unroll 5
    for (std::int64_t s = 0; s < C - 1; ++s) {
      const auto beyond = label <= Set<Doubles>(static_cast<double>(s));
      const Doubles relative = IfThenElse(beyond, z[s + 1], z[s]);
      close = close | (relative > clear);
      Store(relative, B.relative[s] + l);
      Store(IfThenElse(beyond, q[s + 1], q[s]), B.probability[s] + l);
      Store(IfThenElse(beyond, bias[s + 1], bias[s]), B.bias[s] + l);
    }
    near |= BitsFromMask(close) << l;
  }
  write_originals<S>(p, B, near, probabilities, logits);
}

// Margins, lowered and, where they are wanted, as the contract has them; gradients. Slots up to a
// multiple of 4 are filled with zeros where their number is not known.
template <int S>
inline __attribute__((noinline)) void make_margins(const SweepParams& p, bool exact, Block& B) {
  constexpr int kSlots = S > 0 ? S : 15;
  const std::int64_t others = slots<S>(p);
  for (int l = 0; l < kInstances; l += kFloats) {
    const Floats label = Load<Floats>(B.label + l);
    const WideDoubles own_bias = Load<WideDoubles>(B.own_bias + l);
    Floats apart[kSlots];  // of the biases, lowered
#pragma GCC unroll 5
    for (std::int64_t s = 0; s < others; ++s) {
      apart[s] = DemoteTo(NegMulAdd(Set<WideDoubles>(2), Load<WideDoubles>(B.tolerance + l),
                                    own_bias - Load<WideDoubles>(B.bias[s] + l)));
    }
    for (std::int64_t i = 0; i < B.items; ++i) {
      Floats own = Zero<Floats>();
#pragma GCC unroll 5
      for (std::int64_t s = 0; s < others; ++s) {
        const auto here = label == Set<Floats>(static_cast<float>(s + 1));
        own = IfThenElse(here, Load<Floats>(B.contributions[s][i] + l), own);
      }
      const Floats a = Load<Floats>(B.weight[i] + l);
      const WideDoubles mine = PromoteTo(own);
      WideDoubles gradient = Zero<WideDoubles>();
      Floats below = Zero<Floats>();  // the contribution to class s
#pragma GCC unroll 5
      for (std::int64_t s = 0; s < others; ++s) {
        const Floats above = Load<Floats>(B.contributions[s][i] + l);
        const auto beyond = label <= Set<Floats>(static_cast<float>(s));
        const Floats other = IfThenElse(beyond, above, below);
        below = above;
        Store(a * ((own - other) + apart[s]), B.lowered[s][i] + l);
        const WideDoubles its = PromoteTo(other);
        gradient = MulAdd(Load<WideDoubles>(B.probability[s] + l), mine - its, gradient);
        if (!exact) continue;
        const WideDoubles difference = (mine + own_bias) - (its + Load<WideDoubles>(B.bias[s] + l));
        Store(Load<WideDoubles>(B.a[i] + l) * difference, B.margins[s][i] + l);
      }
      for (std::int64_t s = others; S == 0 && s % 4 != 0; ++s) {
        Store(Zero<Floats>(), B.lowered[s][i] + l);
        Store(Zero<WideDoubles>(), B.margins[s][i] + l);
      }
      Store(Load<WideDoubles>(B.own_probability + l) * gradient, B.gradient[i] + l);
    }
  }
}

}  // namespace
}  // namespace fae::cpu
