// Every prefix of a ranking, from rows of lowered margins: from the front to the first flip while
// much mass survives, from the tail for the rest; signs by blocks of ranks tell where to look.
//
// Ladder, sweep of 2,000 instances of n~300, C = 10 (1 thread, ms): from the tail, four rankings at
// a time 23.6; from the front, one by one 22.7. Where nothing flips it is 0.4 slower than before.

#pragma once

#include "cpu/rankings.h"
#include "cpu/usual/network.h"
#include "cpu/usual/rows.h"
#include "cpu/variant.h"

namespace fae::cpu {
namespace {

struct UsualWork {
  std::uint32_t* orders[kGroup];  // [n + 16]
  unsigned char* signs[kGroup];   // [n / kCheckpoint + 65] whether a sum is negative in there
  double* checkpoints[kGroup];    // [n / kCheckpoint + 2, row]
  double* keys;                   // [n]
  std::uint64_t* words;           // [n]
  std::uint32_t* approximate;     // [max(n, kNetworkItems) + 64]
  std::uint32_t* packed;          // the same
  double* block;                  // [16, row] of single items
};

inline UsualWork lay_out_usual_work(const SweepParams& p, std::int64_t n, Arena& arena) {
  UsualWork w{};
  const std::int64_t row = row_width(p.C);
  const std::int64_t group = p.R < kGroup ? p.R : kGroup;
  for (std::int64_t g = 0; g < group; ++g) {
    w.orders[g] = arena.take<std::uint32_t>(n + 16);
    w.signs[g] = arena.take<unsigned char>(n / kCheckpoint + 65);
    w.checkpoints[g] = arena.take<double>((n / kCheckpoint + 2) * row);
  }
  const std::int64_t slots = (n < kNetworkItems ? kNetworkItems : n) + 64;
  w.keys = arena.take<double>(n + 16);
  w.words = arena.take<std::uint64_t>(n + 16);
  w.approximate = arena.take<std::uint32_t>(slots);
  w.packed = arena.take<std::uint32_t>(slots);
  w.block = arena.take<double>(16 * row);
  return w;
}

// Sums of the rows of a block of ranks apart from what came before it, so that blocks overlap in
// the processor. The running sum is that before the block + kSign times the block's rows so far; a
// lane of it was negative where it is at the extreme of those.
template <class Row, int kSign>
struct BlockSums {
  D8 since[Row::kVectors], extreme[Row::kVectors];

  FAE_INLINE void clear() {
#pragma GCC unroll 2
    for (int v = 0; v < Row::kVectors; ++v) since[v] = extreme[v] = Zero<D8>();
  }
  FAE_INLINE void add(const double* row) {
#pragma GCC unroll 2
    for (int v = 0; v < Row::kVectors; ++v) {
      since[v] = since[v] + Load<D8>(row + 8 * v);
      extreme[v] = kSign > 0 ? Min(extreme[v], since[v]) : Max(extreme[v], since[v]);
    }
  }
  // Moves `sum` past the block; returns whether it was negative on the way.
  FAE_INLINE bool settle(D8 (&sum)[Row::kVectors]) const {
    D8 worst = kSign > 0 ? sum[0] + extreme[0] : sum[0] - extreme[0];
    if constexpr (Row::kVectors == 2) {
      worst = worst | (kSign > 0 ? sum[1] + extreme[1] : sum[1] - extreme[1]);
    }
#pragma GCC unroll 2
    for (int v = 0; v < Row::kVectors; ++v) {
      sum[v] = kSign > 0 ? sum[v] + since[v] : sum[v] - since[v];
    }
    return AnyNegative(worst);
  }
};

template <int kSign>
struct BlockSums<FloatRow, kSign> {
  F16 since, extreme;

  FAE_INLINE void clear() { since = extreme = Zero<F16>(); }
  FAE_INLINE void add(const float* row) {
    since = since + Load<F16>(row);
    extreme = kSign > 0 ? Min(extreme, since) : Max(extreme, since);
  }
  FAE_INLINE bool settle(D8 (&sum)[2]) const {
    const F16 before = OrderedDemote2To(sum[0], sum[1]);
    const F16 worst = kSign > 0 ? before + extreme : before - extreme;
    const D8 low = PromoteLowerTo(since), high = PromoteUpperTo(since);
    sum[0] = kSign > 0 ? sum[0] + low : sum[0] - low;
    sum[1] = kSign > 0 ? sum[1] + high : sum[1] - high;
    return AnyNegative(worst);
  }
};

// Requests the rows of ranks [begin, end), for instances beyond the second-level cache.
template <class Row>
inline void request_rows(const UsualInstance& I, const std::uint32_t* order, std::int64_t begin,
                         std::int64_t end) {
  for (std::int64_t k = begin; k < end; ++k) {
    const auto* row = row_of<Row>(I, order[k]);
    __builtin_prefetch(row, 0, 3);
    if (sizeof(*row) * Row::kWidth > 64) __builtin_prefetch(row + 8, 0, 3);
  }
}

constexpr std::int64_t kBeyondCache = 2048;       // items
constexpr std::int64_t kAhead = 2 * kCheckpoint;  // ranks

// Adds rows from the tail of an order down to block `to`; leaves signs and checkpoints.
template <class Row>
inline void scan_tail(const UsualInstance& I, const UsualWork& w, int g, std::int64_t to) {
  const std::uint32_t* order = w.orders[g];
  const bool request = I.n > kBeyondCache;
  D8 sum[Row::kVectors];
  clear_sums(sum);
  for (std::int64_t block = (I.n - 1) / kCheckpoint; block >= to; --block) {
    const std::int64_t begin = block * kCheckpoint;
    if (request && begin >= kAhead) {
      request_rows<Row>(I, order, begin - kAhead, begin - kAhead + kCheckpoint);
    }
    BlockSums<Row, 1> sums;
    sums.clear();
    if (begin + kCheckpoint <= I.n) {
#pragma GCC unroll 16
      for (std::int64_t k = kCheckpoint - 1; k >= 0; --k) {
        sums.add(row_of<Row>(I, order[begin + k]));
      }
    } else {
      for (std::int64_t k = I.n - 1; k >= begin; --k) sums.add(row_of<Row>(I, order[k]));
    }
    w.signs[g][block] = sums.settle(sum);
    store_sums(w.checkpoints[g] + block * 8 * Row::kVectors, sum);
  }
}

// What a scan from the front found: the flip, or that ranks before `block` are clear and for the
// label.
struct Front {
  bool found;
  std::int64_t block;
  Flip flip;
};

// Follows an order from its front, by the sums of all rows less those that are erased, to the first
// flip: most come early. Such a sum has the errors of the rows that are erased, not of those left:
//   floats: rows 0.16 t (1 - A), sums of blocks 0.6 t (1 - A), what they are compared to 0.04 t,
// at most 0.42 t while half of the mass A survives, which lowering by 2 t A covers beside the
// tolerance of t A; doubles: 2 n 2^-53 S, which lowering by 1.1 t A covers while kLeastMass
// survives of up to kMostItems. What lies beyond is for the tail.
template <class Row>
inline Front scan_front(const SweepParams& p, const UsualInstance& I, const std::uint32_t* order) {
  constexpr int V = Row::kVectors;
  constexpr std::int64_t kMostItems = 1 << 20;
  Front front{false, 0, {}};
  if (I.n > kMostItems) return front;
  const bool request = I.n > kBeyondCache;
  D8 sum[V];
  alignas(64) double sums[8 * V];
  load_sums(I.row_sum, p.C, sum);
  store_sums(sums, sum);
  sums[I.label] -= Row::kLeastMass;  // so that too little mass is a negative sum like the others
  bool negative = false;
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
    sum[v] = Load<D8>(sums + 8 * v);
    negative = negative || AnyNegative(sum[v]);
  }
  if (negative) return front;
  for (; (front.block + 1) * kCheckpoint <= I.n; ++front.block) {
    const std::int64_t begin = front.block * kCheckpoint;
    D8 before[V];
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) before[v] = sum[v];
    BlockSums<Row, -1> block;
    block.clear();
    if (request && begin + kAhead + kCheckpoint <= I.n) {
      request_rows<Row>(I, order, begin + kAhead, begin + kAhead + kCheckpoint);
    }
#pragma GCC unroll 16
    for (std::int64_t k = 0; k < kCheckpoint; ++k) block.add(row_of<Row>(I, order[begin + k]));
    if (!block.settle(sum)) continue;
    for (std::int64_t k = begin; k < begin + kCheckpoint; ++k) {
      D8 row[V];
      load_row<Row>(row_of<Row>(I, order[k]), row);
      unsigned below = 0;
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        before[v] = before[v] - row[v];
        below |= SignBits(before[v]) << 8 * v;
      }
      if (below == 0) continue;
      if ((below >> I.label & 1) != 0) return front;
      store_sums(sums, before);
      sums[I.label] += Row::kLeastMass;
      if (!clear_decision(p, I, sums, Row::kFrontSlack * I.tolerance, &front.flip.label) ||
          front.flip.label == I.label) {
        return front;
      }
      front.flip.first = k + 1;
      front.found = true;
      return front;
    }
  }
  return front;
}

// The first block of ranks, from `block` on, in which a sum is negative; past the last if none.
inline std::int64_t next_sign(const unsigned char* signs, std::int64_t block, std::int64_t n) {
  const std::int64_t blocks = (n + kCheckpoint - 1) / kCheckpoint;
  for (; block < blocks; block += 8) {
    std::uint64_t signs_of_8;
    memcpy(&signs_of_8, signs + block, sizeof signs_of_8);
    if (signs_of_8 == 0) continue;
    block += __builtin_ctzll(signs_of_8) / 8;
    return block < blocks ? block : blocks;
  }
  return blocks;
}

// The first rank of a block at which a lowered sum is negative, and the sums there; -1 if none is.
template <class Row>
inline std::int64_t first_negative(const UsualInstance& I, const UsualWork& w, int g,
                                   std::int64_t block, double* sums) {
  constexpr int V = Row::kVectors;
  const std::int64_t begin = block * kCheckpoint, end = begin + kCheckpoint;
  D8 sum[V];
  clear_sums(sum);
  if (end < I.n) load_row<DoubleRow<V>>(w.checkpoints[g] + (block + 1) * 8 * V, sum);
  std::int64_t first = -1;
  for (std::int64_t k = (end < I.n ? end : I.n) - 1; k >= begin; --k) {
    add_row<Row>(I, w.orders[g][k], sum);
    const D8 least = V == 2 ? Min(sum[0], sum[V - 1]) : sum[0];
    if (AnyNegative(least)) {
      first = k;
      store_sums(sums, sum);
    }
  }
  return first;
}

// Ranks at and beyond which no item has mass.
inline std::int64_t end_of_mass(const UsualInstance& I, const std::uint32_t* order) {
  std::int64_t end = I.n;
  if (I.with_mass < I.n) {
    while (end > 0 && I.massless[order[end - 1]] != 0) --end;
  }
  return end;
}

// The exact sums over ranks `from` and beyond, items in the order of memory; `erased` is scratch
// for n + 8 bytes.
inline ExactSums exact_tail(const SweepParams& p, const UsualInstance& I,
                            const std::uint32_t* order, std::int64_t from, unsigned char* erased) {
  memset(erased, 0, I.n + 8);
  for (std::int64_t k = 0; k < from; ++k) erased[order[k]] = 1;
  const float* own_column = I.columns + I.label * I.pitch;
  const D8 own_bias = Set<D8>(I.bias[I.label]);
  D8 sum[16];
  for (std::int64_t c = 0; c < p.C; ++c) sum[c] = Zero<D8>();
  D8 mass = Zero<D8>();
  for (std::int64_t i = 0; i < I.n; i += 8) {
    const auto lanes = Not(MaskFromBytes(erased + i)) & FirstN<D8>(I.n - i);
    const D8 a = IfThenElseZero(lanes, LoadN<D8>(I.a + i, I.n - i));
    const D8 own = LoadPromoted(own_column + i) + own_bias;
    mass = mass + a;
    for (std::int64_t c = 0; c < p.C; ++c) {
      const D8 other = LoadPromoted(I.columns + c * I.pitch + i) + Set<D8>(I.bias[c]);
      sum[c] = IfThenElse(lanes, sum[c] + a * (own - other), sum[c]);
    }
  }
  ExactSums sums;
  for (std::int64_t c = 0; c < p.C; ++c) sums.sum[c] = ReduceSum(sum[c]);
  sums.mass = ReduceSum(mass);
  return sums;
}

// The flip of a ranking whose first negative lowered sum, in block `block`, is near a tie or
// without mass. Long instances are walked only in the blocks with a negative sum; nothing elsewhere
// can flip or be near.
inline __attribute__((noinline)) Flip walk_exactly(const SweepParams& p, const UsualInstance& I,
                                                   const UsualWork& w, int g, std::int64_t block) {
  constexpr std::int64_t kWorthIt = 64;  // items
  constexpr int kRounds = 4;
  const std::uint32_t* order = w.orders[g];
  if (I.n < kWorthIt) return exact_scan(p, I, order);
  std::int64_t nearest = -1;
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t begin = block * kCheckpoint, end = begin + kCheckpoint;
    const std::int64_t from = end < I.n ? end : I.n;
    ExactSums sums = exact_tail(p, I, order, from, reinterpret_cast<unsigned char*>(w.packed));
    Flip flip;
    std::int64_t near = -1;
    exact_walk(p, I, order, from, begin, sums, &flip, &near);
    if (nearest < 0) nearest = near;
    if (flip.first < 0) {
      block = next_sign(w.signs[g], block + 1, I.n);
      if (block * kCheckpoint < I.n) continue;
    }
    if (flip.first < 0 && I.bias_label != I.label) {
      flip.first = end_of_mass(I, order);
      flip.label = I.bias_label;
    }
    flip.near = nearest >= 0 && (flip.first < 0 || nearest <= flip.first);
    return flip;
  }
  return exact_scan(p, I, order);
}

// By the bound first: only what is near by it wants the norms.
inline Flip resolve_exactly(const SweepParams& p, const UsualInstance& I, const UsualWork& w, int g,
                            std::int64_t block) {
  const Flip flip = walk_exactly(p, I, w, g, block);
  if (!flip.near || !I.bounded) return flip;
  UsualInstance exact = I;
  make_tolerance_exact(p, exact);
  return walk_exactly(p, exact, w, g, block);
}

template <class Row>
inline Flip resolve(const SweepParams& p, const UsualInstance& I, const UsualWork& w, int g,
                    std::int64_t from) {
  alignas(64) double sums[8 * Row::kVectors];
  Flip flip;
  for (std::int64_t block = next_sign(w.signs[g], from, I.n); block * kCheckpoint < I.n;
       block = next_sign(w.signs[g], block + 1, I.n)) {
    const std::int64_t k = first_negative<Row>(I, w, g, block, sums);
    if (k < 0) continue;
    // The sums may be lowered by more than the tolerance: clear, and yet for the label.
    if (k == 0 || sums[I.label] == 0 || !clear_decision(p, I, sums, I.slack, &flip.label) ||
        flip.label == I.label) {
      return resolve_exactly(p, I, w, g, block);
    }
    flip.first = k;
    return flip;
  }
  if (I.bias_label != I.label) {
    flip.first = end_of_mass(I, w.orders[g]);
    flip.label = I.bias_label;
  }
  return flip;
}

inline double mass_of_top(const UsualInstance& I, const std::uint32_t* order, std::int64_t k) {
  double sum[4] = {};
  std::int64_t j = 0;
  for (; j + 4 <= k; j += 4) {
    for (int l = 0; l < 4; ++l) sum[l] += I.a[order[j + l]];
  }
  for (; j < k; ++j) sum[0] += I.a[order[j]];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

}  // namespace
}  // namespace fae::cpu
