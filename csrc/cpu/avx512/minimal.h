// The minimal flipping set by selection instead of sorts.
//
// For one class the survivors of the optimal set are the largest group of smallest margins whose
// sum is negative. Quickselect finds it: part the margins around a pivot; where the smaller part's
// sum (with what is already taken) is negative, take it and go on in the larger part, else go on in
// the smaller part. Sums are only ever added to. About two passes over the margins a class. A class
// is skipped where even its largest margin cannot bring it down within the best size so far. Sums
// within the tolerance of zero send the class to the sort of minimal.h.

// Margins of class c into `margins`, items without mass left out; their number is I.with_mass.
struct MarginTotals {
  double total, largest, least_lowered;
};

inline MarginTotals margins_against(const Instance& I, std::int64_t c, double* margins) {
  const float* own_column = I.columns + I.label * I.pitch;
  const float* other_column = I.columns + c * I.pitch;
  const D8 own_bias = _mm512_set1_pd(I.bias[I.label]), bias = _mm512_set1_pd(I.bias[c]);
  const D8 tolerance = _mm512_set1_pd(I.tolerance);
  D8 sum = _mm512_setzero_pd(), high = _mm512_set1_pd(-kInf), low = _mm512_set1_pd(kInf);
  std::int64_t m = 0;
  for (std::int64_t i = 0; i < I.n; i += 8) {
    const __mmask8 lanes = first_lanes8(I.n - i);
    const D8 a = _mm512_maskz_loadu_pd(lanes, I.a + i);
    const D8 own = _mm512_add_pd(_mm512_cvtps_pd(_mm256_loadu_ps(own_column + i)), own_bias);
    const D8 other = _mm512_add_pd(_mm512_cvtps_pd(_mm256_loadu_ps(other_column + i)), bias);
    const D8 margin = _mm512_mul_pd(a, _mm512_sub_pd(own, other));
    const __mmask8 some = _mm512_mask_cmp_pd_mask(lanes, a, _mm512_setzero_pd(), _CMP_GT_OQ);
    sum = _mm512_mask_add_pd(sum, some, sum, margin);
    high = _mm512_mask_max_pd(high, some, high, margin);
    low = _mm512_mask_min_pd(low, some, low, _mm512_fnmadd_pd(tolerance, a, margin));
    _mm512_storeu_pd(margins + m, _mm512_maskz_compress_pd(some, margin));
    m += __builtin_popcount(some);
  }
  return {_mm512_reduce_add_pd(sum), _mm512_reduce_max_pd(high), _mm512_reduce_min_pd(low)};
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

constexpr std::int64_t kTooNear = -2;  // for the sort to decide

// The first k at which the sum of m margins less the k largest is negative, where it is clear; m
// and `other` (scratch) are destroyed. Some margin is negative.
inline std::int64_t select_first(double tolerance, double* margins, double* other, std::int64_t m) {
  const std::int64_t all = m;
  double taken = 0;        // sum of the smallest margins that surely survive
  std::int64_t count = 0;  // and their number
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
      if (smaller == m) return kTooNear;
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
  if (count == 0 || i == m || -taken < tolerance || taken + margins[i] < tolerance) return kTooNear;
  return all - count;
}

// The contract's decision over the items that `item_of(j)`, j < count, names (-1: none).
template <class ItemOf>
inline std::int64_t exact_decision(const SweepParams& p, const Instance& I, std::int64_t count,
                                   ItemOf item_of, bool* near) {
  double sum[16] = {};
  double mass = 0;
  for (std::int64_t j = 0; j < count; ++j) {
    const std::int64_t i = item_of(j);
    if (i < 0) continue;
    const double own = static_cast<double>(I.columns[I.label * I.pitch + i]) + I.bias[I.label];
    for (std::int64_t c = 0; c < p.C; ++c) {
      sum[c] += I.a[i] * (own - (static_cast<double>(I.columns[c * I.pitch + i]) + I.bias[c]));
    }
    mass += I.a[i];
  }
  if (mass == 0) return I.bias_label;
  std::int64_t decision = I.label;
  double least = 0;
  for (std::int64_t c = 0; c < p.C; ++c) {
    if (c == I.label) continue;
    if (sum[c] < least || (sum[c] == least && c < decision)) {
      least = sum[c];
      decision = c;
    }
    if (sum[c] < I.tolerance * mass && -sum[c] < I.tolerance * mass) *near = true;
  }
  return decision;
}

// Margins against c by item into w.keys, items without mass last, and their order into `order`.
inline void sort_by_margin(const Instance& I, std::int64_t c, const NarrowWork& w,
                           const SortBuffers& pairs, std::uint32_t* order) {
  for (std::int64_t i = 0; i < I.n; ++i) {
    const double own = static_cast<double>(I.columns[I.label * I.pitch + i]) + I.bias[I.label];
    const double other = static_cast<double>(I.columns[c * I.pitch + i]) + I.bias[c];
    w.keys[i] = I.massless[i] != 0 ? -kInf : I.a[i] * (own - other);
  }
  approximate_keys(w.keys, I.n, w.approximate);
  sort_items({w.keys, nullptr, w.approximate, w.packed, pairs}, I.n, order);
}

// Leaves the ranking `minimal` in `order`.
template <int V>
inline __attribute__((noinline)) Minimal minimal_narrow(const SweepParams& p, const Instance& I,
                                                        const NarrowWork& w,
                                                        const SortBuffers& pairs,
                                                        std::uint32_t* order) {
  double* margins = w.keys;
  double* other = reinterpret_cast<double*>(w.words);
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
  std::int64_t runner_up = -1;
  std::int64_t nearest = I.n;
  double least_total = kInf;
  for (std::int64_t j = 0; j < count; ++j) {
    const std::int64_t c = classes[j];
    const MarginTotals totals = margins_against(I, c, margins);
    if (totals.total < least_total || (totals.total == least_total && c < runner_up)) {
      least_total = totals.total;
      runner_up = c;
    }
    if (totals.least_lowered > 0) continue;  // every survivor is for the label, and clearly so
    const double reach = static_cast<double>(result.size) * totals.largest;
    if (result.size >= 0 && totals.total - reach > I.tolerance) continue;
    std::int64_t first = select_first(I.tolerance, margins, other, I.with_mass);
    if (first == kTooNear) {
      sort_by_margin(I, c, w, pairs, order);
      first = -1;
      double sum = 0;
      double mass = 0;
      std::int64_t near = I.n;
      for (std::int64_t k = I.with_mass - 1; k >= 0; --k) {
        sum += margins[order[k]];
        mass += I.a[order[k]];
        if (k > 0 && (sum < 0 || (sum == 0 && c < I.label))) first = k;
        if (sum < I.tolerance * mass && -sum < I.tolerance * mass) near = k;
      }
      nearest = near < nearest ? near : nearest;
    }
    if (first >= 0 &&
        (result.size < 0 || first < result.size || (first == result.size && c < winner))) {
      result.size = first;
      winner = c;
    }
  }
  result.near = nearest < I.n && (result.size < 0 || nearest <= result.size);
  if (winner < 0) {
    sort_by_margin(I, runner_up, w, pairs, order);
    if (I.bias_label != I.label) {
      result.size = I.with_mass;
      result.label = I.bias_label;
    }
    return result;
  }
  sort_by_margin(I, winner, w, pairs, order);
  alignas(64) double sums[8 * V];
  D8 sum[V];
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) sum[v] = _mm512_setzero_pd();
  for (std::int64_t k = I.n - 1; k >= result.size; --k) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      sum[v] = _mm512_add_pd(sum[v], _mm512_load_pd(I.rows + order[k] * 8ll * V + 8 * v));
    }
  }
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) _mm512_store_pd(sums + 8 * v, sum[v]);
  if (!clear_decision(p, I, sums, &result.label)) {
    bool near = false;
    result.label = exact_decision(
        p, I, I.n - result.size, [&](std::int64_t k) { return order[result.size + k]; }, &near);
  }
  return result;
}
