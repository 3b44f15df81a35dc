// The minimal flipping set by selection instead of sorts.
//
// For one class the survivors of the optimal set are the largest group of smallest margins whose
// sum is negative. Sets are mostly small, so one pass over a class's margins first sets the few
// large ones apart and sums the rest; where that sum is negative, the set lies within the few.
// Quickselect finds it there, or among all margins: part them around a pivot; where the smaller
// part's sum (with what is already taken) is negative, take it and go on in the larger part, else
// go on in the smaller part. Sums are only ever added to. Extremes of all classes come from one
// pass over the rows; a class is skipped where even its largest margin cannot bring it down within
// the best size so far. Sums within the tolerance of zero send the class to the sort of minimal.h.
// The decision after the set is the total of all rows less those of the set, while the survivors
// hold enough mass for that to be good.
//
// Ladder, size and label of 2,000 instances of n~300, C = 10 (1 thread, ns an item beyond the plain
// sweep): quickselect of every class, and a sort for the label 19.9; as described 15.4.

constexpr double kLargePart = 1.0 / 8;      // of the largest margin: what is set apart
constexpr double kEnoughMass = 1.0 / 1024;  // of survivors, to be had by a difference

// Extremes of the rows of lowered margins, by class.
struct RowExtremes {
  alignas(64) double largest[16], least[16];
};

template <class Row>
inline void extremes_of_rows(const Instance& I, RowExtremes& extremes) {
  if constexpr (Row::kFloat) {
    F16 high = _mm512_load_ps(row_of<Row>(I, 0)), low = high;
    for (std::int64_t i = 1; i < I.n; ++i) {
      const F16 row = _mm512_load_ps(row_of<Row>(I, i));
      high = _mm512_max_ps(high, row);
      low = _mm512_min_ps(low, row);
    }
    const D8 highs[2] = {low_half(high), high_half(high)};
    const D8 lows[2] = {low_half(low), high_half(low)};
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
        high[v] = _mm512_max_pd(high[v], row[v]);
        low[v] = _mm512_min_pd(low[v], row[v]);
      }
    }
    store_sums(extremes.largest, high);
    store_sums(extremes.least, low);
  }
}

// Which of the items i … i + 7 have no mass.
FAE_INLINE __mmask8 without_mass(const Instance& I, std::int64_t i) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(I.massless + i));
  return static_cast<__mmask8>(_mm_test_epi8_mask(bytes, bytes));
}

// Margins of class c, 8 items at a time.
struct ClassMargins {
  const Instance& I;
  const float* own;
  const float* other;
  D8 own_bias, bias;
  ClassMargins(const Instance& instance, std::int64_t c)
      : I(instance),
        own(instance.columns + instance.label * instance.pitch),
        other(instance.columns + c * instance.pitch),
        own_bias(_mm512_set1_pd(instance.bias[instance.label])),
        bias(_mm512_set1_pd(instance.bias[c])) {}
  FAE_INLINE D8 at(std::int64_t i, D8 a) const {
    const D8 x = _mm512_add_pd(_mm512_cvtps_pd(_mm256_loadu_ps(own + i)), own_bias);
    const D8 y = _mm512_add_pd(_mm512_cvtps_pd(_mm256_loadu_ps(other + i)), bias);
    return _mm512_mul_pd(a, _mm512_sub_pd(x, y));
  }
  FAE_INLINE double one(std::int64_t i) const {
    const double x = static_cast<double>(own[i]) + _mm512_cvtsd_f64(own_bias);
    return I.a[i] * (x - (static_cast<double>(other[i]) + _mm512_cvtsd_f64(bias)));
  }
};

// Margins of class c above `limit` to `large`; returns their number and leaves the others' sum.
// Bits are noted first, [n / 8 + 8] bytes, and margins fetched after: they are few, and no step of
// the pass waits for how many came before it.
inline std::int64_t large_margins(const Instance& I, std::int64_t c, double limit,
                                  unsigned char* bits, double* large, double* rest) {
  const ClassMargins margins(I, c);
  const D8 bound = _mm512_set1_pd(limit);
  D8 sum = _mm512_setzero_pd();
  const std::int64_t blocks = (I.n + 7) / 8;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t i = 8 * block;
    // Lanes beyond the items weigh nothing.
    const D8 a = _mm512_maskz_loadu_pd(first_lanes8(I.n - i), I.a + i);
    const D8 margin = margins.at(i, a);
    const __mmask8 above = _mm512_cmp_pd_mask(margin, bound, _CMP_GT_OQ);
    sum = _mm512_mask_add_pd(sum, static_cast<__mmask8>(~above), sum, margin);
    bits[block] = above;
  }
  memset(bits + blocks, 0, 8);
  std::int64_t m = 0;
  for (std::int64_t block = 0; block < blocks; block += 8) {
    std::uint64_t word;
    memcpy(&word, bits + block, 8);
    for (; word != 0; word &= word - 1) large[m++] = margins.one(8 * block + __builtin_ctzll(word));
  }
  *rest = _mm512_reduce_add_pd(sum);
  return m;
}

// Margins of class c into `margins`, items without mass left out: I.with_mass of them. Returns
// their sum.
inline double all_margins(const Instance& I, std::int64_t c, double* to) {
  const ClassMargins margins(I, c);
  D8 sum = _mm512_setzero_pd();
  std::int64_t m = 0;
  for (std::int64_t i = 0; i < I.n; i += 8) {
    const __mmask8 lanes = first_lanes8(I.n - i);
    const D8 a = _mm512_maskz_loadu_pd(lanes, I.a + i);
    const D8 margin = margins.at(i, a);
    const __mmask8 some = lanes & static_cast<__mmask8>(~without_mass(I, i));
    sum = _mm512_mask_add_pd(sum, some, sum, margin);
    _mm512_storeu_pd(to + m, _mm512_maskz_compress_pd(some, margin));
    m += __builtin_popcount(some);
  }
  return _mm512_reduce_add_pd(sum);
}

// Parts margins[0, m) around the pivot: the smaller ones stay, the others go to `larger`. Equal
// ones are small where `kInclusive`.
template <bool kInclusive>
inline std::int64_t part_margins(double* margins, std::int64_t m, double pivot, double* larger,
                                 double* sum_of_smaller) {
  const D8 middle = _mm512_set1_pd(pivot);
  D8 sum = _mm512_setzero_pd();
  std::int64_t kept = 0, moved = 0;
  for (std::int64_t i = 0; i < m; i += 8) {
    const __mmask8 lanes = first_lanes8(m - i);
    const D8 x = _mm512_maskz_loadu_pd(lanes, margins + i);
    const __mmask8 small =
        _mm512_mask_cmp_pd_mask(lanes, x, middle, kInclusive ? _CMP_LE_OQ : _CMP_LT_OQ);
    const __mmask8 large = lanes & static_cast<__mmask8>(~small);
    sum = _mm512_mask_add_pd(sum, small, sum, x);
    _mm512_mask_storeu_pd(margins + kept, first_lanes8(__builtin_popcount(small)),
                          _mm512_maskz_compress_pd(small, x));
    _mm512_storeu_pd(larger + moved, _mm512_maskz_compress_pd(large, x));
    kept += __builtin_popcount(small);
    moved += __builtin_popcount(large);
  }
  *sum_of_smaller = _mm512_reduce_add_pd(sum);
  return kept;
}

struct Selected {
  std::int64_t first;  // the first k; about it where it is not clear
  double last;         // the least margin of those k
  bool clear;          // whether no sum is near zero; else the sort decides
};

// The first k at which `taken` plus the sum of m margins less the k largest is negative; `taken` is
// the sum of smaller margins, 0 without. The margins and `other` (scratch) are destroyed. Some
// margin or `taken` is negative.
inline Selected select_first(double tolerance, double taken, double* margins, double* other,
                             std::int64_t m) {
  const std::int64_t all = m;
  std::int64_t count = 0;  // of margins that surely survive; `taken` is their sum
  while (m > 16) {
    double s[5] = {margins[0], margins[m / 4], margins[m / 2], margins[3 * m / 4], margins[m - 1]};
    for (int i = 1; i < 5; ++i) {
      const double x = s[i];
      int j = i;
      for (; j > 0 && s[j - 1] > x; --j) s[j] = s[j - 1];
      s[j] = x;
    }
    double sum = 0;
    std::int64_t smaller = part_margins<false>(margins, m, s[2], other, &sum);
    if (smaller == 0) {  // the pivot is the smallest
      memcpy(margins, other, m * sizeof *margins);
      smaller = part_margins<true>(margins, m, s[2], other, &sum);
      if (smaller == m) return {all - count - m / 2, 0, false};
    }
    if (taken + sum < 0) {
      taken += sum;
      count += smaller;
      m -= smaller;
      double* const swap = margins;
      margins = other;
      other = swap;
    } else {
      m = smaller;
    }
  }
  for (std::int64_t i = 1; i < m; ++i) {
    const double x = margins[i];
    std::int64_t j = i;
    for (; j > 0 && margins[j - 1] > x; --j) margins[j] = margins[j - 1];
    margins[j] = x;
  }
  std::int64_t i = 0;
  for (; i < m && taken + margins[i] < 0; ++i) {
    taken += margins[i];
    ++count;
  }
  // The sums on both sides of the flip. Their mass is at most 1, so this is stricter than the
  // tolerance; sums before them are larger still.
  const bool clear = i < m && taken < 0 && -taken >= tolerance && taken + margins[i] >= tolerance;
  return {all - count, i < m ? margins[i] : 0, clear};
}

// The contract's decision over the items that `item_of(j)`, j < count, names (-1: none).
template <class ItemOf>
inline std::int64_t exact_decision(const SweepParams& p, const Instance& I, std::int64_t count,
                                   ItemOf item_of, bool* near) {
  ExactSums sums;
  for (std::int64_t j = 0; j < count; ++j) {
    const std::int64_t i = item_of(j);
    if (i >= 0) sums.add(p, I, i);
  }
  return sums.decide(p, I, near);
}

// Margins against c by item into w.keys, items without mass last, and their order into `order`.
inline void sort_by_margin(const Instance& I, std::int64_t c, const NarrowWork& w,
                           const SortBuffers& pairs, std::uint32_t* order) {
  const ClassMargins margins(I, c);
  for (std::int64_t i = 0; i < I.n; i += 8) {
    const __mmask8 lanes = first_lanes8(I.n - i);
    const D8 a = _mm512_maskz_loadu_pd(lanes, I.a + i);
    const D8 key = _mm512_mask_mov_pd(margins.at(i, a), without_mass(I, i), _mm512_set1_pd(-kInf));
    _mm512_mask_storeu_pd(w.keys + i, lanes, key);
  }
  approximate_keys(w.keys, I.n, w.approximate);
  sort_items({w.keys, nullptr, w.approximate, w.packed, pairs}, I.n, order);
}

// The sums of the survivors of the `size` largest margins against c, `last` the least of them;
// false where they hold too little mass for a difference. `equal` is scratch for n items.
template <class Row>
inline bool survivors(const Instance& I, std::int64_t C, std::int64_t c, std::int64_t size,
                      double last, std::uint32_t* equal, double* sums) {
  const ClassMargins margins(I, c);
  const D8 limit = _mm512_set1_pd(last);
  constexpr int V = Row::kVectors;
  D8 gone[V];
  clear_sums(gone);
  std::int64_t above = 0, level = 0;
  for (std::int64_t i = 0; i < I.n; i += 8) {
    const __mmask8 lanes = first_lanes8(I.n - i);
    const D8 a = _mm512_maskz_loadu_pd(lanes, I.a + i);
    const D8 margin = margins.at(i, a);
    const __mmask8 some = lanes & static_cast<__mmask8>(~without_mass(I, i));
    for (unsigned left = _mm512_mask_cmp_pd_mask(some, margin, limit, _CMP_GE_OQ); left != 0;
         left &= left - 1) {
      const std::int64_t at = i + __builtin_ctz(left);
      if ((_mm512_cmp_pd_mask(margin, limit, _CMP_EQ_OQ) >> (at - i) & 1) != 0) {
        equal[level++] = static_cast<std::uint32_t>(at);
      } else {
        add_row<Row>(I, at, gone);
        ++above;
      }
    }
  }
  for (std::int64_t j = 0; above + j < size; ++j) add_row<Row>(I, equal[j], gone);
  D8 left[V];
  load_sums(I.row_sum, C, left);
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) left[v] = _mm512_sub_pd(left[v], gone[v]);
  store_sums(sums, left);
  return sums[I.label] > kEnoughMass;
}

// The contract's sums of margins against c (w.keys, sorted in `order`) over all ranks below `to`
// down to `from`; `sum` and `mass` are those of ranks `to` and beyond, and are left at `from`.
inline Below below_within(const Instance& I, std::int64_t c, const double* margins,
                          const std::uint32_t* order, std::int64_t from, std::int64_t to,
                          double* sum, double* mass) {
  Below below{-1, -1};
  for (std::int64_t k = to - 1; k >= from; --k) {
    *sum += margins[order[k]];
    *mass += I.a[order[k]];
    if (k > 0 && (*sum < 0 || (*sum == 0 && c < I.label))) below.first = k;
    if (*sum < I.tolerance * *mass && -*sum < I.tolerance * *mass) below.nearest = k;
  }
  return below;
}

// The same over all ranks, from those around `guess` alone where they suffice: where the sum before
// them is beyond the tolerance, those before are larger still, since what they lack is positive.
inline Below below_near(const Instance& I, std::int64_t c, const NarrowWork& w,
                        const std::uint32_t* order, std::int64_t guess) {
  constexpr std::int64_t kAround = 256;
  const double* margins = w.keys;
  const std::int64_t from = guess > kAround ? guess - kAround : 0;
  const std::int64_t to = guess + kAround;
  if (to < I.with_mass) {
    unsigned char* erased = reinterpret_cast<unsigned char*>(w.packed);
    memset(erased, 0, I.n + 8);
    for (std::int64_t k = 0; k < to; ++k) erased[order[k]] = 1;
    D8 sums = _mm512_setzero_pd(), masses = _mm512_setzero_pd();
    for (std::int64_t i = 0; i < I.n; i += 8) {
      const __m128i gone = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(erased + i));
      const __mmask8 lanes = first_lanes8(I.n - i) & static_cast<__mmask8>(~without_mass(I, i)) &
                             static_cast<__mmask8>(_mm_testn_epi8_mask(gone, gone));
      sums = _mm512_add_pd(sums, _mm512_maskz_loadu_pd(lanes, margins + i));
      masses = _mm512_add_pd(masses, _mm512_maskz_loadu_pd(lanes, I.a + i));
    }
    double sum = _mm512_reduce_add_pd(sums), mass = _mm512_reduce_add_pd(masses);
    const Below below = below_within(I, c, margins, order, from, to, &sum, &mass);
    const bool all_before = from == 0 || (sum > I.tolerance && margins[order[from]] >= 0);
    if (below.first >= 0 && all_before) return below;
  }
  double sum = 0, mass = 0;
  return below_within(I, c, margins, order, 0, I.with_mass, &sum, &mass);
}

// Leaves the ranking `minimal` in `order` where it is wanted; it is scratch anyway.
template <class Row>
inline __attribute__((noinline)) Minimal minimal_narrow(const SweepParams& p, const Instance& I,
                                                        const NarrowWork& w,
                                                        const SortBuffers& pairs, bool with_order,
                                                        std::uint32_t* order) {
  double* margins = w.keys;
  double* other = reinterpret_cast<double*>(w.words);
  unsigned char* bits = reinterpret_cast<unsigned char*>(w.packed);
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
  double last = 0;  // the least margin of the winner's set; where it was selected
  bool selected = false;
  std::int64_t sorted = -1;  // the class that `order` is sorted by
  std::int64_t nearest = I.n;
  const double rounding = 1e-3 * I.tolerance + 2 * I.slack;
  for (std::int64_t j = 0; j < count; ++j) {
    const std::int64_t c = classes[j];
    if (extremes.least[c] > 0) continue;  // every survivor is for the label, and clearly so
    const double reach = static_cast<double>(result.size) * extremes.largest[c];
    if (result.size >= 0 && I.row_sum[c] - reach > rounding) continue;
    double rest = 0;
    const std::int64_t large =
        large_margins(I, c, kLargePart * extremes.largest[c], bits, margins, &rest);
    Selected found;
    if (rest < 0) {
      found = select_first(I.tolerance, rest, margins, other, large);
    } else {
      all_margins(I, c, margins);
      found = select_first(I.tolerance, 0, margins, other, I.with_mass);
    }
    std::int64_t first = found.first;
    if (!found.clear) {
      sort_by_margin(I, c, w, pairs, order);
      sorted = c;
      const Below below = below_near(I, c, w, order, found.first);
      first = below.first;
      if (below.nearest >= 0 && below.nearest < nearest) nearest = below.nearest;
    }
    if (first >= 0 &&
        (result.size < 0 || first < result.size || (first == result.size && c < winner))) {
      result.size = first;
      winner = c;
      last = found.last;
      selected = found.clear;
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
        const double total = all_margins(I, c, margins);
        if (winner < 0 || total < least) {
          least = total;
          winner = c;
        }
      }
      sort_by_margin(I, winner, w, pairs, order);
    }
    return result;
  }
  alignas(64) double sums[8 * Row::kVectors];
  const bool summed = selected && survivors<Row>(I, p.C, winner, result.size, last, w.packed, sums);
  if (summed && !with_order && clear_decision(p, I, sums, &result.label)) return result;
  if (sorted != winner) sort_by_margin(I, winner, w, pairs, order);
  if (!summed) {
    D8 sum[Row::kVectors];
    clear_sums(sum);
    for (std::int64_t k = I.n - 1; k >= result.size; --k) add_row<Row>(I, order[k], sum);
    store_sums(sums, sum);
  }
  if (!clear_decision(p, I, sums, &result.label)) {
    bool near = false;
    result.label = exact_decision(
        p, I, I.n - result.size, [&](std::int64_t k) { return order[result.size + k]; }, &near);
  }
  return result;
}
