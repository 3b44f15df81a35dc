// Ranks and first flips of the sixteen instances of a block.
//
//   - Ranks without a sort: an item's rank is the number of items before it, so that all pairs are
//     compared, by keys that are exact (words that ascend with the float64 key, upper and lower
//     half in lanes of their own) and with ties by position. The same comparison adds the margins
//     of what ranks behind: an item's sums, and with them the decision of the prefix that ends
//     before it, need no order. This grows with the square of the items; with 7 of them it is
//     cheaper than a network and a scan in its order.
//   - Sums of lowered margins are floats (FloatRow in usual/rows.h: L = 2 t). Where some are
//   negative,
//     the sums over the survivors are taken again.
// With u = 2^-24, t the near-tie tolerance and A the survivors' mass a sum of at most 16 lowered
// margins is off by at most 0.16 t A + 15 u (2 S A) < 0.8 t A. No negative sum: every margin is
// above (2 - 0.8) t A. A negative one: some margin is below 2.8 t A, thus below -3.2 t A where all
// margins read back are 4 t A from zero, and the class of the least is the decision where the next
// is 4 t A away. Everything else is left to the general way, which writes all of the instance's
// results again, like an instance that is not usual.
#pragma once

#include "cpu/blocks/block.h"

namespace fae::cpu {
namespace {

struct EvenLanes {
  static constexpr int at(int l) { return 2 * l; }
};
struct OddLanes {
  static constexpr int at(int l) { return 2 * l + 1; }
};

using Longs = Vec<std::int64_t, kFloats>;  // beside Floats

// Keys of an item in the lanes of instances, signed words that ascend with them: whole or as two
// halves.
template <bool kWhole>
struct KeysOf {
  Words high, low;

  FAE_INLINE static KeysOf load(const Block& B, std::int64_t i, int l) {
    return {Load<Words>(B.keys[i] + l), Load<Words>(B.keys[i] + kInstances + l)};
  }
  FAE_INLINE static void store(Longs key, Block& B, std::int64_t i, int l) {
    static_assert(Longs::kParts == 2, "a register of floats to two of longs");
    const auto first = (Words::Part)key.part[0], second = (Words::Part)key.part[1];
    Words high, low;
    high.part[0] = shuffle_by<OddLanes>(first, second);
    low.part[0] = shuffle_by<EvenLanes>(first, second);
    Store(high, B.keys[i] + l);
    Store(low ^ Set<Words>(INT32_MIN), B.keys[i] + kInstances + l);
  }
  friend FAE_INLINE auto below(const KeysOf& a, const KeysOf& b) {
    return (a.high < b.high) | ((a.high == b.high) & (a.low < b.low));
  }
  friend FAE_INLINE auto not_above(const KeysOf& a, const KeysOf& b) { return Not(below(b, a)); }
};

template <>
struct KeysOf<true> {
  Longs key;

  FAE_INLINE static KeysOf load(const Block& B, std::int64_t i, int l) {
    return {Load<Longs>(reinterpret_cast<const std::int64_t*>(B.keys[i]) + l)};
  }
  FAE_INLINE static void store(Longs key, Block& B, std::int64_t i, int l) {
    Store(key, reinterpret_cast<std::int64_t*>(B.keys[i]) + l);
  }
  friend FAE_INLINE auto below(const KeysOf& a, const KeysOf& b) {
    return DemoteMaskTo(a.key < b.key);
  }
  friend FAE_INLINE auto not_above(const KeysOf& a, const KeysOf& b) {
    return DemoteMaskTo(a.key <= b.key);
  }
};

// Where masks are registers, two comparisons of whole words take the place of three of halves: on a
// Zen 4 a sweep of n~7, C = 5, D = 100 takes 10.2 ms with them, 10.5 with halves.
using Keys = KeysOf<Target::kHasMaskRegisters>;

// Keeps the keys of item i; items that are absent are below all others.
FAE_INLINE void keep_keys(Block& B, std::int64_t i, int l, Longs key) {
  const auto here = RebindMask<Longs>(PromoteMaskTo(present(B, i, l)));
  Keys::store(IfThenElse(here, key, Set<Longs>(INT64_MIN)), B, i, l);
}

// Doubles as keys: their bits, turned where they are negative, -0 equal to +0.
FAE_INLINE Longs ascending(WideDoubles x) {
  const Longs bits = BitCast<Longs>(x + Zero<WideDoubles>());
  return bits ^ (ShiftRight(bits, 63) & Set<Longs>(INT64_MAX));
}

template <class Key>
FAE_INLINE void keep_all_keys(Block& B, Key key) {
  for (int l = 0; l < kInstances; l += kFloats) {
    for (std::int64_t i = 0; i < B.items; ++i) keep_keys(B, i, l, ascending(key(i, l)));
  }
}

inline __attribute__((noinline)) void keep_random_keys(const SweepParams& p, Block& B,
                                                       std::int64_t order) {
  std::uint64_t stream[kInstances];
  for (int l = 0; l < kInstances; ++l) stream[l] = random_stream(p.seed, order, p.ids[B.index[l]]);
  for (std::int64_t i = 0; i < B.items; ++i) {
    alignas(64) std::int64_t key[kInstances];
    for (int l = 0; l < kInstances; ++l) {
      key[l] = static_cast<std::int64_t>(random_key(stream[l], i) ^ std::uint64_t{1} << 63);
    }
    for (int l = 0; l < kInstances; l += kFloats) keep_keys(B, i, l, Load<Longs>(key + l));
  }
}

// The keys of ranking r.
inline void make_keys(const SweepParams& p, Block& B, std::int64_t r) {
  switch (p.rankings[r]) {
    case kAttention:
      keep_all_keys(B, [&](std::int64_t i, int l) { return Load<WideDoubles>(B.e[i] + l); });
      break;
    case kGradient:
      keep_all_keys(B, [&](std::int64_t i, int l) { return Load<WideDoubles>(B.gradient[i] + l); });
      break;
    case kProduct:
      keep_all_keys(B, [&](std::int64_t i, int l) {
        return Load<WideDoubles>(B.a[i] + l) * Load<WideDoubles>(B.gradient[i] + l);
      });
      break;
    default:
      keep_random_keys(p, B, p.ranking_args[r]);
  }
}

// Margins of an item in G slots. Each is used twice, and loaded once where there are registers for
// it: the same sweep takes 10.5 ms otherwise.
template <int G>
FAE_INLINE void load_lowered(const Block& B, std::int64_t slot, std::int64_t i, int l,
                             Floats (&x)[G]) {
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g) {
    x[g] = Load<Floats>(B.lowered[slot + g][i] + l);
    if (Target::kRegisters >= 32) in_register(x[g]);
  }
}

// The sums over an item and what ranks behind it, and how many these are. Every second addition is
// a multiply-add, which other pipes do.
template <int G>
struct ItemSums {
  Keys key;
  Words behind;
  Floats sum[G];

  FAE_INLINE void add(Mask<std::int32_t, kFloats> lanes, const Floats (&x)[G], Words one,
                      Floats unit) {
    behind = add_where(behind, lanes, one);
    const auto chosen = RebindMask<Floats>(lanes);
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) {
      if (g % 2 == 0) {
        sum[g] = add_where(sum[g], chosen, x[g]);
      } else {
        sum[g] = add_multiple_where(sum[g], chosen, x[g], unit);
      }
    }
  }
};

// Ranks of all items and the least of the sums over each and all that rank behind it, of G slots.
template <int G, bool kFirst>
inline __attribute__((noinline)) void scan_slots(Block& B, std::int64_t slot) {
  const std::int64_t items = B.items;
  const Words one = Set<Words>(1);
  Floats unit = Set<Floats>(1.0f);
  in_register(unit);
  for (int l = 0; l < kInstances; l += kFloats) {
    for (std::int64_t i = 0; i < items; i += 2) {
      ItemSums<G> a{Keys::load(B, i, l), Zero<Words>(), {}};
      ItemSums<G> b{Keys::load(B, i + 1, l), Zero<Words>(), {}};
      Floats x[G], y[G];
      load_lowered(B, slot, i, l, x);
      load_lowered(B, slot, i + 1, l, y);
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) {
        a.sum[g] = x[g];
        b.sum[g] = y[g];
      }
      const auto in_order = not_above(b.key, a.key);
      a.add(in_order, y, one, unit);
      b.add(Not(in_order), x, one, unit);
      // Adds item j to the sums of those that it is behind of.
      const auto compare = [&](std::int64_t j, auto is_behind) __attribute__((always_inline)) {
        const Keys its = Keys::load(B, j, l);
        Floats z[G];
        load_lowered(B, slot, j, l, z);
        a.add(is_behind(its, a.key), z, one, unit);
        b.add(is_behind(its, b.key), z, one, unit);
      };
      for (std::int64_t j = 0; j < i; ++j) {
        compare(j, [](const Keys& its, const Keys& own)
                       __attribute__((always_inline)) { return below(its, own); });
      }
      for (std::int64_t j = i + 2; j < items; ++j) {
        compare(j, [](const Keys& its, const Keys& own)
                       __attribute__((always_inline)) { return not_above(its, own); });
      }
      const auto keep = [&](std::int64_t item, const ItemSums<G>& s)
                            __attribute__((always_inline)) {
                              Floats least = s.sum[0];
#pragma GCC unroll 4
                              for (int g = 1; g < G; ++g) least = Min(least, s.sum[g]);
                              if (!kFirst) least = Min(least, Load<Floats>(B.least[item] + l));
                              Store(least, B.least[item] + l);
                              if (!kFirst) return;
                              const Words others = Set<Words>(static_cast<std::int32_t>(items - 1));
                              Store(ConvertTo<Floats>(others - s.behind), B.ranks[item] + l);
                            };
      keep(i, a);
      keep(i + 1, b);
    }
  }
}

template <int S>
FAE_INLINE void scan_block(const SweepParams& p, Block& B) {
  if constexpr (S > 0) {
    scan_slots<S, true>(B, 0);
  } else {
    scan_slots<4, true>(B, 0);
    for (std::int64_t s = 4; s < slots<S>(p); s += 4) scan_slots<4, false>(B, s);
  }
}

// Ranks by the keys alone.
inline void rank_block(Block& B) {
  const Words one = Set<Words>(1);
  for (int l = 0; l < kInstances; l += kFloats) {
    for (std::int64_t i = 0; i < B.items; ++i) {
      const Keys key = Keys::load(B, i, l);
      Words rank = Zero<Words>();
      for (std::int64_t j = 0; j < i; ++j) {
        rank = add_where(rank, not_above(key, Keys::load(B, j, l)), one);
      }
      for (std::int64_t j = i + 1; j < B.items; ++j) {
        rank = add_where(rank, below(key, Keys::load(B, j, l)), one);
      }
      Store(ConvertTo<Floats>(rank), B.ranks[i] + l);
    }
  }
}

// The items' positions in the order of their ranks.
inline void write_positions(const Block& B, std::int64_t* to) {
  for (std::int64_t l = 0; l < B.count; ++l) {
    const auto n = static_cast<std::int64_t>(B.n[l]);
    for (std::int64_t i = 0; i < n; ++i) {
      to[B.first[l] + static_cast<std::int64_t>(B.ranks[i][l])] = i;
    }
  }
}

// Behind the last item that has weight.
inline void last_with_mass(const Block& B, float* last) {
  memcpy(last, B.n, sizeof B.n);
  if (!B.any_massless) return;
  for (int l = 0; l < kInstances; l += kDoubles) {
    Doubles end = Zero<Doubles>();
    for (std::int64_t i = 0; i < B.items; ++i) {
      const auto some = Load<Doubles>(B.a[i] + l) > Zero<Doubles>();
      end = IfThenElse(some, Max(end, promoted(B.ranks[i] + l) + Set<Doubles>(1)), end);
    }
    store_rounded(end, last + l);
  }
}

// First flips of ranking r.
template <int S>
inline __attribute__((noinline)) void resolve(const SweepParams& p, Block& B, std::int64_t r) {
  const std::int64_t items = B.items, others = slots<S>(p);
  const Floats zero = Zero<Floats>(), never = Set<Floats>(-1.0f);
  alignas(64) float last[kInstances];
  alignas(64) std::int32_t firsts[kInstances], labels[kInstances];
  alignas(64) double masses[kInstances];
  last_with_mass(B, last);
  for (int l = 0; l < kInstances; l += kFloats) {
    const Floats label = Load<Floats>(B.label + l), bias_label = Load<Floats>(B.bias_label + l);
    Floats first = Set<Floats>(kShort + 1);
    for (std::int64_t i = 0; i < items; ++i) {
      const auto negative = Load<Floats>(B.least[i] + l) < zero;
      first = IfThenElse(negative, Min(first, Load<Floats>(B.ranks[i] + l)), first);
    }
    const auto flips = first <= Set<Floats>(kShort);
    const Floats cut = IfThenElse(flips, first, Load<Floats>(last + l));
    WideDoubles mass = Zero<WideDoubles>();
    Floats surviving = zero;
    Floats sums[S > 0 ? S : 15];
#pragma GCC unroll 4
    for (std::int64_t s = 0; s < others; ++s) sums[s] = zero;
    for (std::int64_t i = 0; i < items; ++i) {
      const auto erased = Load<Floats>(B.ranks[i] + l) < cut;
      mass = add_where(mass, PromoteMaskTo(erased), Load<WideDoubles>(B.a[i] + l));
      const auto survive = Not(erased);
      surviving = add_where(surviving, survive, Load<Floats>(B.weight[i] + l));
#pragma GCC unroll 4
      for (std::int64_t s = 0; s < others; ++s) {
        sums[s] = add_where(sums[s], survive, Load<Floats>(B.lowered[s][i] + l));
      }
    }
    const Floats tolerance = DemoteTo(Load<WideDoubles>(B.tolerance + l));
    const Floats scaled = surviving * tolerance;
    const Floats lowered = scaled + scaled, clear = lowered + lowered;
    Floats lowest = zero, second = zero, decision = label;
    auto close = first == zero;
#pragma GCC unroll 5
    for (std::int64_t s = 0; s < others; ++s) {
      const Floats margin = sums[s] + lowered;
      close = close | (Abs(margin) < clear);
      const auto lower = margin < lowest;
      second = Min(second, Max(margin, lowest));
      lowest = Min(margin, lowest);
      const Floats slot = Set<Floats>(static_cast<float>(s));
      const Floats its = add_where(slot, label <= slot, Set<Floats>(1.0f));
      decision = IfThenElse(lower, its, decision);
    }
    close = close | (second - lowest < clear);
    B.odd |= BitsFromMask(flips & close) << l;
    const auto stays = label == bias_label;
    Store(mass, masses + l);
    Store(ConvertTo<Words>(IfThenElse(Not(flips) & stays, never, cut)), firsts + l);
    const Floats otherwise = IfThenElse(stays, never, bias_label);
    Store(ConvertTo<Words>(IfThenElse(flips, decision, otherwise)), labels + l);
  }
  for (std::int64_t l = 0; l < B.count; ++l) {
    const std::int64_t to = r * p.B + B.index[l];
    if (p.first_flip != nullptr) p.first_flip[to] = firsts[l];
    if (p.flip_label != nullptr) p.flip_label[to] = labels[l];
    if (p.removed_mass != nullptr) p.removed_mass[to] = firsts[l] < 0 ? kNan : masses[l];
  }
  if (p.order != nullptr) write_positions(B, p.order + r * p.T);
}

}  // namespace
}  // namespace fae::cpu
