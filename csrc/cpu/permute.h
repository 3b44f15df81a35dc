// The weights of an instance permuted P times (engine contract, section 3b): how far the class
// probabilities move, and how often the decision changes.
//
//   z_{p,c} = sum_i a_{pi_p(i)} s_{i,c} + b_c
//   tvd_p = 1/2 sum_c |softmax(z_p)_c - softmax(z)_c|
//
// The items are projected already. A permutation is a sort of its random keys, a gather of the
// weights in that order and one pass over the contributions; z is summed as z_p is, so that weights
// that are all equal give 0 exactly. Memory does not depend on P.
//   - The usual way: the sorting network, contributions by class in lanes of items, then softmax
//     and comparison with eight permutations in the lanes.
//   - The general way: several heads, more classes, float64 contributions; one permutation at a
//     time, by the sums of state.h.
#pragma once

#include "cpu/usual/sweep.h"

namespace fae::cpu {
namespace {

// What a thread keeps for an instance of n items.
struct PermuteMemory {
  std::uint64_t* words;        // [n + 16] random keys
  std::uint32_t* approximate;  // [max(n, kNetworkItems) + 64], as `packed` scratch of the sort
  std::uint32_t* packed;
  std::uint32_t* order;  // [n + 16] the permutation
  SortBuffers pairs;
  double* moved;        // [n, H] weights in that order
  double* state;        // [H * (C + 3)]
  double* logits;       // [C]
  double* original;     // [C] probabilities
  double* probability;  // [C] of a permutation
  double* logarithm;    // [C] of either
};

inline PermuteMemory lay_out_permute(const SweepParams& p, std::int64_t n, Arena& arena) {
  PermuteMemory m{};
  const std::int64_t slots = (n < kNetworkItems ? kNetworkItems : n) + 64;
  m.words = arena.take<std::uint64_t>(n + 16);
  m.approximate = arena.take<std::uint32_t>(slots);
  m.packed = arena.take<std::uint32_t>(slots);
  m.order = arena.take<std::uint32_t>(n + 16);
  for (int k = 0; k < 2; ++k) {
    m.pairs.keys[k] = arena.take<std::uint64_t>(n);
    m.pairs.positions[k] = arena.take<std::uint32_t>(n);
  }
  m.moved = arena.take<double>(n * p.H + 16);
  m.state = arena.take<double>(p.H * (p.C + 3));
  m.logits = arena.take<double>(p.C);
  m.original = arena.take<double>(p.C);
  m.probability = arena.take<double>(p.C);
  m.logarithm = arena.take<double>(p.C);
  return m;
}

inline std::int64_t permute_bytes(const SweepParams& p, std::int64_t n) {
  Arena arena(nullptr);
  lay_out_permute(p, n, arena);
  return arena.used();
}

// Words of at most kNetworkItems random keys, descending, as `network_sort` has them: the leading
// bits of each key and the position. Random keys have no range that would have to be found first.
inline void random_words(std::uint64_t stream, std::int64_t n, int position_bits,
                         std::uint32_t* packed) {
  const int dropped = 32 - (kWordBits - position_bits);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t key = ~static_cast<std::uint32_t>(random_key(stream, i) >> 32);
    packed[i] = kWordBase + ((key >> dropped) << position_bits) + static_cast<std::uint32_t>(i);
  }
}

// Sorts by all 64 bits of their keys the positions of neighbours whose words agree but for these.
inline __attribute__((noinline)) void repair_words(std::uint64_t stream, const std::uint32_t* line,
                                                   std::int64_t n, int position_bits,
                                                   std::uint32_t* order) {
  for (std::int64_t i = 1; i < n; ++i) {
    const std::uint32_t item = order[i];
    std::int64_t j = i;
    for (; j > 0 && (line[j - 1] ^ line[i]) >> position_bits == 0; --j) {
      const std::uint64_t key = random_key(stream, item), other = random_key(stream, order[j - 1]);
      if (other > key || (other == key && order[j - 1] < item)) break;
      order[j] = order[j - 1];
    }
    order[j] = item;
  }
}

// Leaves the positions of n sorted words in `order`.
inline void order_of_words(std::uint64_t stream, const std::uint32_t* line, std::int64_t n,
                           int position_bits, std::uint32_t* order) {
  using U = Vec<std::uint32_t, kWordLanes>;
  constexpr std::int64_t L = kWordLanes;
  const U mask = Set<U>((1u << position_bits) - 1), zero = Zero<U>();
  std::uint32_t equal = 0;
  for (std::int64_t j = 0; j < n; j += L) {
    const U word = Load<U>(line + j), next = Load<U>(line + j + 1);
    Store(word & mask, order + j);
    std::uint32_t same = BitsFromMask(((word ^ next) & ~mask) == zero);
    if (n - 1 - j < L) same &= (1u << (n - 1 - j)) - 1;
    equal |= same;
  }
  // One permutation of 180 items in a thousand, of 1,000 one in eight.
  if (equal != 0) repair_words(stream, line, n, position_bits, order);
}

// Leaves permutation `number` of the instance's items in m.order.
inline void draw_permutation(const SweepParams& p, const Instance& I, std::int64_t number,
                             const PermuteMemory& m) {
  const std::int64_t n = I.n;
  const std::uint64_t stream = random_stream(p.seed, kFirstPermutation + number, p.ids[I.index]);
  if (n > kNetworkItems) {
    for (std::int64_t i = 0; i < n; ++i) m.words[i] = random_key(stream, i);
    const KeyRange range = approximate_words(m.words, n, m.approximate);
    sort_items({nullptr, m.words, m.approximate, range, m.packed, m.pairs}, n, m.order);
    return;
  }
  const int position_bits = n <= 2 ? 1 : 32 - __builtin_clz(static_cast<std::uint32_t>(n - 1));
  random_words(stream, n, position_bits, m.packed);
  const std::int64_t rows = network_rows(n);
  for (std::int64_t j = n; j < rows * kWordLanes; ++j) m.packed[j] = kLastWord;
  sort_columns(m.packed, rows);
  if (rows > 1) columns_to_line(m.packed, rows, m.approximate);
  order_of_words(stream, rows > 1 ? m.approximate : m.packed, n, position_bits, m.order);
}

// What all permutations of an instance say together.
struct Moves {
  std::int64_t flips = 0;
  double nearest = kInf;  // the least distance of the label's logit to another
};

constexpr int kTogether = 8;  // permutations in lanes

// Logits of `count` permutations, by class: [C, kTogether].
using ByPermutation = double[16][kTogether];

// Logits under the weights `a`, less the contribution to class 0, into lane l.
inline void logits_of(const SweepParams& p, UsualInstance& I, const double* a, double total, int l,
                      ByPermutation& z) {
  double sums[16];
  double* const own = I.a;
  I.a = const_cast<double*>(a);  // read alone
  std::int64_t c = 1;
  for (; c + 4 <= p.C; c += 4) weighted_sums<4>(I, c, sums + c);
  for (; c + 2 <= p.C; c += 2) weighted_sums<2>(I, c, sums + c);
  if (c < p.C) weighted_sums<1>(I, c, sums + c);
  I.a = own;
  z[0][l] = I.bias[0];
  for (c = 1; c < p.C; ++c) z[c][l] = sums[c] / total + I.bias[c];
}

// Softmax of every lane: [C, kTogether].
inline void softmax_lanes(std::int64_t C, const ByPermutation& z, ByPermutation& probability) {
  D8 top = Load<D8>(z[0]);
  for (std::int64_t c = 1; c < C; ++c) top = Max(top, Load<D8>(z[c]));
  D8 sum = Zero<D8>();
  for (std::int64_t c = 0; c < C; ++c) {
    const D8 q = Exp(Load<D8>(z[c]) - top);
    Store(q, probability[c]);
    sum = sum + q;
  }
  const D8 share = Set<D8>(1) / sum;
  for (std::int64_t c = 0; c < C; ++c) Store(Load<D8>(probability[c]) * share, probability[c]);
}

inline Moves permute_usual(const PermuteParams& q, UsualInstance& I, const PermuteMemory& m) {
  const SweepParams& p = q.items;
  const bool wide = p.values_dtype == kFloat64;
  D8 mass = Zero<D8>();
  for (std::int64_t i = 0; i < I.n; i += 8) mass = mass + LoadN<D8>(I.a + i, I.n - i);
  const double total = ReduceSum(mass);
  alignas(64) ByPermutation z, original, probability;
  for (int l = 0; l < kTogether; ++l) logits_of(p, I, I.a, total, l, z);
  softmax_lanes(p.C, z, original);
  Moves moves;
  D8 nearest = Set<D8>(kInf);
  for (std::int64_t first = 0; first < q.P; first += kTogether) {
    const std::int64_t count = q.P - first < kTogether ? q.P - first : kTogether;
    for (std::int64_t l = 0; l < count; ++l) {
      draw_permutation(p, I, first + l, m);
      for (std::int64_t i = 0; i < I.n; ++i) m.moved[i] = I.a[m.order[i]];
      logits_of(p, I, m.moved, total, static_cast<int>(l), z);
    }
    softmax_lanes(p.C, z, probability);
    const D8 own = Load<D8>(z[I.label]);
    auto flipped = MaskFromBits<D8>(0);
    D8 apart = Zero<D8>();
    for (std::int64_t c = 0; c < p.C; ++c) {
      apart = apart + Abs(Load<D8>(probability[c]) - Load<D8>(original[c]));
      if (c == I.label) continue;
      const D8 other = Load<D8>(z[c]);
      flipped = flipped | (c < I.label ? other >= own : other > own);
      nearest = Min(nearest, Abs(other - own));
    }
    const std::uint32_t lanes = (1u << count) - 1;
    moves.flips += __builtin_popcount(BitsFromMask(flipped) & lanes);
    alignas(64) double tvd[kTogether];
    Store(apart * Set<D8>(0.5), tvd);
    for (std::int64_t l = 0; l < count; ++l) {
      store_real(q.tvd, wide, (first + l) * p.B + I.index, tvd[l]);
    }
  }
  moves.nearest = ReduceMin(nearest);
  return moves;
}

inline std::int64_t largest_logit(const double* logits, std::int64_t C) {
  std::int64_t label = 0;
  for (std::int64_t c = 1; c < C; ++c) {
    if (logits[c] > logits[label]) label = c;
  }
  return label;
}

inline Moves permute_general(const PermuteParams& q, const Instance& I, const PermuteMemory& m) {
  const SweepParams& p = q.items;
  const bool wide = p.values_dtype == kFloat64;
  weighted_logits(p, I, I.a, m.state, m.logits);
  const std::int64_t label = largest_logit(m.logits, p.C);
  softmax(m.logits, p.C, m.original, m.logarithm);
  Moves moves;
  for (std::int64_t number = 0; number < q.P; ++number) {
    draw_permutation(p, I, number, m);
    for (std::int64_t i = 0; i < I.n; ++i) {
      for (std::int64_t h = 0; h < p.H; ++h) m.moved[i * p.H + h] = I.a[m.order[i] * p.H + h];
    }
    weighted_logits(p, I, m.moved, m.state, m.logits);
    moves.flips += largest_logit(m.logits, p.C) != label;
    softmax(m.logits, p.C, m.probability, m.logarithm);
    double apart = 0;
    for (std::int64_t c = 0; c < p.C; ++c) {
      const double difference = m.probability[c] - m.original[c];
      apart += difference < 0 ? -difference : difference;
      if (c == label) continue;
      const double gap = m.logits[label] - m.logits[c];
      const double size = gap < 0 ? -gap : gap;
      if (size < moves.nearest) moves.nearest = size;
    }
    store_real(q.tvd, wide, number * p.B + I.index, apart / 2);
  }
  return moves;
}

// Gives all permutations of an instance one result.
inline void fill_permuted(const PermuteParams& q, std::int64_t b, double tvd, std::int64_t flips) {
  for (std::int64_t number = 0; number < q.P; ++number) {
    store_real(q.tvd, q.items.values_dtype == kFloat64, number * q.items.B + b, tvd);
  }
  q.flips[b] = flips;
}

// Permutes the weights of an instance that has been through `originate`; returns status bits.
inline std::int64_t permute(const PermuteParams& q, UsualInstance& I, char* memory) {
  const SweepParams& p = q.items;
  if (I.invalid || I.label < 0) {
    fill_permuted(q, I.index, kNan, -1);
    return 0;
  }
  if (I.with_mass == 0) {
    fill_permuted(q, I.index, 0, 0);
    return 0;
  }
  Arena arena(memory);
  const PermuteMemory m = lay_out_permute(p, I.n, arena);
  const Moves moves = I.usual ? permute_usual(q, I, m) : permute_general(q, I, m);
  q.flips[I.index] = moves.flips;
  if (I.usual && moves.nearest < I.tolerance) make_tolerance_exact(p, I);
  return moves.nearest < I.tolerance ? kNearTie : StatusBit{};
}

}  // namespace
}  // namespace fae::cpu
