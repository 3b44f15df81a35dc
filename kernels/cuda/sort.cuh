// Sorts of a team, descending and stable. Batcher's bitonic network in the form in which every
// comparison puts the larger word at the lower index, so that missing elements behind the end
// never move.
//
// Short instances: words in registers, kE consecutive ones a thread. Comparisons at a distance
// below kE stay in a thread, below 32 kE go through shuffles, the rest through shared memory. A
// word is the key's order-preserving bits with the lowest ones replaced by the position, which
// makes the sort stable and carries the position for nothing; keys that agree in the bits that
// are left are put right afterwards from the full keys.
// Long instances: (key, position) pairs in device memory, tiles of them sorted in shared memory and
// merged.
//
// Operations: log2 P (log2 P + 1) / 4 comparisons an element, 6 instructions each (64 bit).
#pragma once

#include "team.cuh"

namespace fae {

using Word = std::uint64_t;

// Puts the larger word first.
template <typename W>
FAE_DEV void order_pair(W& low, W& high) {
  const W a = low, b = high;
  const bool swap = a < b;
  low = swap ? b : a;
  high = swap ? a : b;
}

// Sorts the words of one thread, the largest first.
template <typename W, int kE>
FAE_DEV void sort_registers(W (&v)[kE]) {
#pragma unroll
  for (int k = 2; k <= kE; k <<= 1) {
#pragma unroll
    for (int e = 0; e < kE; ++e) {
      if ((e & (k >> 1)) == 0) order_pair(v[e], v[e ^ (k - 1)]);
    }
#pragma unroll
    for (int j = k >> 2; j > 0; j >>= 1) {
#pragma unroll
      for (int e = 0; e < kE; ++e) {
        if ((e & j) == 0) order_pair(v[e], v[e | j]);
      }
    }
  }
}

// Replaces v by the larger (or smaller) of v and what the thread `mask` away holds; `kFlip`
// compares element e with the other's element kE - 1 - e.
template <bool kWarp, int kE, bool kFlip>
FAE_DEV void exchange(const Team<kWarp>& team, Word (&v)[kE], int mask, bool keep_larger,
                      Word* buffer) {
  const auto keep = [&](Word& mine, Word other) {
    mine = (mine > other) == keep_larger ? mine : other;
  };
  if (kWarp || mask < 32) {
    // Elements e and kE - 1 - e of a flip together, so that no more than two words are in flight.
#pragma unroll
    for (int e = 0; e < (kFlip ? kE / 2 : kE); ++e) {
      const int f = kFlip ? kE - 1 - e : e;
      const Word a = __shfl_xor_sync(kAllLanes, v[f], mask);
      if (kFlip) keep(v[f], __shfl_xor_sync(kAllLanes, v[e], mask));
      keep(v[e], a);
    }
    if (kFlip && kE == 1) keep(v[0], __shfl_xor_sync(kAllLanes, v[0], mask));
  } else {
#pragma unroll
    for (int e = 0; e < kE; ++e) buffer[e * team.size + team.rank] = v[e];
    team.sync();
#pragma unroll
    for (int e = 0; e < kE; ++e) {
      keep(v[e], buffer[(kFlip ? kE - 1 - e : e) * team.size + (team.rank ^ mask)]);
    }
    team.sync();
  }
}

// Sorts every aligned segment of P words, P a power of two of at least kE; all threads hold kE
// consecutive words of the concatenated segments. `buffer` has team.size * kE words.
template <bool kWarp, int kE>
FAE_DEV void sort_segments(const Team<kWarp>& team, Word (&v)[kE], int P, Word* buffer) {
  sort_registers(v);
  for (int k = 2 * kE; k <= P; k <<= 1) {
    const int threads = k / kE;
    exchange<kWarp, kE, true>(team, v, threads - 1, (team.rank & (threads >> 1)) == 0, buffer);
    for (int j = threads >> 2; j > 0; j >>= 1) {
      exchange<kWarp, kE, false>(team, v, j, (team.rank & j) == 0, buffer);
    }
#pragma unroll
    for (int j = kE >> 1; j > 0; j >>= 1) {
#pragma unroll
      for (int e = 0; e < kE; ++e) {
        if ((e & j) == 0) order_pair(v[e], v[e | j]);
      }
    }
  }
}

// Sorts `count` segments of n positions each. `word(segment, i)` is the full 64-bit key of item i;
// `order` [count, n] receives the positions. P = next_power_of_two(n); count * P <= team.size * kE;
// `buffer` has team.size * kE words where P > 32 kE. `word` should be a call: it is made kE times.
template <bool kWarp, int kE, typename Idx, typename KeyOf>
FAE_DEV void sort_orders(const Team<kWarp>& team, int count, int n, int P, Word* buffer, Idx* order,
                         KeyOf word) {
  // An item's word is never 0, the padding is.
  const Word low = 2 * static_cast<Word>(P) - 1;
  const int first = team.rank * kE;
  const int segment = first / P;
  const int start = first % P;
  Word v[kE];
#pragma unroll
  for (int e = 0; e < kE; ++e) {
    const int i = start + e;
    v[e] = 0;
    if (segment < count && i < n) v[e] = (word(segment, i) & ~low) | (low - static_cast<Word>(i));
  }
  sort_segments<kWarp, kE>(team, v, P, buffer);
  const int last = launder(n);
  // Bit e: this thread's element e agrees with the one before it in all bits of the key that the
  // word holds.
  unsigned ties = 0;
#pragma unroll
  for (int e = 0; e < kE; ++e) {
    const int i = start + e;
    if (segment < count && i < last) order[segment * n + i] = static_cast<Idx>(low - (v[e] & low));
    if (e > 0 && ((v[e] ^ v[e - 1]) & ~low) == 0) ties |= 1u << e;
  }
  const Word before = __shfl_up_sync(kAllLanes, v[kE - 1], 1);
  // A warp's first thread does not see the warp below: it compares full keys.
  if (start > 0 && (team.lane() == 0 || ((v[0] ^ before) & ~low) == 0)) ties |= 1u;
  team.sync();
  bool wrong = false;
  for (; ties != 0 && segment < count; ties &= ties - 1) {
    const int i = start + __ffs(ties) - 1;
    if (i >= n) break;
    const Idx* pair = order + segment * n + i - 1;
    const Word a = word(segment, pair[0]), b = word(segment, pair[1]);
    wrong = wrong || a < b;
  }
  if (!team.any(wrong)) return;
  // Odd-even transposition sort by the full keys; items with equal keys are in their order already.
  bool swapped = true;
  while (swapped) {
    swapped = false;
    for (int parity = 0; parity < 2; ++parity) {
      const int pairs = (n - parity) / 2;
      for (int t = team.rank; t < count * pairs; t += team.size) {
        const int r = t / pairs;
        Idx* pair = order + r * n + parity + 2 * (t % pairs);
        const Word a = word(r, pair[0]), b = word(r, pair[1]);
        if (a < b) {
          const Idx moved = pair[0];
          pair[0] = pair[1];
          pair[1] = moved;
          swapped = true;
        }
      }
      team.sync();
    }
    swapped = team.any(swapped);
  }
}

// Merge sort of what a team has no registers for: (key, position) pairs in device memory. Tiles are
// sorted in shared memory, then runs of sorted tiles are merged two by two, a tile of the result at
// a time. Tiles of a pass do not depend on each other: one block takes them, or many blocks share
// them.
constexpr int kTilePairs = 4096;
constexpr int kTileBytes = kTilePairs * 12;

struct Pairs {
  Word* keys;            // [n] full keys
  std::uint32_t* order;  // [n] positions
};

// Counts the passes of merges that n pairs take.
__host__ FAE_DEV int merge_passes(std::int64_t n) {
  int passes = 0;
  for (std::int64_t width = kTilePairs; width < n; width *= 2) ++passes;
  return passes;
}

// Puts the pair with the larger key first, of equal ones that with the lower position.
FAE_DEV void order_memory(const Pairs& pairs, int low, int high) {
  const Word a = pairs.keys[low], b = pairs.keys[high];
  const std::uint32_t i = pairs.order[low], j = pairs.order[high];
  if (a > b || (a == b && i < j)) return;
  pairs.keys[low] = b;
  pairs.keys[high] = a;
  pairs.order[low] = j;
  pairs.order[high] = i;
}

// Lays out a tile in shared memory.
FAE_DEV Pairs tile_pairs(unsigned char* tile) {
  return Pairs{reinterpret_cast<Word*>(tile),
               reinterpret_cast<std::uint32_t*>(tile + kTilePairs * 8)};
}

// Sorts the items base … base + kTilePairs - 1 of n into the same places of `to`.
template <typename KeyOf>
FAE_DEV void sort_tile(const Team<false>& team, unsigned char* tile, int n, int base,
                       const Pairs& to, KeyOf word) {
  const Pairs pairs = tile_pairs(tile);
  const int m = n - base < kTilePairs ? n - base : kTilePairs;
#pragma unroll 1
  for (int i = team.rank; i < m; i += team.size) {
    pairs.keys[i] = word(base + i);
    pairs.order[i] = static_cast<std::uint32_t>(base + i);
  }
  team.sync();
#pragma unroll 1
  for (int k = 2; k <= kTilePairs; k <<= 1) {
#pragma unroll 1
    for (int j = k >> 1; j > 0; j >>= 1) {
      const bool flip = j == k >> 1;
#pragma unroll 1
      for (int t = team.rank; t < kTilePairs / 2; t += team.size) {
        const int a = 2 * t - (t & (j - 1));  // t with a zero at j's bit
        const int b = flip ? (a ^ (k - 1)) : a + j;
        if (b < m) order_memory(pairs, a, b);
      }
      team.sync();
    }
  }
#pragma unroll 1
  for (int i = team.rank; i < m; i += team.size) {
    to.keys[base + i] = pairs.keys[i];
    to.order[base + i] = pairs.order[i];
  }
  team.sync();
}

// Counts how many of the first `count` pairs of two merged runs are of the first one, which wins
// ties (merge path).
FAE_DEV int merge_split(const Word* first, int first_count, const Word* second, int second_count,
                        int count) {
  int low = count > second_count ? count - second_count : 0;
  int high = count < first_count ? count : first_count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (first[middle] >= second[count - 1 - middle]) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Merges runs of `width` pairs two by two; writes the pairs base … base + kTilePairs - 1 of the
// result.
FAE_DEV void merge_tile(const Team<false>& team, unsigned char* tile, int n, std::int64_t width,
                        int base, const Pairs& from, const Pairs& to) {
  const Pairs pairs = tile_pairs(tile);
  const std::int64_t run = base / (2 * width) * (2 * width);
  const std::int64_t middle = run + width < n ? run + width : n;
  const int first_count = static_cast<int>(middle - run);
  const int second_count = static_cast<int>((middle + width < n ? middle + width : n) - middle);
  const int begin = static_cast<int>(base - run);
  const int left = first_count + second_count - begin;
  const int count = left < kTilePairs ? left : kTilePairs;
  const Word* const first = from.keys + run;
  const Word* const second = from.keys + middle;
  const int before = merge_split(first, first_count, second, second_count, begin);
  const int after = merge_split(first, first_count, second, second_count, begin + count);
  const int own = after - before;
#pragma unroll 1
  for (int i = team.rank; i < count; i += team.size) {
    const std::int64_t at = i < own ? run + before + i : middle + (begin - before) + (i - own);
    pairs.keys[i] = from.keys[at];
    pairs.order[i] = from.order[at];
  }
  team.sync();
  const int each = kTilePairs / team.size;
  const int start = team.rank * each;
  if (start < count) {
    int a = merge_split(pairs.keys, own, pairs.keys + own, count - own, start);
    int b = own + start - a;
#pragma unroll 1
    for (int i = start; i < start + each && i < count; ++i) {
      const bool takes_first = a < own && (b >= count || pairs.keys[a] >= pairs.keys[b]);
      const int at = takes_first ? a++ : b++;
      to.keys[base + i] = pairs.keys[at];
      to.order[base + i] = pairs.order[at];
    }
  }
  team.sync();
}

// Finds where the pairs are before merge pass `pass`, such that the last one leaves them in `end`.
FAE_DEV Pairs pairs_before(int n, int pass, const Pairs& end, const Pairs& spare) {
  return (merge_passes(n) - pass) % 2 == 0 ? end : spare;
}

// Sorts n pairs by one block.
template <typename KeyOf>
FAE_DEV void sort_long(const Team<false>& team, int n, unsigned char* tile, const Pairs& end,
                       const Pairs& spare, KeyOf word) {
#pragma unroll 1
  for (int base = 0; base < n; base += kTilePairs) {
    sort_tile(team, tile, n, base, pairs_before(n, 0, end, spare), word);
  }
#pragma unroll 1
  for (int pass = 0; pass < merge_passes(n); ++pass) {
#pragma unroll 1
    for (int base = 0; base < n; base += kTilePairs) {
      merge_tile(team, tile, n, static_cast<std::int64_t>(kTilePairs) << pass, base,
                 pairs_before(n, pass, end, spare), pairs_before(n, pass + 1, end, spare));
    }
  }
}

}  // namespace fae
