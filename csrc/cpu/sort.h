// Stable sorts of one instance's items by 64-bit keys, ascending (callers invert the bits of keys
// that rank descending).
//
//   order = argsort(keys), equal keys by position
//
// Short lists: insertion. Others: least-significant-digit radix sort of (key, position) pairs, 8
// bits a pass up to 4,096 items and 11 bits beyond; a digit that all keys share costs no pass.
// Traffic: 12 bytes read and written an item and pass.
#pragma once

#include "cpu/numbers.h"

namespace fae::cpu {
namespace {

struct SortBuffers {
  std::uint64_t* keys[2];       // [n], [0] holds the keys and is destroyed
  std::uint32_t* positions[2];  // [n], [0] receives the order
};

inline void insertion_sort(std::uint64_t* keys, std::uint32_t* positions, std::int64_t n) {
  for (std::int64_t i = 1; i < n; ++i) {
    const std::uint64_t key = keys[i];
    const std::uint32_t position = positions[i];
    std::int64_t j = i;
    for (; j > 0 && keys[j - 1] > key; --j) {
      keys[j] = keys[j - 1];
      positions[j] = positions[j - 1];
    }
    keys[j] = key;
    positions[j] = position;
  }
}

template <int kBits>
inline void radix_sort(SortBuffers s, std::int64_t n) {
  constexpr int kPasses = (64 + kBits - 1) / kBits;
  constexpr std::uint32_t kDigits = 1u << kBits;
  std::uint64_t any = 0;
  for (std::int64_t i = 0; i < n; ++i) any |= s.keys[0][i] ^ s.keys[0][0];
  int from = 0;
  std::uint32_t count[kDigits];
  for (int pass = 0; pass < kPasses; ++pass) {
    const int shift = pass * kBits;
    if (((any >> shift) & (kDigits - 1)) == 0) continue;
    const std::uint64_t* keys = s.keys[from];
    const std::uint32_t* positions = s.positions[from];
    std::uint64_t* keys_to = s.keys[1 - from];
    std::uint32_t* positions_to = s.positions[1 - from];
    std::memset(count, 0, sizeof count);
    for (std::int64_t i = 0; i < n; ++i) ++count[(keys[i] >> shift) & (kDigits - 1)];
    std::uint32_t start = 0;
    for (std::uint32_t d = 0; d < kDigits; ++d) {
      const std::uint32_t size = count[d];
      count[d] = start;
      start += size;
    }
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint32_t to = count[(keys[i] >> shift) & (kDigits - 1)]++;
      keys_to[to] = keys[i];
      positions_to[to] = positions[i];
    }
    from = 1 - from;
  }
  if (from == 1) std::memcpy(s.positions[0], s.positions[1], sizeof(std::uint32_t) * n);
}

// Sorts s.positions[0] by s.keys[0].
inline void sort_pairs(SortBuffers s, std::int64_t n) {
  if (n <= 32) {
    insertion_sort(s.keys[0], s.positions[0], n);
  } else if (n <= 4096) {
    radix_sort<8>(s, n);
  } else {
    radix_sort<11>(s, n);
  }
}

inline void by_position(std::int64_t n, std::uint32_t* order) {
  for (std::int64_t i = 0; i < n; ++i) order[i] = static_cast<std::uint32_t>(i);
}

inline void sort_keys(SortBuffers s, std::int64_t n) {
  by_position(n, s.positions[0]);
  sort_pairs(s, n);
}

}  // namespace
}  // namespace fae::cpu
