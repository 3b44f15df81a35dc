// The minimal flipping set from the largest margins alone.
//
// For one class the set holds the largest margins, as many as bring the sum of all below zero. Sets
// are mostly small, so one pass in float sets the few large margins apart; these are computed in
// double, sorted, and taken from the total one by one. Where they do not suffice, more are set
// apart, at last all. Extremes of all classes come from one pass over the rows; a class is skipped
// where even its largest margin, and later its sorted ones, cannot bring it down within the best
// size so far. Sums within the tolerance of zero send the class to the full sort of minimal.h. The
// decision after the set is the total of all rows less those of the set, while the survivors hold
// enough mass for that to be good.
//
// Ladder, size, label and order of 2,000 instances of n~300, C = 10 (1 thread, ms beyond the plain
// sweep): quickselect among the large margins or all 8.1; as described 4.1.

#pragma once

#include "cpu/minimal.h"
#include "cpu/usual/scan.h"

namespace fae::cpu {
namespace {

constexpr int kParts = 2;
constexpr double kLargeParts[kParts] = {1.0 / 8, 1.0 / 64};  // of the largest margin
constexpr double kFloatError = 0.2;                          // of a margin in float, in tolerances
constexpr double kEnoughMass = 1.0 / 1024;  // of survivors, to be had by a difference

// Extremes of the rows of lowered margins, by class.
struct RowExtremes {
  alignas(64) double largest[16], least[16];
};

template <class Row>
inline void extremes_of_rows(const UsualInstance& I, RowExtremes& extremes) {
  if constexpr (Row::kFloat) {
    F16 high = Load<F16>(row_of<Row>(I, 0)), low = high;
    for (std::int64_t i = 1; i < I.n; ++i) {
      const F16 row = Load<F16>(row_of<Row>(I, i));
      high = Max(high, row);
      low = Min(low, row);
    }
    const D8 highs[2] = {PromoteLowerTo(high), PromoteUpperTo(high)};
    const D8 lows[2] = {PromoteLowerTo(low), PromoteUpperTo(low)};
    store_sums(extremes.largest, highs);
    store_sums(extremes.least, lows);
  } else {
    D8 high[Row::kVectors], low[Row::kVectors];
    load_row<Row>(row_of<Row>(I, 0), high);
    load_row<Row>(row_of<Row>(I, 0), low);
    for (std::int64_t i = 1; i < I.n; ++i) {
      D8 row[Row::kVectors];
      load_row<Row>(row_of<Row>(I, i), row);
#pragma GCC unroll 2
      for (int v = 0; v < Row::kVectors; ++v) {
        high[v] = Max(high[v], row[v]);
        low[v] = Min(low[v], row[v]);
      }
    }
    store_sums(extremes.largest, high);
    store_sums(extremes.least, low);
  }
}

// Margins of class c, 8 items at a time.
struct ClassMargins {
  const UsualInstance& I;
  const float* own;
  const float* other;
  double own_bias, bias;
  ClassMargins(const UsualInstance& instance, std::int64_t c)
      : I(instance),
        own(instance.columns + instance.label * instance.pitch),
        other(instance.columns + c * instance.pitch),
        own_bias(instance.bias[instance.label]),
        bias(instance.bias[c]) {}
  FAE_INLINE D8 at(std::int64_t i, D8 a) const {
    const D8 x = LoadPromoted(own + i) + Set<D8>(own_bias);
    const D8 y = LoadPromoted(other + i) + Set<D8>(bias);
    return a * (x - y);
  }
  FAE_INLINE double one(std::int64_t i) const {
    const double x = static_cast<double>(own[i]) + own_bias;
    return I.a[i] * (x - (static_cast<double>(other[i]) + bias));
  }
};

// Items whose margin against c exceeds `limit` in float, by position; returns their number.
inline std::int64_t large_items(const UsualInstance& I, std::int64_t c, double limit,
                                std::uint32_t* items) {
  const float* own = I.columns + I.label * I.pitch;
  const float* other = I.columns + c * I.pitch;
  const F16 apart = Set<F16>(static_cast<float>(I.bias[I.label] - I.bias[c]));
  const F16 bound = Set<F16>(static_cast<float>(limit));
  U16 position = Iota<U16>();
  std::int64_t m = 0;
  for (std::int64_t i = 0; i < I.n; i += 16) {
    // Lanes beyond the items weigh nothing.
    const F16 a =
        OrderedDemote2To(LoadN<D8>(I.a + i, I.n - i), LoadN<D8>(I.a + i + 8, I.n - i - 8));
    const F16 difference = Load<F16>(own + i) - Load<F16>(other + i);
    const F16 margin = a * (difference + apart);
    m += CompressStore(position, margin > bound, items + m);
    position = position + Set<U16>(16);
  }
  return m;
}

// The sum of all margins against c, from the lowered rows.
inline double total_of_rows(const UsualInstance& I, std::int64_t c) {
  return I.row_sum[c] + I.lowering * I.row_sum[I.label];
}

// The same summed anew, for comparisons between classes whose sums are equal.
inline double total_margin(const UsualInstance& I, std::int64_t c) {
  const ClassMargins margins(I, c);
  D8 sum = Zero<D8>();
  for (std::int64_t i = 0; i < I.n; i += 8) {
    const D8 a = LoadN<D8>(I.a + i, I.n - i);
    sum = sum + margins.at(i, a);
  }
  return ReduceSum(sum);
}

// The contract's decision over the items that `item_of(j)`, j < count, names (-1: none).
template <class ItemOf>
inline std::int64_t exact_decision(const SweepParams& p, const UsualInstance& I, std::int64_t count,
                                   ItemOf item_of, bool* near) {
  ExactSums sums;
  for (std::int64_t j = 0; j < count; ++j) {
    const std::int64_t i = item_of(j);
    if (i >= 0) sums.add(p, I, i);
  }
  return sums.decide(p, I, near);
}

// Margins against c by item into w.keys, items without mass last, and their order into `order`.
inline void sort_by_margin(const UsualInstance& I, std::int64_t c, const UsualWork& w,
                           const SortBuffers& pairs, std::uint32_t* order) {
  const ClassMargins margins(I, c);
  for (std::int64_t i = 0; i < I.n; i += 8) {
    const D8 a = LoadN<D8>(I.a + i, I.n - i);
    const auto without_mass = MaskFromBytes(I.massless + i);
    StoreN(IfThenElse(without_mass, Set<D8>(-kInf), margins.at(i, a)), w.keys + i, I.n - i);
  }
  const KeyRange range = approximate_keys(w.keys, I.n, w.approximate);
  sort_items({w.keys, nullptr, w.approximate, range, w.packed, pairs}, I.n, order);
}

// The largest margins against a class, w.keys[ranks[k]] for rank k, and what they tell of its set.
struct Erased {
  enum { kNotYet, kTooMany, kFlips, kUnclear } outcome;
  std::int64_t size;           // of the set, or a guess at it
  std::int64_t count;          // of ranks
  double limit;                // what is not among them is at most as much
  const std::uint32_t* ranks;  // largest first
  const std::uint32_t* items;  // of the ranks; null where these are items themselves
  std::uint32_t item(std::int64_t k) const { return items == nullptr ? ranks[k] : items[ranks[k]]; }
};

// Erases margins one by one from their total until the sum is negative, and no more than `most`.
inline void erase_largest(double total, double tolerance, const double* margins, std::int64_t most,
                          Erased& erased) {
  const std::int64_t end = erased.count < most ? erased.count : most;
  double sum = total, before = total;
  std::int64_t k = 0;
  for (; k < end && sum >= 0; ++k) {
    before = sum;
    sum -= margins[erased.ranks[k]];
  }
  erased.size = k;
  erased.outcome = Erased::kUnclear;
  if (k > 0 && !(margins[erased.ranks[k - 1]] > erased.limit)) {  // others may be larger
    erased.outcome = Erased::kNotYet;
  } else if (sum < 0) {
    // The mass on both sides of the flip is at most 1, so this is stricter than the tolerance; sums
    // before them are larger still.
    if (k > 0 && -sum >= tolerance && before >= tolerance) erased.outcome = Erased::kFlips;
  } else if (k == most && sum >= tolerance) {
    erased.outcome = Erased::kTooMany;
  } else if (k < most) {
    erased.outcome = Erased::kNotYet;
  }
}

// All margins, sorted.
inline Erased erase_all(const UsualInstance& I, std::int64_t c, const UsualWork& w,
                        const SortBuffers& pairs, std::uint32_t* order) {
  sort_by_margin(I, c, w, pairs, order);
  return {Erased::kUnclear, 0, I.with_mass, -kInf, order, nullptr};
}

// The set of class c, if it has at most `most` items, from the margins beyond parts of the largest,
// kLargeParts[*part] and those that follow. Leaves in *part where it was found.
inline Erased erase_class(const UsualInstance& I, std::int64_t c, double largest, std::int64_t most,
                          const UsualWork& w, const SortBuffers& pairs, int* part) {
  std::uint32_t* items = reinterpret_cast<std::uint32_t*>(w.words);
  std::uint32_t* ranks = items + I.n + 16;
  const double total = total_of_rows(I, c);
  const double error = kFloatError * I.tolerance;
  const ClassMargins margins(I, c);
  Erased erased{Erased::kNotYet, 0, 0, 0, ranks, items};
  for (; *part < kParts; ++*part) {
    const double bound = kLargeParts[*part] * largest;
    if (bound <= error) break;
    erased.limit = bound + error;
    erased.count = large_items(I, c, bound, items);
    double rest = total;
    for (std::int64_t j = 0; j < erased.count; ++j) {
      w.keys[j] = margins.one(items[j]);
      rest -= w.keys[j];
    }
    const std::int64_t more = most > erased.count ? most - erased.count : 0;
    if (rest - static_cast<double>(more) * erased.limit >= I.tolerance) {
      erased.outcome = Erased::kTooMany;
      return erased;
    }
    if (rest >= 0 && more > 0) continue;
    const KeyRange range = approximate_keys(w.keys, erased.count, w.approximate);
    sort_items({w.keys, nullptr, w.approximate, range, w.packed, pairs}, erased.count, ranks);
    erase_largest(total, I.tolerance, w.keys, most, erased);
    if (erased.outcome != Erased::kNotYet) return erased;
  }
  return erased;
}

// The contract's sums of margins against c over all ranks below `to` down to `from`; `sum` and
// `mass` are those of ranks `to` and beyond, and are left at `from`.
inline Below below_within(const UsualInstance& I, std::int64_t c, const double* margins,
                          const Erased& erased, std::int64_t from, std::int64_t to, double* sum,
                          double* mass) {
  Below below{-1, -1};
  for (std::int64_t k = to - 1; k >= from; --k) {
    *sum += margins[erased.ranks[k]];
    *mass += I.a[erased.item(k)];
    if (k > 0 && (*sum < 0 || (*sum == 0 && c < I.label))) below.first = k;
    if (*sum < I.tolerance * *mass && -*sum < I.tolerance * *mass) below.nearest = k;
  }
  return below;
}

// The same from the ranks around the guess alone; false where they do not suffice. Where the sum
// before them is beyond the tolerance, those before are larger still, since what they lack is
// positive.
inline bool below_near(const UsualInstance& I, std::int64_t c, const UsualWork& w,
                       const Erased& erased, Below* below) {
  constexpr std::int64_t kAround = 256;
  const double* margins = w.keys;
  const std::int64_t from = erased.size > kAround ? erased.size - kAround : 0;
  const std::int64_t to = erased.size + kAround;
  if (to >= I.with_mass || to > erased.count || !(margins[erased.ranks[to - 1]] > erased.limit)) {
    return false;
  }
  unsigned char* gone = reinterpret_cast<unsigned char*>(w.packed);
  memset(gone, 0, I.n + 8);
  for (std::int64_t k = 0; k < to; ++k) gone[erased.item(k)] = 1;
  const ClassMargins all(I, c);
  D8 sums = Zero<D8>(), masses = Zero<D8>();
  for (std::int64_t i = 0; i < I.n; i += 8) {
    const auto lanes = Not(MaskFromBytes(gone + i)) & FirstN<D8>(I.n - i);
    const D8 a = IfThenElseZero(lanes, LoadN<D8>(I.a + i, I.n - i));
    sums = IfThenElse(lanes, sums + all.at(i, a), sums);
    masses = masses + a;
  }
  double sum = ReduceSum(sums), mass = ReduceSum(masses);
  *below = below_within(I, c, margins, erased, from, to, &sum, &mass);
  return below->first >= 0 &&
         (from == 0 || (sum > I.tolerance && margins[erased.ranks[from]] >= 0));
}

// Leaves the ranking `minimal` in `order` where it is wanted; it is scratch anyway.
template <class Row>
inline __attribute__((noinline)) Minimal minimal_usual(const SweepParams& p, UsualInstance I,
                                                       const UsualWork& w, const SortBuffers& pairs,
                                                       bool with_order, std::uint32_t* order) {
  constexpr int V = Row::kVectors;
  RowExtremes extremes;
  extremes_of_rows<Row>(I, extremes);
  // The closest classes first, by their logits.
  std::int64_t classes[16];
  std::int64_t count = 0;
  for (std::int64_t c = 0; c < p.C; ++c) {
    if (c == I.label) continue;
    std::int64_t j = count++;
    for (; j > 0 && I.log_probability[classes[j - 1]] < I.log_probability[c]; --j) {
      classes[j] = classes[j - 1];
    }
    classes[j] = c;
  }
  Minimal result;
  std::int64_t winner = -1;
  std::int64_t sorted = -1;  // the class that `order` is sorted by
  std::int64_t nearest = I.n;
  int part = 0;  // where the last class was settled
  D8 gone[V];    // the rows of the winner's set
  clear_sums(gone);
  const double rounding = 1e-3 * I.tolerance + 2 * I.slack;
  for (std::int64_t j = 0; j < count; ++j) {
    const std::int64_t c = classes[j];
    if (extremes.least[c] > 0) continue;  // every survivor is for the label, and clearly so
    const double reach = static_cast<double>(result.size) * extremes.largest[c];
    if (result.size >= 0 && I.row_sum[c] - reach > rounding) continue;
    const std::int64_t most = result.size >= 0 ? result.size : I.with_mass;
    Erased erased = erase_class(I, c, extremes.largest[c], most, w, pairs, &part);
    if (erased.outcome == Erased::kNotYet) {
      part = kParts - 1;
      erased = erase_all(I, c, w, pairs, order);
      sorted = c;
      erase_largest(total_of_rows(I, c), I.tolerance, w.keys, most, erased);
    }
    if (erased.outcome == Erased::kTooMany) continue;
    if (erased.outcome == Erased::kUnclear) {
      make_tolerance_exact(p, I);
      Below below;
      bool settled = below_near(I, c, w, erased, &below);
      if (!settled && sorted != c) {
        const std::int64_t guess = erased.size;
        erased = erase_all(I, c, w, pairs, order);
        erased.size = guess;
        sorted = c;
        settled = below_near(I, c, w, erased, &below);
      }
      if (!settled) {
        double sum = 0, mass = 0;
        below = below_within(I, c, w.keys, erased, 0, I.with_mass, &sum, &mass);
      }
      if (below.nearest >= 0 && below.nearest < nearest) nearest = below.nearest;
      erased.size = below.first;
    }
    if (erased.size >= 0 && (result.size < 0 || erased.size < result.size ||
                             (erased.size == result.size && c < winner))) {
      result.size = erased.size;
      winner = c;
      clear_sums(gone);
      for (std::int64_t k = 0; k < result.size; ++k) add_row<Row>(I, erased.item(k), gone);
    }
  }
  result.near = nearest < I.n && (result.size < 0 || nearest <= result.size);
  if (winner < 0) {
    if (I.bias_label != I.label) {
      result.size = I.with_mass;
      result.label = I.bias_label;
    }
    if (with_order) {
      // By the class that is closest over all items.
      double least = kInf;
      for (std::int64_t c = 0; c < p.C; ++c) {
        if (c == I.label) continue;
        const double total = total_margin(I, c);
        if (winner < 0 || total < least) {
          least = total;
          winner = c;
        }
      }
      if (sorted != winner) sort_by_margin(I, winner, w, pairs, order);
    }
    return result;
  }
  alignas(64) double sums[8 * V];
  D8 left[V];
  load_sums(I.row_sum, p.C, left);
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) left[v] = left[v] - gone[v];
  store_sums(sums, left);
  const bool clear =
      sums[I.label] > kEnoughMass && clear_decision(p, I, sums, I.slack, &result.label);
  if ((with_order || !clear) && sorted != winner) sort_by_margin(I, winner, w, pairs, order);
  if (!clear) {
    bool near = false;
    result.label = exact_decision(
        p, I, I.n - result.size, [&](std::int64_t k) { return order[result.size + k]; }, &near);
  }
  return result;
}

}  // namespace
}  // namespace fae::cpu
