// Stable argsort of one instance in 16 lanes: sorting networks on 32-bit words, repaired where the
// words are too short to tell keys apart.
//
// A word holds the leading bits of an approximate key (a monotone map of the exact one), reduced by
// the instance's smallest, above the item's position. NV vectors of 16 words are sorted
//   1. down the columns, 16 columns at once (bitonic, no shuffles),
//   2. by merging columns pairwise: one exchange across lanes with the second half reversed, then
//      exchanges across fewer lanes, then down the columns again.
// The order leaves column by column. Items whose shortened keys are equal are neighbours then; they
// are found by comparing neighbours and sorted by exact key, so that the order is exact and stable.
// Beyond kNetworkItems a radix sort of (approximate key, position) pairs takes over, 11 bits a
// pass.

constexpr std::int64_t kNetworkItems = 1024;

struct KeyRange {
  std::uint32_t least, largest;
};

struct KeySort {
  const double* exact;         // [n] or null: keys are words, ranking descending
  const std::uint64_t* words;  // [n] or null
  std::uint32_t* approximate;  // [n + 16] ascending; destroyed
  KeyRange range;              // of these
  std::uint32_t* packed;       // [max(n, kNetworkItems) + 16]
  SortBuffers pairs;
};

FAE_INLINE void exchange(U16& a, U16& b) {
  const U16 low = _mm512_min_epu32(a, b);
  b = _mm512_max_epu32(a, b);
  a = low;
}

// Compares lane l with lane l ^ X of a vector, the smaller to the lower lane.
template <int X>
FAE_INLINE U16 across(U16 a, U16 other) {
  constexpr __mmask16 kUpper = X == 1   ? 0xAAAA
                               : X == 2 ? 0xCCCC
                               : X == 3 ? 0xCCCC
                               : X == 4 ? 0xF0F0
                               : X == 7 ? 0xF0F0
                                        : 0xFF00;
  U16 swapped;
  if (X == 1) swapped = _mm512_shuffle_epi32(other, static_cast<_MM_PERM_ENUM>(0xB1));
  if (X == 2) swapped = _mm512_shuffle_epi32(other, static_cast<_MM_PERM_ENUM>(0x4E));
  if (X == 3) swapped = _mm512_shuffle_epi32(other, static_cast<_MM_PERM_ENUM>(0x1B));
  if (X == 4) swapped = _mm512_shuffle_i32x4(other, other, 0xB1);
  if (X == 8) swapped = _mm512_shuffle_i32x4(other, other, 0x4E);
  if (X == 7) {
    swapped = _mm512_shuffle_epi32(_mm512_shuffle_i32x4(other, other, 0xB1),
                                   static_cast<_MM_PERM_ENUM>(0x1B));
  }
  if (X == 15) {
    swapped = _mm512_shuffle_epi32(_mm512_shuffle_i32x4(other, other, 0x1B),
                                   static_cast<_MM_PERM_ENUM>(0x1B));
  }
  return _mm512_mask_max_epu32(_mm512_min_epu32(a, swapped), kUpper, a, swapped);
}

// Three rows in any order become ascending.
template <int NV, int From>
FAE_INLINE void sort_three(U16 (&r)[NV]) {
  exchange(r[From], r[From + 2]);
  exchange(r[From], r[From + 1]);
  exchange(r[From + 1], r[From + 2]);
}

// Columns whose rows are bitonic become ascending. Halves of any even number of bitonic rows are
// bitonic, and none of the first exceeds one of the second.
template <int NV, int From, int Count>
FAE_INLINE void merge_down(U16 (&r)[NV]) {
  if constexpr (Count == 3) {
    sort_three<NV, From>(r);
  } else if constexpr (Count > 1) {
#pragma GCC unroll 64
    for (int v = 0; v < Count / 2; ++v) exchange(r[From + v], r[From + Count / 2 + v]);
    merge_down<NV, From, Count / 2>(r);
    merge_down<NV, From + Count / 2, Count / 2>(r);
  }
}

template <int NV, int From, int Count>
FAE_INLINE void sort_down(U16 (&r)[NV]) {
  if constexpr (Count == 3) {
    sort_three<NV, From>(r);
  } else if constexpr (Count > 1) {
    sort_down<NV, From, Count / 2>(r);
    sort_down<NV, From + Count / 2, Count / 2>(r);
#pragma GCC unroll 64
    for (int v = 0; v < Count / 2; ++v) exchange(r[From + v], r[From + Count - 1 - v]);
    merge_down<NV, From, Count / 2>(r);
    merge_down<NV, From + Count / 2, Count / 2>(r);
  }
}

// Pairs (row v, lane l) with (row NV - 1 - v, lane l ^ X).
template <int X, int NV>
FAE_INLINE void reverse_across(U16 (&r)[NV]) {
  if constexpr (NV == 1) {
    r[0] = across<X>(r[0], r[0]);
  } else {
#pragma GCC unroll 64
    for (int v = 0; v < NV / 2; ++v) {
      const U16 a = r[v], b = r[NV - 1 - v];
      r[v] = across<X>(a, b);
      r[NV - 1 - v] = across<X>(b, a);
    }
  }
}

template <int X, int NV>
FAE_INLINE void straight_across(U16 (&r)[NV]) {
#pragma GCC unroll 64
  for (int v = 0; v < NV; ++v) r[v] = across<X>(r[v], r[v]);
}

// Ascending in column order: word j is row j % NV of lane j / NV.
template <int NV>
inline __attribute__((noinline)) void sort_network(std::uint32_t* words) {
  U16 r[NV];
#pragma GCC unroll 64
  for (int v = 0; v < NV; ++v) r[v] = _mm512_load_si512(words + 16 * v);
  sort_down<NV, 0, NV>(r);
  reverse_across<1, NV>(r);
  merge_down<NV, 0, NV>(r);
  reverse_across<3, NV>(r);
  straight_across<1, NV>(r);
  merge_down<NV, 0, NV>(r);
  reverse_across<7, NV>(r);
  straight_across<2, NV>(r);
  straight_across<1, NV>(r);
  merge_down<NV, 0, NV>(r);
  reverse_across<15, NV>(r);
  straight_across<4, NV>(r);
  straight_across<2, NV>(r);
  straight_across<1, NV>(r);
  merge_down<NV, 0, NV>(r);
#pragma GCC unroll 64
  for (int v = 0; v < NV; ++v) _mm512_store_si512(words + 16 * v, r[v]);
}

// Undoes the column order: 16 by 16 transposes, the last of them of as many rows as are left.
template <int NV>
inline void columns_to_line(const std::uint32_t* words, std::uint32_t* line) {
  if constexpr (NV >= 12) {
    for (int block = 0; block < NV; block += 16) {
      F16 r[16];
      // Rows beyond the last are read from the scratch behind it and not written.
#pragma GCC unroll 16
      for (int v = 0; v < 16; ++v) r[v] = _mm512_loadu_ps(words + 16 * (block + v));
      transpose16(r);
      const __mmask16 rows = first_lanes16(NV - block);
#pragma GCC unroll 16
      for (int l = 0; l < 16; ++l) _mm512_mask_storeu_ps(line + l * NV + block, rows, r[l]);
    }
  } else {
    for (int l = 0; l < 16; ++l) {
#pragma GCC unroll 16
      for (int v = 0; v < NV; ++v) line[l * NV + v] = words[16 * v + l];
    }
  }
}

template <int NV>
inline void sort_line(std::uint32_t* words, std::uint32_t* line) {
  sort_network<NV>(words);
  columns_to_line<NV>(words, line);
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

// Up to 1,024 items: pack, sort, unpack, repair.
inline void network_sort(const KeySort& s, std::int64_t n, std::uint32_t* order) {
  const std::int64_t vectors = (n + 15) / 16;
  const std::uint32_t least = s.range.least;
  const std::uint32_t range = s.range.largest - least;
  const int position_bits = n <= 16 ? 4 : 32 - __builtin_clz(static_cast<std::uint32_t>(n - 1));
  const int key_bits = range == 0 ? 0 : 32 - __builtin_clz(range);
  const int drop = key_bits > 32 - position_bits ? key_bits - (32 - position_bits) : 0;
  const __m128i right = _mm_cvtsi32_si128(drop), left = _mm_cvtsi32_si128(position_bits);
  // The next power of two, or three quarters of it.
  const std::int64_t whole = vectors <= 1 ? 1 : 1ll << (64 - __builtin_clzll(vectors - 1));
  const std::int64_t rows = whole >= 8 && vectors <= whole / 4 * 3 ? whole / 4 * 3 : whole;
  U16 position = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (std::int64_t v = 0; v < rows; ++v) {
    U16 word = _mm512_set1_epi32(-1);
    if (v < vectors) {
      const __mmask16 lanes = first_lanes16(n - 16 * v);
      U16 x = _mm512_maskz_loadu_epi32(lanes, s.approximate + 16 * v);
      x = _mm512_srl_epi32(_mm512_sub_epi32(x, _mm512_set1_epi32(static_cast<int>(least))), right);
      word = _mm512_mask_or_epi32(word, lanes, _mm512_sll_epi32(x, left), position);
      position = _mm512_add_epi32(position, _mm512_set1_epi32(16));
    }
    _mm512_store_si512(s.packed + 16 * v, word);
  }
  std::uint32_t* line = s.approximate;
  switch (rows) {
    case 1:
      sort_network<1>(s.packed);
      line = s.packed;
      break;
    case 2:
      sort_line<2>(s.packed, line);
      break;
    case 4:
      sort_line<4>(s.packed, line);
      break;
    case 6:
      sort_line<6>(s.packed, line);
      break;
    case 8:
      sort_line<8>(s.packed, line);
      break;
    case 12:
      sort_line<12>(s.packed, line);
      break;
    case 16:
      sort_line<16>(s.packed, line);
      break;
    case 24:
      sort_line<24>(s.packed, line);
      break;
    case 32:
      sort_line<32>(s.packed, line);
      break;
    case 48:
      sort_line<48>(s.packed, line);
      break;
    default:
      sort_line<64>(s.packed, line);
  }
  const U16 mask = _mm512_set1_epi32(static_cast<int>((1u << position_bits) - 1));
  std::int64_t run = -1;  // where a run of equal shortened keys began
  std::int64_t run_end = -1;
  for (std::int64_t j = 0; j < n; j += 16) {
    const U16 word = _mm512_loadu_si512(line + j);
    const U16 next = _mm512_loadu_si512(line + j + 1);
    const __mmask16 lanes = first_lanes16(n - 1 - j);
    _mm512_storeu_si512(order + j, _mm512_and_si512(word, mask));
    std::uint32_t equal = n - 1 - j <= 0 ? 0
                                         : _mm512_mask_testn_epi32_mask(
                                               lanes, _mm512_xor_si512(word, next),
                                               _mm512_andnot_si512(mask, _mm512_set1_epi32(-1)));
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
  const U16 all_but_sign = _mm512_set1_epi32(0x7FFFFFFF);
  U16 least = _mm512_set1_epi32(-1), largest = _mm512_setzero_si512();
  for (std::int64_t i = 0; i < n; i += 16) {
    const F16 x = join(_mm512_maskz_loadu_pd(first_lanes8(n - i), keys + i),
                       _mm512_maskz_loadu_pd(first_lanes8(n - i - 8), keys + i + 8));
    const U16 bits = _mm512_castps_si512(_mm512_add_ps(x, _mm512_setzero_ps()));  // -0 becomes +0
    const U16 sign = _mm512_srai_epi32(bits, 31);
    // Ascending order of -x: positive numbers are inverted below the sign bit.
    const U16 word = _mm512_xor_si512(bits, _mm512_andnot_si512(sign, all_but_sign));
    const __mmask16 number = _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);
    const __mmask16 lanes = first_lanes16(n - i);
    const U16 key = _mm512_maskz_mov_epi32(number, word);
    least = _mm512_mask_min_epu32(least, lanes, least, key);
    largest = _mm512_mask_max_epu32(largest, lanes, largest, key);
    _mm512_mask_storeu_epi32(approximate + i, lanes, key);
  }
  return {_mm512_reduce_min_epu32(least), _mm512_reduce_max_epu32(largest)};
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
