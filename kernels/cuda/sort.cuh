// Sorts of a team, descending and stable. Batcher's bitonic network in the form in which every
// comparison puts the larger word at the lower index, so that missing elements behind the end
// never move.
//
// Short instances: words in registers, kE consecutive ones a thread. Comparisons at a distance
// below kE stay in a thread, below 32 kE go through shuffles, the rest through shared memory. A
// word is the key's order-preserving bits with the lowest ones replaced by the position, which
// makes the sort stable and carries the position for nothing; keys that agree in the bits that
// are left are put right afterwards from the full keys.
// Long instances: (key, position) pairs in device memory, tiles of them in shared memory.
//
// Operations: log2 P (log2 P + 1) / 4 comparisons an element, 6 instructions each (64 bit).
#pragma once

#include "team.cuh"

namespace fae {

using Word = std::uint64_t;

template <typename W>
FAE_DEV void order_pair(W& low, W& high) {
  const W a = low, b = high;
  const bool swap = a < b;
  low = swap ? b : a;
  high = swap ? a : b;
}

// Sorts the words of one thread.
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
    // Elements e and kE - 1 - e of a flip together, so that no more than two words are on the way.
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
  // Real words are never 0, the padding is.
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
  const int last = anew(n);
  // Bit e: this thread's element e agrees with the one before it in all the bits that are left.
  unsigned ties = 0;
#pragma unroll
  for (int e = 0; e < kE; ++e) {
    const int i = start + e;
    if (segment < count && i < last) order[segment * n + i] = static_cast<Idx>(low - (v[e] & low));
    if (e > 0 && ((v[e] ^ v[e - 1]) & ~low) == 0) ties |= 1u << e;
  }
  const Word before = __shfl_up_sync(kAllLanes, v[kE - 1], 1);
  // A warp's first thread does not see the warp below: its keys are looked at in full.
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
  // Exact order among such neighbours, by odd-even transposition; those with equal keys are in
  // their order already.
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

// The same for n > the registers of the team: pairs in device memory. `keys` and `order` [n] are
// filled from `word`; `tile` has kTilePairs words and as many positions behind them.
constexpr int kTilePairs = 4096;
constexpr int kTileBytes = kTilePairs * 12;

template <typename Idx>
FAE_DEV void order_memory(Word* keys, Idx* order, int low, int high) {
  const Word a = keys[low], b = keys[high];
  const Idx i = order[low], j = order[high];
  if (a > b || (a == b && i < j)) return;
  keys[low] = b;
  keys[high] = a;
  order[low] = j;
  order[high] = i;
}

template <typename Idx, typename KeyOf>
FAE_DEV void sort_long(const Team<false>& team, int n, unsigned char* tile, Word* keys, Idx* order,
                       KeyOf word) {
  Word* tile_keys = reinterpret_cast<Word*>(tile);
  Idx* tile_order = reinterpret_cast<Idx*>(tile + kTilePairs * 8);
  // One pass over all tiles: the comparisons of merges of size `from` … `to` at distances below
  // the tile's size.
  const auto within_tiles = [&](int from, int to, bool fill) {
    for (int base = 0; base < n; base += kTilePairs) {
      const int m = n - base < kTilePairs ? n - base : kTilePairs;
      for (int i = team.rank; i < m; i += team.size) {
        tile_keys[i] = fill ? word(base + i) : keys[base + i];
        tile_order[i] = fill ? static_cast<Idx>(base + i) : order[base + i];
      }
      team.sync();
      for (int k = from; k <= to; k <<= 1) {
        const bool flip = k <= kTilePairs;
        for (int j = (flip ? k : 2 * kTilePairs) >> 1; j > 0; j >>= 1) {
          if (!flip && j == kTilePairs) continue;
          const bool first = flip && j == k >> 1;
          for (int t = team.rank; t < kTilePairs / 2; t += team.size) {
            const int a = (t / j) * 2 * j + t % j;
            const int b = first ? (a ^ (k - 1)) : a + j;
            if (b < m) order_memory(tile_keys, tile_order, a, b);
          }
          team.sync();
        }
      }
      for (int i = team.rank; i < m; i += team.size) {
        keys[base + i] = tile_keys[i];
        order[base + i] = tile_order[i];
      }
      team.sync();
    }
  };
  within_tiles(2, kTilePairs, true);
  for (std::int64_t k = 2 * kTilePairs; k < 2 * static_cast<std::int64_t>(n); k <<= 1) {
    for (std::int64_t j = k >> 1; j >= kTilePairs; j >>= 1) {
      const bool flip = j == k >> 1;
      for (std::int64_t t = team.rank; t < k * ((n + k - 1) / k) / 2; t += team.size) {
        const std::int64_t a = (t / j) * 2 * j + t % j;
        const std::int64_t b = flip ? (a ^ (k - 1)) : a + j;
        if (b < n) order_memory(keys, order, static_cast<int>(a), static_cast<int>(b));
      }
      team.sync();
    }
    within_tiles(2 * kTilePairs, 2 * kTilePairs, false);
  }
}

}  // namespace fae
