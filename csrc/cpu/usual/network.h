// Stable argsort of one instance: sorting networks on 32-bit words, repaired where the words are
// too short to tell keys apart.
//
// A word holds the leading bits of an approximate key (a monotone map of the exact one), reduced by
// the instance's smallest, above the item's position. R rows of words, a register each, are sorted
//   1. down the columns, all columns at once and without shuffles: blocks of rows by Batcher's
//      merge exchange in registers, then merged two by two, bitonic with the second one reversed;
//   2. by merging columns two by two: an exchange across lanes with the rows reversed, exchanges
//      across fewer lanes, then down the columns again.
// R is 1, 2, 4 or a block (8 or 12 rows, 16 or 24 where there are 32 registers) times a power of
// two. What does not fit the registers passes through the first cache four rows at a time: an
// exchange with reversed rows and the next one down meet in the same four. The order leaves column
// by column. Items whose shortened keys are equal are neighbours then; they are found by comparing
// neighbours and sorted by exact key, so that the order is exact and stable. Beyond kNetworkItems a
// radix sort of (approximate key, position) pairs takes over, 11 bits a pass.
//
// Ladder, ns an element on a Zen 4 with AVX-512, AVX2, 128 bits (SSE2): n = 128 1.0, 1.0, 1.8; n =
// 300 1.2, 1.4, 2.8; n = 1,000 1.5, 1.9, 2.8; n = 2,048 1.6, 2.2, 3.2; the radix sort 12 at
// 300, 6.5 at 1,000, 5.3 at 2,048. All rows in registers from end to end, bitonic throughout, with
// AVX-512: 48 and 64 rows did not fit, and sweeps of n~300 took as long as now.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/numbers.h"
#include "cpu/simd/lanes.h"
#include "cpu/simd/transpose.h"
#include "cpu/sort.h"
#include "fastattnerase/math.h"

namespace fae::cpu {
namespace {

constexpr std::int64_t kNetworkItems = 2048;

struct KeyRange {
  std::uint32_t least, largest;
};

struct KeySort {
  const double* exact;         // [n] or null: keys are words, ranking descending
  const std::uint64_t* words;  // [n] or null
  std::uint32_t* approximate;  // [max(n, kNetworkItems) + 64] ascending; destroyed
  KeyRange range;              // of these
  std::uint32_t* packed;       // the same
  SortBuffers pairs;
};

// A row of words. SSE2 compares floats but not words: there words are positive normal floats, which
// are in the same order.
#if defined(__x86_64__) && !defined(__AVX2__)
using Word = float;
constexpr int kWordBits = 30;
constexpr std::uint32_t kWordBase = 0x00800000;  // the smallest normal float
#else
using Word = std::uint32_t;
constexpr int kWordBits = 32;
constexpr std::uint32_t kWordBase = 0;
#endif
constexpr std::uint32_t kLastWord =
    kWordBits == 32 ? 0xFFFFFFFF : kWordBase + (1u << kWordBits) - 1;
using WordRow = Register<Word>;
constexpr int kWordLanes = Target::kFloats;

FAE_INLINE WordRow load_words(const std::uint32_t* from) {
  WordRow row;
  __builtin_memcpy(&row, from, sizeof row);
  return row;
}
FAE_INLINE void store_words(std::uint32_t* to, WordRow row) {
  __builtin_memcpy(to, &row, sizeof row);
}

FAE_INLINE void exchange(WordRow& a, WordRow& b) {
  const WordRow low = native::min(a, b);
  b = native::max(a, b);
  a = low;
}

template <int X, int... kLane>
FAE_INLINE WordRow swapped_lanes(WordRow a, Indices<kLane...>) {
  return shuffle<(kLane ^ X)...>(a);
}
template <int X, int... kLane>
FAE_INLINE WordRow upper_of_pairs(WordRow low, WordRow high, Indices<kLane...>) {
  // The highest bit in which partners differ tells which is the upper.
  constexpr int kTop = X >= 8 ? 8 : X >= 4 ? 4 : X >= 2 ? 2 : 1;
  return shuffle<(kLane & kTop ? kLanesOf<WordRow> + kLane : kLane)...>(low, high);
}

// Compares lane l of `a` with lane l ^ X of `other`, the smaller to the lower lane.
template <int X>
FAE_INLINE WordRow across(WordRow a, WordRow other) {
  const WordRow swapped = swapped_lanes<X>(other, UpTo<kWordLanes>());
  return upper_of_pairs<X>(native::min(a, swapped), native::max(a, swapped), UpTo<kWordLanes>());
}

// Knuth's Algorithm M (The Art of Computer Programming, 5.2.2), for any number of rows.
template <int kRows>
struct MergeExchange {
  struct Pair {
    int low, high;
  };
  Pair pairs[kRows * kRows / 2 + 1] = {};
  int count = 0;

  constexpr MergeExchange() {
    int first = 1;
    while (2 * first < kRows) first *= 2;
    for (int p = first; p > 0; p /= 2) {
      int from = 0, distance = p;
      for (int q = first;; q /= 2) {
        for (int i = 0; i + distance < kRows; ++i) {
          if ((i & p) == from) pairs[count++] = {i, i + distance};
        }
        if (q == p) break;
        distance = q - p;
        from = p;
      }
    }
  }
};

template <int kRows, int... kIndex>
FAE_INLINE void exchange_pairs(WordRow (&r)[kRows], Indices<kIndex...>) {
  constexpr MergeExchange<kRows> kPairs;
  (exchange(r[kPairs.pairs[kIndex].low], r[kPairs.pairs[kIndex].high]), ...);
}
// Columns of up to a block of rows, in registers.
template <int kRows>
FAE_INLINE void sort_block(WordRow (&r)[kRows]) {
  if constexpr (kRows > 1) exchange_pairs(r, UpTo<MergeExchange<kRows>().count>());
}

// Columns whose rows are bitonic become ascending. Halves of any even number of bitonic rows are
// bitonic, and none of the first exceeds one of the second; three rows are sorted as they are.
template <int kRows, int kFrom = 0, int kCount = kRows>
FAE_INLINE void merge_block(WordRow (&r)[kRows]) {
  if constexpr (kCount == 3) {
    exchange(r[kFrom], r[kFrom + 2]);
    exchange(r[kFrom], r[kFrom + 1]);
    exchange(r[kFrom + 1], r[kFrom + 2]);
  } else if constexpr (kCount > 1) {
#pragma GCC unroll 16
    for (int v = 0; v < kCount / 2; ++v) exchange(r[kFrom + v], r[kFrom + kCount / 2 + v]);
    merge_block<kRows, kFrom, kCount / 2>(r);
    merge_block<kRows, kFrom + kCount / 2, kCount / 2>(r);
  }
}

template <int kRows>
FAE_INLINE void load_block(const std::uint32_t* words, WordRow (&r)[kRows]) {
#pragma GCC unroll 32
  for (int v = 0; v < kRows; ++v) r[v] = load_words(words + v * kWordLanes);
}
template <int kRows>
FAE_INLINE void store_block(std::uint32_t* words, const WordRow (&r)[kRows]) {
#pragma GCC unroll 32
  for (int v = 0; v < kRows; ++v) store_words(words + v * kWordLanes, r[v]);
}

// Pairs (row v, lane l) with (row kRows - 1 - v, lane l ^ X).
template <int X, int kRows>
FAE_INLINE void reverse_across(WordRow (&r)[kRows]) {
  if constexpr (kRows == 1) {
    r[0] = across<X>(r[0], r[0]);
  } else {
#pragma GCC unroll 16
    for (int v = 0; v < kRows / 2; ++v) {
      const WordRow a = r[v], b = r[kRows - 1 - v];
      r[v] = across<X>(a, b);
      r[kRows - 1 - v] = across<X>(b, a);
    }
  }
}
// Exchanges across X, X / 2, …, 1 lanes.
template <int X>
FAE_INLINE WordRow straight_across(WordRow a) {
  if constexpr (X == 0) {
    return a;
  } else {
    return straight_across<X / 2>(across<X>(a, a));
  }
}

// Merges groups of columns into groups of 2, 4, … and at last all.
template <int kColumns, int kRows>
FAE_INLINE void merge_columns(WordRow (&r)[kRows]) {
  if constexpr (kColumns <= kWordLanes) {
    reverse_across<kColumns - 1>(r);
#pragma GCC unroll 32
    for (int v = 0; v < kRows; ++v) r[v] = straight_across<kColumns / 4>(r[v]);
    merge_block(r);
    merge_columns<2 * kColumns>(r);
  }
}

// Everything in registers.
template <int kRows>
inline __attribute__((noinline)) void sort_rows(std::uint32_t* words) {
  WordRow r[kRows];
  load_block(words, r);
  sort_block(r);
  merge_columns<2>(r);
  store_block(words, r);
}

// Four rows of which the first and third, and the second and last, exchange at a distance, then
// neighbours at half of it.
FAE_INLINE void exchange_twice(WordRow& a, WordRow& b, WordRow& c, WordRow& d) {
  exchange(a, c);
  exchange(b, d);
  exchange(a, b);
  exchange(c, d);
}

// Calls change(a, b, c, d) on four rows of memory.
template <class Change>
FAE_INLINE void change_rows(std::uint32_t* words, std::int64_t first, std::int64_t second,
                            std::int64_t third, std::int64_t last, Change change) {
  WordRow a = load_words(words + first * kWordLanes), b = load_words(words + second * kWordLanes);
  WordRow c = load_words(words + third * kWordLanes), d = load_words(words + last * kWordLanes);
  change(a, b, c, d);
  store_words(words + first * kWordLanes, a);
  store_words(words + second * kWordLanes, b);
  store_words(words + third * kWordLanes, c);
  store_words(words + last * kWordLanes, d);
}

// Bitonic runs of `run` rows become ascending, of `rows` in all: half a block or more each.
template <int kBlock>
FAE_INLINE void merge_rows(std::uint32_t* words, std::int64_t rows, std::int64_t run) {
  std::int64_t distance = run / 2;
  for (; distance >= 2 * kBlock; distance /= 4) {
    const std::int64_t half = distance / 2;
    for (std::int64_t group = 0; group < rows; group += 2 * distance) {
      for (std::int64_t v = group; v < group + half; ++v) {
        change_rows(words, v, v + half, v + 2 * half, v + 3 * half, exchange_twice);
      }
    }
  }
  if (distance >= kBlock) {
    for (std::int64_t group = 0; group < rows; group += 2 * distance) {
      for (std::int64_t v = group; v < group + distance; ++v) {
        WordRow a = load_words(words + v * kWordLanes);
        WordRow b = load_words(words + (v + distance) * kWordLanes);
        exchange(a, b);
        store_words(words + v * kWordLanes, a);
        store_words(words + (v + distance) * kWordLanes, b);
      }
    }
  }
  for (std::int64_t v = 0; v < rows; v += kBlock) {
    WordRow r[kBlock];
    load_block(words + v * kWordLanes, r);
    if (run >= kBlock) {
      merge_block(r);
    } else {
      merge_block<kBlock, 0, kBlock / 2>(r);
      merge_block<kBlock, kBlock / 2, kBlock / 2>(r);
    }
    store_block(words + v * kWordLanes, r);
  }
}

// Merges groups of columns as `merge_columns` does.
template <int kBlock, int kColumns>
FAE_INLINE void merge_columns_of(std::uint32_t* words, std::int64_t rows) {
  if constexpr (kColumns <= kWordLanes) {
    constexpr int X = kColumns - 1;
    const std::int64_t half = rows / 2;
    for (std::int64_t v = 0; v < half / 2; ++v) {
      change_rows(words, v, half - 1 - v, half + v, rows - 1 - v,
                  [](WordRow& a, WordRow& b, WordRow& c, WordRow& d)
                      __attribute__((always_inline)) {
                        const WordRow first = a, second = b;
                        a = straight_across<kColumns / 4>(across<X>(a, d));
                        d = straight_across<kColumns / 4>(across<X>(d, first));
                        b = straight_across<kColumns / 4>(across<X>(b, c));
                        c = straight_across<kColumns / 4>(across<X>(c, second));
                        exchange(a, c);
                        exchange(b, d);
                      });
    }
    merge_rows<kBlock>(words, rows, half);
    merge_columns_of<kBlock, 2 * kColumns>(words, rows);
  }
}

// Any number of blocks that is a power of two, at least two.
template <int kBlock>
inline __attribute__((noinline)) void sort_blocks(std::uint32_t* words, std::int64_t rows) {
  for (std::int64_t v = 0; v < rows; v += kBlock) {
    WordRow r[kBlock];
    load_block(words + v * kWordLanes, r);
    sort_block(r);
    store_block(words + v * kWordLanes, r);
  }
  for (std::int64_t run = 2 * kBlock; run <= rows; run *= 2) {
    // The two halves of each run are ascending; the second one reversed, they are bitonic.
    const std::int64_t quarter = run / 4;
    for (std::int64_t group = 0; group < rows; group += run) {
      for (std::int64_t v = group; v < group + quarter; ++v) {
        const std::int64_t last = 2 * group + run - 1 - v;
        change_rows(words, v, v + quarter, last - quarter, last,
                    [](WordRow& a, WordRow& b, WordRow& c, WordRow& d)
                        __attribute__((always_inline)) {
                          exchange(a, d);
                          exchange(b, c);
                          exchange(a, b);
                          exchange(c, d);
                        });
      }
    }
    merge_rows<kBlock>(words, rows, quarter);
  }
  merge_columns_of<kBlock, 2>(words, rows);
}

constexpr int kBlockRows = Target::kRegisters >= 32 ? 16 : 8;

// How many rows hold n words: 1, 2, 4 or a block or three quarters of two, times a power of two.
inline std::int64_t network_rows(std::int64_t n) {
  const std::int64_t rows = (n + kWordLanes - 1) / kWordLanes;
  std::int64_t whole = 1;
  while (whole < rows) whole *= 2;
  return whole >= 8 && rows <= whole / 4 * 3 ? whole / 4 * 3 : whole;
}

// Sorts rows of words: ascending in column order, word j is row j % rows of lane j / rows.
inline void sort_columns(std::uint32_t* words, std::int64_t rows) {
  switch (rows) {
    case 1:
      return sort_rows<1>(words);
    case 2:
      return sort_rows<2>(words);
    case 4:
      return sort_rows<4>(words);
    case 6:
      return sort_rows<6>(words);
    case 8:
      return sort_rows<8>(words);
    case 12:
      return sort_rows<12>(words);
    default:
      break;
  }
  if constexpr (kBlockRows == 16) {
    if (rows == 16) return sort_rows<16>(words);
    if (rows == 24) return sort_rows<24>(words);
  }
  if (rows % kBlockRows == 0 && (rows & (rows - 1)) == 0)
    return sort_blocks<kBlockRows>(words, rows);
  sort_blocks<kBlockRows / 2 * 3>(words, rows);
}

// Undoes the column order: 16 by 16 transposes of as many columns as there are lanes, from the last
// rows to the first, whose lines end where those of the columns behind them begin.
inline void columns_to_line(const std::uint32_t* words, std::int64_t rows, std::uint32_t* line) {
  constexpr int L = kWordLanes;
  if (rows < L && !(L == 16 && rows == 12)) {
    for (int l = 0; l < L; ++l) {
      for (std::int64_t v = 0; v < rows; ++v) line[l * rows + v] = words[L * v + l];
    }
    return;
  }
  // Rows beyond the last are read from the scratch behind it; what they leave is written over.
  for (std::int64_t block = (rows - 1) / L * L; block >= 0; block -= L) {
    Register<float> r[L];
#pragma GCC unroll 16
    for (int v = 0; v < L; ++v) __builtin_memcpy(&r[v], words + L * (block + v), sizeof r[v]);
    transpose_register_block(r);
#pragma GCC unroll 16
    for (int l = 0; l < L; ++l) __builtin_memcpy(line + l * rows + block, &r[l], sizeof r[l]);
  }
}
// Whether item a ranks before item b by exact key.
FAE_INLINE bool ranks_before(const KeySort& s, std::uint32_t a, std::uint32_t b) {
  const std::uint64_t x = s.exact != nullptr ? ordered_bits(s.exact[a]) : s.words[a];
  const std::uint64_t y = s.exact != nullptr ? ordered_bits(s.exact[b]) : s.words[b];
  return x > y || (x == y && a < b);
}

// Sorts order[begin, end), whose approximate keys are equal, by exact key.
inline __attribute__((noinline)) void repair(const KeySort& s, std::uint32_t* order,
                                             std::int64_t begin, std::int64_t end) {
  if (end - begin <= 24) {
    for (std::int64_t i = begin + 1; i < end; ++i) {
      const std::uint32_t item = order[i];
      std::int64_t j = i;
      for (; j > begin && ranks_before(s, item, order[j - 1]); --j) order[j] = order[j - 1];
      order[j] = item;
    }
    return;
  }
  const std::int64_t n = end - begin;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t item = order[begin + i];
    s.pairs.keys[0][i] = ~(s.exact != nullptr ? ordered_bits(s.exact[item]) : s.words[item]);
    s.pairs.positions[0][i] = item;
  }
  sort_pairs(s.pairs, n);
  memcpy(order + begin, s.pairs.positions[0], n * sizeof *order);
}

// Up to kNetworkItems items: pack, sort, unpack, repair.
inline void network_sort(const KeySort& s, std::int64_t n, std::uint32_t* order) {
  using U = Vec<std::uint32_t, kWordLanes>;
  constexpr std::int64_t L = kWordLanes;
  const std::uint32_t least = s.range.least;
  const std::uint32_t range = s.range.largest - least;
  const int position_bits = n <= 2 ? 1 : 32 - __builtin_clz(static_cast<std::uint32_t>(n - 1));
  const int key_bits = range == 0 ? 0 : 32 - __builtin_clz(range);
  const int room = kWordBits - position_bits;
  const int drop = key_bits > room ? key_bits - room : 0;
  const std::int64_t rows = network_rows(n);
  U position = Iota<U>(kWordBase);
  for (std::int64_t v = 0; v * L < n; ++v) {
    const U key = ShiftRight(Load<U>(s.approximate + v * L) - Set<U>(least), drop);
    const U word = ShiftLeft(key, position_bits) + position;
    Store(word, s.packed + v * L);
    position = position + Set<U>(static_cast<std::uint32_t>(L));
  }
  for (std::int64_t j = n; j < rows * L; j += L) Store(Set<U>(kLastWord), s.packed + j);
  sort_columns(s.packed, rows);
  std::uint32_t* const line = rows == 1 ? s.packed : s.approximate;
  if (rows > 1) columns_to_line(s.packed, rows, line);
  const U mask = Set<U>((1u << position_bits) - 1), zero = Zero<U>();
  std::int64_t run = -1;  // where a run of equal shortened keys began
  std::int64_t run_end = -1;
  for (std::int64_t j = 0; j < n; j += L) {
    const U word = Load<U>(line + j), next = Load<U>(line + j + 1);
    Store(word & mask, order + j);
    std::uint32_t equal = BitsFromMask(((word ^ next) & ~mask) == zero);
    if (n - 1 - j < L) equal &= (1u << (n - 1 - j)) - 1;
    for (; equal != 0; equal &= equal - 1) {
      const std::int64_t at = j + __builtin_ctz(equal);
      if (at != run_end) {
        if (run >= 0) repair(s, order, run, run_end + 1);
        run = at;
      }
      run_end = at + 1;
    }
  }
  if (run >= 0) repair(s, order, run, run_end + 1);
}

// Any number of items: radix sort by approximate key, then the same repair.
inline void approximate_radix_sort(const KeySort& s, std::int64_t n, std::uint32_t* order) {
  constexpr int kBits = 11;
  constexpr std::uint32_t kDigits = 1u << kBits;
  std::uint32_t count[3][kDigits];
  memset(count, 0, sizeof count);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t key = s.approximate[i];
    ++count[0][key & (kDigits - 1)];
    ++count[1][key >> kBits & (kDigits - 1)];
    ++count[2][key >> (2 * kBits)];
  }
  for (auto& digits : count) {
    std::uint32_t start = 0;
    for (std::uint32_t& size : digits) {
      const std::uint32_t this_size = size;
      size = start;
      start += this_size;
    }
  }
  std::uint64_t* from = s.pairs.keys[0];
  std::uint64_t* to = s.pairs.keys[1];
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t key = s.approximate[i];
    from[count[0][key & (kDigits - 1)]++] =
        static_cast<std::uint64_t>(key) << 32 | static_cast<std::uint32_t>(i);
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t pair = from[i];
    to[count[1][pair >> (32 + kBits) & (kDigits - 1)]++] = pair;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t pair = to[i];
    from[count[2][pair >> (32 + 2 * kBits)]++] = pair;
  }
  for (std::int64_t i = 0; i < n; ++i) order[i] = static_cast<std::uint32_t>(from[i]);
  // Approximate keys in order, for the search of equal neighbours: `pairs` is scratch of `repair`.
  for (std::int64_t i = 0; i < n; ++i) s.packed[i] = static_cast<std::uint32_t>(from[i] >> 32);
  for (std::int64_t i = 0; i + 1 < n;) {
    if (s.packed[i] != s.packed[i + 1]) {
      ++i;
      continue;
    }
    std::int64_t end = i + 2;
    while (end < n && s.packed[end] == s.packed[i]) ++end;
    repair(s, order, i, end);
    i = end;
  }
}

inline void sort_items(const KeySort& s, std::int64_t n, std::uint32_t* order) {
  if (n <= kNetworkItems) {
    network_sort(s, n, order);
  } else {
    approximate_radix_sort(s, n, order);
  }
}

// Approximate keys of float64 keys that rank descending: inverted order-preserving float32 bits,
// NaN first.
inline KeyRange approximate_keys(const double* keys, std::int64_t n, std::uint32_t* approximate) {
  const U16 all_but_sign = Set<U16>(0x7FFFFFFF);
  U16 least = Set<U16>(0xFFFFFFFF), largest = Zero<U16>();
  for (std::int64_t i = 0; i < n; i += 16) {
    const F16 x = OrderedDemote2To(LoadN<D8>(keys + i, n - i), LoadN<D8>(keys + i + 8, n - i - 8));
    const U16 bits = BitCast<U16>(x + Zero<F16>());  // -0 becomes +0
    const U16 sign = BitCast<U16>(ShiftRight(BitCast<I16>(bits), 31));
    // Ascending order of -x: positive numbers are inverted below the sign bit.
    const U16 word = bits ^ (~sign & all_but_sign);
    const U16 key = BitCast<U16>(IfThenElseZero(x == x, BitCast<F16>(word)));
    Store(key, approximate + i);
    if (i + 16 <= n) {
      least = Min(least, key);
      largest = Max(largest, key);
    } else {
      const auto lanes = FirstN<U16>(n - i);
      least = IfThenElse(lanes, Min(least, key), least);
      largest = IfThenElse(lanes, Max(largest, key), largest);
    }
  }
  return {ReduceMin(least), ReduceMax(largest)};
}

// Random keys rank descending by all 64 bits.
inline KeyRange approximate_words(const std::uint64_t* words, std::int64_t n,
                                  std::uint32_t* approximate) {
  KeyRange range{0xFFFFFFFF, 0};
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t key = ~static_cast<std::uint32_t>(words[i] >> 32);
    approximate[i] = key;
    range.least = key < range.least ? key : range.least;
    range.largest = key > range.largest ? key : range.largest;
  }
  return range;
}

}  // namespace
}  // namespace fae::cpu
