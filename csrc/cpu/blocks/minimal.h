// The minimal flipping sets of the sixteen instances of a block: a class's margins sorted by
// exchanges of whole vectors, two operations for a register of instances; its size is read off
// their running sums. The order by the winner's margins is ranked like any other.
#pragma once

#include "cpu/blocks/extras.h"

namespace fae::cpu {
namespace {

FAE_INLINE void exchange(Doubles& a, Doubles& b) {
  const Doubles low = Min(a, b);
  b = Max(a, b);
  a = low;
}

// Batcher's odd-even merge sort of whole vectors: 19 exchanges for 8, 63 for 16.
template <int From, int Count, int Step, int M>
FAE_INLINE void merge_vectors(Doubles (&x)[M]) {
  if constexpr (2 * Step < Count) {
    merge_vectors<From, Count, 2 * Step>(x);
    merge_vectors<From + Step, Count, 2 * Step>(x);
#pragma GCC unroll 16
    for (int i = From + Step; i + Step < From + Count; i += 2 * Step) exchange(x[i], x[i + Step]);
  } else {
    exchange(x[From], x[From + Step]);
  }
}

template <int From, int Count, int M>
FAE_INLINE void sort_vectors(Doubles (&x)[M]) {
  if constexpr (Count > 1) {
    sort_vectors<From, Count / 2>(x);
    sort_vectors<From + Count / 2, Count / 2>(x);
    merge_vectors<From, Count, 1>(x);
  }
}

// Of a register of instances, class by class.
struct Sizes {
  Doubles size, winner;  // of the smallest set so far, and its slot
  Doubles runner_up;     // the slot closest to the label
  Doubles closest;
};

// Tries the class of a slot: the survivors are the smallest margins whose sum is negative. M is at
// least the number of items, `everything` that of those with weight. Returns the instances for
// which this cannot tell.
template <int M>
inline __attribute__((noinline)) Mask<double, kDoubles> try_slot(const Block& B, std::int64_t s,
                                                                 int l, Doubles everything,
                                                                 Sizes& sizes) {
  const Doubles infinity = Set<Doubles>(kInf), zero = Zero<Doubles>(), one = Set<Doubles>(1);
  const Doubles tolerance = Load<Doubles>(B.tolerance + l);
  const Doubles near = tolerance * Set<Doubles>(1 + 1e-9);
  Doubles x[M];
  Doubles least = infinity;  // margin per mass, less what is near
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
    x[i] = infinity;
    if (i >= B.items) continue;
    const Doubles a = Load<Doubles>(B.a[i] + l);
    x[i] = IfThenElse(a > zero, Load<Doubles>(B.margins[s][i] + l), infinity);
    least = Min(least, NegMulAdd(near, a, x[i]));
  }
  // Some survivor may be against the label, or nearly.
  const auto doubtful = least <= zero;
  sort_vectors<0, M>(x);
  Doubles sum = zero, lower = zero, upper = infinity, survivors = zero;
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
    sum = sum + x[i];
    const auto negative = sum < zero;
    survivors = add_where(survivors, negative, one);
    lower = IfThenElse(negative, sum, lower);
    upper = IfThenElse(negative, upper, Min(upper, sum));
  }
  const auto flips = survivors > zero;
  // The sums on both sides of the flip. Their mass is at most 1, so this is stricter than the
  // tolerance; sums before them are larger still.
  const auto clear = (upper >= tolerance) & (lower <= zero - tolerance) & (survivors < everything);
  const Doubles slot = Set<Doubles>(static_cast<double>(s));
  const Doubles size = everything - survivors;
  const auto better = flips & (size < sizes.size);
  sizes.size = IfThenElse(better, size, sizes.size);
  sizes.winner = IfThenElse(better, slot, sizes.winner);
  const Doubles relative = Load<Doubles>(B.relative[s] + l);
  const auto closer = relative > sizes.closest;
  sizes.closest = IfThenElse(closer, relative, sizes.closest);
  sizes.runner_up = IfThenElse(closer, slot, sizes.runner_up);
  return doubtful & Not(flips & clear);
}

template <int S>
inline __attribute__((noinline)) void minimal_block(const SweepParams& p, Block& B) {
  const std::int64_t others = slots<S>(p);
  const Doubles no_size = Set<Doubles>(kShort + 1), one = Set<Doubles>(1), never = Set<Doubles>(-1);
  alignas(64) float sizes[kInstances], labels[kInstances], winner[kInstances];
  for (int l = 0; l < kInstances; l += kDoubles) {
    Doubles everything = Zero<Doubles>();
    for (std::int64_t i = 0; i < B.items; ++i) {
      everything = add_where(everything, Load<Doubles>(B.a[i] + l) > Zero<Doubles>(), one);
    }
    Sizes best{no_size, Zero<Doubles>(), Zero<Doubles>(), Set<Doubles>(-kInf)};
    auto unsure = MaskFromBits<Doubles>(0);
    for (std::int64_t s = 0; s < others; ++s) {
      unsure = unsure | (B.items <= 8 ? try_slot<8>(B, s, l, everything, best)
                                      : try_slot<16>(B, s, l, everything, best));
    }
    B.odd |= BitsFromMask(unsure) << l;
    const auto flips = best.size < no_size;
    const auto leaves = Not(promoted(B.label + l) == promoted(B.bias_label + l));
    const Doubles otherwise = IfThenElse(leaves, everything, never);
    store_rounded(IfThenElse(flips, best.size, otherwise), sizes + l);
    store_rounded(IfThenElse(flips, best.winner, best.runner_up), winner + l);
    // Of those that flip the label follows below.
    const Doubles by_bias = IfThenElse(leaves, promoted(B.bias_label + l), never);
    store_rounded(IfThenElse(flips, no_size, by_bias), labels + l);
  }

  // The order by the winner's margins.
  keep_all_keys(B, [&](std::int64_t i, int l) {
    const WideDoubles which = PromoteTo(Load<Floats>(winner + l));
    WideDoubles margin = Load<WideDoubles>(B.margins[0][i] + l);
    for (std::int64_t s = 1; s < others; ++s) {
      const auto here = which == Set<WideDoubles>(static_cast<double>(s));
      margin = IfThenElse(here, Load<WideDoubles>(B.margins[s][i] + l), margin);
    }
    const auto some = Load<WideDoubles>(B.a[i] + l) > Zero<WideDoubles>();
    return IfThenElse(some, margin, Set<WideDoubles>(-kInf));
  });
  rank_block(B);
  if (p.minimal_order != nullptr) write_positions(B, p.minimal_order);

  // Labels, from the sums over the survivors.
  for (int l = 0; l < kInstances; l += kDoubles) {
    const Doubles cut = promoted(sizes + l);
    Sums<S> sum[1];
    sum_items<S, 1>(
        p, B, l,
        [&](int, std::int64_t j)
            __attribute__((always_inline)) { return cut <= promoted(B.ranks[j] + l); },
        sum);
    Mask<double, kDoubles> close;
    const Doubles decision = decide<S>(p, B, l, sum[0], &close);
    const Doubles label = promoted(labels + l);
    const auto flips = label == no_size;
    B.odd |= BitsFromMask(close & flips) << l;
    store_rounded(IfThenElse(flips, decision, label), labels + l);
  }
  for (std::int64_t l = 0; l < B.count; ++l) {
    const std::int64_t b = B.index[l];
    if (p.minimal_size != nullptr) p.minimal_size[b] = static_cast<std::int64_t>(sizes[l]);
    if (p.minimal_flip_label != nullptr) {
      p.minimal_flip_label[b] = static_cast<std::int64_t>(labels[l]);
    }
  }
}

}  // namespace
}  // namespace fae::cpu
