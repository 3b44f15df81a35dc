// What short instances cost beside first flips: single items and curves.
//
// Instances stay in the lanes. Sums are of the contract's margins, in double, and never a
// subtraction: of all items that do not rank before one (curves), of all items but one (single
// items), over all pairs of items like the ranks themselves. Divergences are taken relative to the
// largest logit, to base 2, in float. The point where nothing survives is the bias alone.
#pragma once

#include "cpu/blocks/rank.h"
#include "cpu/usual/divergence.h"

namespace fae::cpu {
namespace {

constexpr double kToBase2 = 1.44269504088896340736;

template <int S>
constexpr int kExtraClasses = S > 0 ? S + 1 : 16;  // the label, then the slots

// Logits relative to the largest, to base 2, in the lanes of Floats.
template <int S>
struct Logits {
  Floats of[kExtraClasses<S>];
};

template <int S>
struct Extras {
  static constexpr int kClasses = kExtraClasses<S>;
  // To base 2.
  alignas(64) float p[kClasses][kInstances], p_log_p[kClasses][kInstances];
  alignas(64) float log_p[kClasses][kInstances];
  // The bias alone.
  alignas(64) double bias[kClasses][kInstances];  // of the slots, relative to the label's
  alignas(64) float js[kInstances], kl[kInstances], own[kInstances];
};

// Sums of the margins of each slot over some items, and their mass, in the lanes of Doubles: of a
// register of Floats half.
template <int S>
struct Sums {
  Doubles slot[kExtraClasses<S>];
  Doubles mass;
};

struct Distances {
  Floats js, kl, own;  // own: the label's probability
};

// Divergences of U points of the instances from lane l on, side by side so that their latencies
// overlap.
template <int S, int U>
FAE_INLINE void distances(const SweepParams& p, const Extras<S>& x, const Logits<S>* t, int l,
                          Distances (&d)[U]) {
  constexpr int kClasses = kExtraClasses<S>;
  const std::int64_t C = slots<S>(p) + 1;
  const bool with_kl = p.curve_kl != nullptr || p.single_kl != nullptr;
  const Floats zero = Zero<Floats>();
  const Log2OfHalf log2_of_half;
  Floats q[U][kClasses];
  Floats sum[U], scale[U], log_sum[U], js[U], kl[U];  // twice JS
#pragma GCC unroll 2
  for (int u = 0; u < U; ++u) sum[u] = js[u] = kl[u] = zero;
#pragma GCC unroll 5
  for (std::int64_t c = 0; c < C; ++c) {
#pragma GCC unroll 2
    for (int u = 0; u < U; ++u) {
      q[u][c] = Exp2(t[u].of[c]);
      sum[u] = sum[u] + q[u][c];
    }
  }
#pragma GCC unroll 2
  for (int u = 0; u < U; ++u) {
    scale[u] = Set<Floats>(1.0f) / sum[u];
    log_sum[u] = log2_of_half(sum[u]) + Set<Floats>(1.0f);
  }
#pragma GCC unroll 5
  for (std::int64_t c = 0; c < C; ++c) {
#pragma GCC unroll 2
    for (int u = 0; u < U; ++u) {
      const Floats qc = q[u][c] * scale[u];
      const Floats log_q = t[u].of[c] - log_sum[u];
      const Floats both = qc + Load<Floats>(x.p[c] + l);
      const Floats term = MulAdd(qc, log_q, Load<Floats>(x.p_log_p[c] + l));
      js[u] = js[u] + NegMulAdd(both, log2_of_half(both), term);
      if (!with_kl) continue;
      kl[u] = MulAdd(qc, log_q - Load<Floats>(x.log_p[c] + l), kl[u]);
    }
  }
#pragma GCC unroll 2
  for (int u = 0; u < U; ++u) {
    js[u] = Max(js[u], zero) * Set<Floats>(static_cast<float>(kLn2 / 2));
    kl[u] = Max(kl[u], zero) * Set<Floats>(static_cast<float>(kLn2));
    d[u] = {Min(js[u], Set<Floats>(kLog2Below)), kl[u], q[u][0] * scale[u]};
  }
}

// Calls use(u, distances) for two points of the instances from lane l on.
template <int S, class Use>
FAE_INLINE void distances_of_pair(const SweepParams& p, const Extras<S>& x, const Logits<S> (&t)[2],
                                  int l, Use use) {
  if constexpr (Target::kRegisters >= 32) {
    Distances d[2];
    distances<S, 2>(p, x, t, l, d);
    use(0, d[0]);
    use(1, d[1]);
  } else {
    for (int u = 0; u < 2; ++u) {
      Distances d[1];
      distances<S, 1>(p, x, t + u, l, d);
      use(u, d[0]);
    }
  }
}

// Logits of the slots relative to the label's become logits of all classes relative to the largest.
template <int S>
FAE_INLINE void to_largest(const SweepParams& p, const WideDoubles (&z)[kExtraClasses<S>],
                           Logits<S>& t) {
  const std::int64_t others = slots<S>(p);
  WideDoubles high = Zero<WideDoubles>();
#pragma GCC unroll 5
  for (std::int64_t s = 0; s < others; ++s) high = Max(high, z[s]);
  t.of[0] = DemoteTo(Zero<WideDoubles>() - high);
#pragma GCC unroll 5
  for (std::int64_t s = 0; s < others; ++s) t.of[s + 1] = DemoteTo(z[s] - high);
}

// Logits of the instances from lane l on where sums are taken over the survivors.
template <int S>
FAE_INLINE void logits_of_sums(const SweepParams& p, const Extras<S>& x, const Sums<S>& low,
                               const Sums<S>& high, int l, Logits<S>& t) {
  const std::int64_t others = slots<S>(p);
  const WideDoubles mass = Combine(low.mass, high.mass);
  const WideDoubles scale = Set<WideDoubles>(-kToBase2) / mass;
  WideDoubles z[kExtraClasses<S>];
#pragma GCC unroll 5
  for (std::int64_t s = 0; s < others; ++s) z[s] = Combine(low.slot[s], high.slot[s]) * scale;
  const auto empty = mass == Zero<WideDoubles>();
  if (AnyTrue(empty)) {
#pragma GCC unroll 5
    for (std::int64_t s = 0; s < others; ++s) {
      z[s] = IfThenElse(empty, Load<WideDoubles>(x.bias[s] + l), z[s]);
    }
  }
  to_largest<S>(p, z, t);
}

// Sums over items j of the instances from lane l on, for point u where `lanes_of(u, j)` is set.
template <int S, int U, class LanesOf>
FAE_INLINE void sum_items(const SweepParams& p, const Block& B, int l, LanesOf lanes_of,
                          Sums<S> (&sum)[U]) {
  constexpr int G = S > 0 ? S : 4;
  for (std::int64_t slot = 0; slot < slots<S>(p); slot += G) {
    Doubles part[U][G + 1];  // the mass last
#pragma GCC unroll 2
    for (int u = 0; u < U; ++u) {
#pragma GCC unroll 5
      for (int g = 0; g <= G; ++g) part[u][g] = Zero<Doubles>();
    }
    for (std::int64_t j = 0; j < B.items; ++j) {
      Mask<double, kDoubles> lanes[U];
#pragma GCC unroll 2
      for (int u = 0; u < U; ++u) lanes[u] = lanes_of(u, j);
#pragma GCC unroll 5
      for (int g = 0; g <= G; ++g) {
        Doubles x = Load<Doubles>((g < G ? B.margins[slot + g][j] : B.a[j]) + l);
        in_register(x);
#pragma GCC unroll 2
        for (int u = 0; u < U; ++u) part[u][g] = add_where(part[u][g], lanes[u], x);
      }
    }
#pragma GCC unroll 2
    for (int u = 0; u < U; ++u) {
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) sum[u].slot[slot + g] = part[u][g];
      sum[u].mass = part[u][G];
    }
  }
}

// What divergences are taken from, and the bias alone.
template <int S>
inline __attribute__((noinline)) void prepare_distances(const SweepParams& p, const Block& B,
                                                        Extras<S>& x) {
  const std::int64_t C = slots<S>(p) + 1;
  const WideDoubles one = Set<WideDoubles>(1), to_base_2 = Set<WideDoubles>(kToBase2);
  const Log2OfHalf log2_of_half;
  for (int l = 0; l < kInstances; l += kFloats) {
    const WideDoubles own = Load<WideDoubles>(B.own_probability + l);
    // log of the sum of exp(z_c - z_y), 1 / p_y: a float32 logarithm and one step of Newton's.
    const WideDoubles sum = one / own;
    const WideDoubles start =
        (PromoteTo(log2_of_half(DemoteTo(sum))) + one) * Set<WideDoubles>(kLog2);
    const WideDoubles back = Exp(Zero<WideDoubles>() - start);
    const WideDoubles log_sum = start + MulSub(sum, back, one);
    WideDoubles z[kExtraClasses<S>];
    for (std::int64_t c = 0; c < C; ++c) {
      const WideDoubles relative =
          c == 0 ? Zero<WideDoubles>() : Load<WideDoubles>(B.relative[c - 1] + l);
      const WideDoubles probability = c == 0 ? own : Load<WideDoubles>(B.probability[c - 1] + l);
      const WideDoubles log_p = (relative - log_sum) * to_base_2;
      Store(Max(DemoteTo(probability), Set<Floats>(1e-37f)), x.p[c] + l);
      Store(DemoteTo(probability * log_p), x.p_log_p[c] + l);
      Store(DemoteTo(log_p), x.log_p[c] + l);
      if (c == 0) continue;
      z[c - 1] =
          (Load<WideDoubles>(B.bias[c - 1] + l) - Load<WideDoubles>(B.own_bias + l)) * to_base_2;
      Store(z[c - 1], x.bias[c - 1] + l);
    }
    Logits<S> t[1];
    to_largest<S>(p, z, t[0]);
    Distances d[1];
    distances<S, 1>(p, x, t, l, d);
    Store(d[0].js, x.js + l);
    Store(d[0].kl, x.kl + l);
    Store(d[0].own, x.own + l);
  }
}

// The class with the smallest sum, the label's being zero; `close`, where one is within the
// tolerance.
template <int S>
FAE_INLINE Doubles decide(const SweepParams& p, const Block& B, int l, const Sums<S>& sum,
                          Mask<double, kDoubles>* close) {
  const std::int64_t others = slots<S>(p);
  const Doubles label = promoted(B.label + l);
  const Doubles near = sum.mass * Load<Doubles>(B.tolerance + l) * Set<Doubles>(1 + 1e-9);
  Doubles lowest = Zero<Doubles>(), decision = label;
  *close = MaskFromBits<Doubles>(0);
#pragma GCC unroll 5
  for (std::int64_t s = 0; s < others; ++s) {
    *close = *close | (Abs(sum.slot[s]) < near);
    const auto lower = sum.slot[s] < lowest;
    lowest = Min(sum.slot[s], lowest);
    const Doubles slot = Set<Doubles>(static_cast<double>(s));
    decision = IfThenElse(lower, add_where(slot, label <= slot, Set<Doubles>(1)), decision);
  }
  return decision;
}

// Sums over all items but i and over all items but i + 1.
template <int S>
FAE_INLINE void sum_pair(const SweepParams& p, const Block& B, std::int64_t i, int l,
                         Sums<S> (&sum)[2]) {
  const std::int64_t others = slots<S>(p);
  Doubles part[kExtraClasses<S>];  // the mass last
#pragma GCC unroll 5
  for (std::int64_t s = 0; s <= others; ++s) part[s] = Zero<Doubles>();
  for (std::int64_t j = 0; j < B.items; ++j) {
    if (j == i || j == i + 1) continue;
#pragma GCC unroll 5
    for (std::int64_t s = 0; s <= others; ++s) {
      part[s] = part[s] + Load<Doubles>((s < others ? B.margins[s][j] : B.a[j]) + l);
    }
  }
#pragma GCC unroll 2
  for (int u = 0; u < 2; ++u) {
#pragma GCC unroll 5
    for (std::int64_t s = 0; s < others; ++s) {
      sum[u].slot[s] = part[s] + Load<Doubles>(B.margins[s][i + 1 - u] + l);
    }
    sum[u].mass = part[others] + Load<Doubles>(B.a[i + 1 - u] + l);
  }
}

// Every item erased alone.
template <int S>
inline __attribute__((noinline)) void erase_each(const SweepParams& p, const Extras<S>& x,
                                                 Block& B) {
  const bool distant = p.single_js != nullptr || p.single_kl != nullptr || p.single_drop != nullptr;
  alignas(64) float flip_label[kShort][kInstances];
  alignas(64) float js[kShort][kInstances], kl[kShort][kInstances], drop[kShort][kInstances];
  for (std::int64_t i = 0; i < B.items; i += 2) {
    for (int l = 0; l < kInstances; l += kFloats) {
      Sums<S> sum[2][2];  // half by half
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        const int lane = l + h * kDoubles;
        const Doubles label = promoted(B.label + lane), bias_label = promoted(B.bias_label + lane);
        sum_pair<S>(p, B, i, lane, sum[h]);
#pragma GCC unroll 2
        for (int u = 0; u < 2; ++u) {
          Mask<double, kDoubles> close;
          Doubles decision = decide<S>(p, B, lane, sum[h][u], &close);
          B.odd |= BitsFromMask(present_wide(B, i + u, lane) & close) << lane;
          decision = IfThenElse(sum[h][u].mass == Zero<Doubles>(), bias_label, decision);
          decision = IfThenElse(decision == label, Set<Doubles>(-1), decision);
          store_rounded(decision, flip_label[i + u] + lane);
        }
      }
      if (!distant) continue;
      Logits<S> t[2];
#pragma GCC unroll 2
      for (int u = 0; u < 2; ++u) logits_of_sums<S>(p, x, sum[0][u], sum[1][u], l, t[u]);
      distances_of_pair<S>(p, x, t, l,
                           [&](int u, const Distances& d) __attribute__((always_inline)) {
                             Store(d.js, js[i + u] + l);
                             Store(d.kl, kl[i + u] + l);
                             Store(Load<Floats>(x.p[0] + l) - d.own, drop[i + u] + l);
                           });
    }
  }
  for (std::int64_t l = 0; l < B.count; ++l) {
    const std::int64_t to = B.first[l], n = static_cast<std::int64_t>(B.n[l]);
    for (std::int64_t i = 0; i < n; ++i) {
      if (p.single_flip_label != nullptr) {
        p.single_flip_label[to + i] = static_cast<std::int64_t>(flip_label[i][l]);
      }
      if (p.single_js != nullptr) static_cast<float*>(p.single_js)[to + i] = js[i][l];
      if (p.single_kl != nullptr) static_cast<float*>(p.single_kl)[to + i] = kl[i][l];
      if (p.single_drop != nullptr) static_cast<float*>(p.single_drop)[to + i] = drop[i][l];
    }
  }
}

// Writes the points of ranking r, item by item to the place of its rank, and behind them the one
// where nothing survives.
template <class T>
inline void write_curve(const SweepParams& p, const Block& B, std::int64_t r,
                        const std::int32_t (&place)[kShort][kInstances],
                        const T (&points)[kShort][kInstances], const T (&nothing)[kInstances],
                        T* to) {
  if (to == nullptr) return;
  for (std::int64_t l = 0; l < B.count; ++l) {
    const auto n = static_cast<std::int64_t>(B.n[l]);
    T* const at = to + r * (p.T + p.B) + B.first[l] + B.index[l];
    for (std::int64_t i = 0; i < n; ++i) at[place[i][l]] = points[i][l];
    at[n] = nothing[l];
  }
}

// The curves of ranking r.
template <int S>
inline __attribute__((noinline)) void draw_curves(const SweepParams& p, const Block& B,
                                                  const Extras<S>& x, std::int64_t r) {
  const bool distant = wants_distances(p);
  // At an item's rank.
  alignas(64) double masses[kShort][kInstances];
  alignas(64) float js[kShort][kInstances], kl[kShort][kInstances], own[kShort][kInstances];
  // The ranks beside doubles, since every pair of items compares them, and as places.
  alignas(64) double ranks[kShort][kInstances];
  alignas(64) std::int32_t place[kShort][kInstances];
  for (std::int64_t i = 0; i < B.items; ++i) {
    for (int l = 0; l < kInstances; l += kFloats) {
      const Floats rank = Load<Floats>(B.ranks[i] + l);
      Store(PromoteTo(rank), ranks[i] + l);
      Store(ConvertTo<Words>(rank), place[i] + l);
    }
  }
  for (std::int64_t i = 0; i < B.items; i += 2) {
    for (int l = 0; l < kInstances; l += kFloats) {
      Sums<S> sum[2][2];  // half by half
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        const int lane = l + h * kDoubles;
        const Doubles rank[2] = {Load<Doubles>(ranks[i] + lane),
                                 Load<Doubles>(ranks[i + 1] + lane)};
        sum_items<S, 2>(
            p, B, lane,
            [&](int u, std::int64_t j) __attribute__((always_inline)) {
              return rank[u] <= Load<Doubles>(ranks[j] + lane);
            },
            sum[h]);
#pragma GCC unroll 2
        for (int u = 0; u < 2; ++u) Store(sum[h][u].mass, masses[i + u] + lane);
      }
      if (!distant) continue;
      Logits<S> t[2];
#pragma GCC unroll 2
      for (int u = 0; u < 2; ++u) logits_of_sums<S>(p, x, sum[0][u], sum[1][u], l, t[u]);
      distances_of_pair<S>(
          p, x, t, l, [&](int u, const Distances& d) __attribute__((always_inline)) {
            // Nothing is erased at rank 0: the original distribution itself.
            const auto later = Load<Floats>(B.ranks[i + u] + l) > Zero<Floats>();
            Store(IfThenElseZero(later, d.js), js[i + u] + l);
            Store(IfThenElseZero(later, d.kl), kl[i + u] + l);
            Store(IfThenElse(later, d.own, Load<Floats>(x.p[0] + l)), own[i + u] + l);
          });
    }
  }
  constexpr double kNoMass[kInstances] = {};
  write_curve(p, B, r, place, masses, kNoMass, p.curve_mass);
  write_curve(p, B, r, place, js, x.js, static_cast<float*>(p.curve_js));
  write_curve(p, B, r, place, kl, x.kl, static_cast<float*>(p.curve_kl));
  write_curve(p, B, r, place, own, x.own, static_cast<float*>(p.curve_label_prob));
}

}  // namespace
}  // namespace fae::cpu
