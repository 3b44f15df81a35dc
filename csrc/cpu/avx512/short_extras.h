// What short instances cost beside first flips: single items, the minimal set, curves.
//
// Divergences take 16 points at a time from one or two instances, an item or a prefix a lane, each
// relative to its largest logit, to base 2 (divergence.h). The point where nothing survives is the
// bias alone; it is computed once an instance, eight instances at a time, and put in where a lane
// has no mass.
//   - Single items, items in the lanes: all items but one by exchanges of neighbours, pairs and
//     quads, 7 operations for 8 sums, never a subtraction.
//   - Curves, prefixes in the lanes: the rows of sums of the scan become columns.
//   - Minimal set, instances in the lanes: a class's margins sorted by exchanges of whole vectors,
//     two operations for eight instances; its size is read off their running sums. The order by the
//     winner's margins is sorted like a ranking.
// Times of 50,000 instances of about 7 items, C = 5, four rankings, as multiples of the plain sweep
// (one thread), the narrow way and this one: JS curves 3.3 and 1.7, single items 2.7 and 1.3, the
// minimal set with its order 3.3 and 1.2 (the plain sweep itself: 20.9 and 15.6 ms).

template <int Q>
struct Extras {
  static constexpr int kClasses = 4 * Q + 1;  // the label, then the slots
  // To base 2, instances in the lanes.
  alignas(64) float p[kClasses][kBlock], p_log_p[kClasses][kBlock], log_p[kClasses][kBlock];
  // The bias alone.
  alignas(64) float js[kBlock], kl[kBlock], own[kBlock];
};

constexpr double kToBase2 = 1.44269504088896340736;

// One F16 of which the lower half belongs to instance j, the upper to k.
FAE_INLINE F16 of_two(const float (&x)[kBlock], int j, int k) {
  return _mm512_mask_mov_ps(_mm512_set1_ps(x[j]), 0xFF00, _mm512_set1_ps(x[k]));
}

// Divergences of points with logits t, at most 0, to base 2; `lanes_of` reads a row of Extras.
template <int Q, class Lanes>
FAE_INLINE Divergences distances(std::int64_t C, const F16 (&t)[4 * Q + 1], const Extras<Q>& x,
                                 bool with_kl, Lanes lanes_of) {
  const F16 zero = _mm512_setzero_ps();
  F16 q[4 * Q + 1];
  F16 sum = zero;
#pragma GCC unroll 17
  for (int c = 0; c <= 4 * Q; ++c) {
    if (c >= C) continue;
    q[c] = exp2_float(t[c]);
    sum = _mm512_add_ps(sum, q[c]);
  }
  const Log2Table& table = log2_table();
  const F16 reciprocals = _mm512_load_ps(table.reciprocal);
  const F16 logarithms = _mm512_load_ps(table.logarithm);
  const F16 scale = _mm512_div_ps(_mm512_set1_ps(1.0f), sum);
  const F16 log_sum =
      _mm512_add_ps(log2_of_half(sum, reciprocals, logarithms), _mm512_set1_ps(1.0f));
  F16 js = zero, kl = zero;  // twice JS
#pragma GCC unroll 17
  for (int c = 0; c <= 4 * Q; ++c) {
    if (c >= C) continue;
    const F16 qc = _mm512_mul_ps(q[c], scale);
    const F16 log_q = _mm512_sub_ps(t[c], log_sum);
    const F16 both = _mm512_add_ps(qc, lanes_of(x.p[c]));
    const F16 term = _mm512_fmadd_ps(qc, log_q, lanes_of(x.p_log_p[c]));
    const F16 log_m = log2_of_half(both, reciprocals, logarithms);
    js = _mm512_add_ps(js, _mm512_fnmadd_ps(both, log_m, term));
    if (with_kl) kl = _mm512_fmadd_ps(qc, _mm512_sub_ps(log_q, lanes_of(x.log_p[c])), kl);
  }
  js = _mm512_mul_ps(_mm512_max_ps(js, zero), _mm512_set1_ps(kLn2 / 2));
  kl = _mm512_mul_ps(_mm512_max_ps(kl, zero), _mm512_set1_ps(kLn2));
  return {_mm512_min_ps(js, _mm512_set1_ps(kLog2Below)), kl, _mm512_mul_ps(q[0], scale)};
}

// Logits of the slots relative to the label's become logits of all classes relative to the largest.
template <int Q>
FAE_INLINE void to_largest(std::int64_t C, const D8 (&z)[4 * Q], D8 (&t)[4 * Q + 1]) {
  D8 high = _mm512_setzero_pd();
#pragma GCC unroll 16
  for (int s = 0; s < 4 * Q; ++s) {
    if (s < C - 1) high = _mm512_max_pd(high, z[s]);
  }
  t[0] = _mm512_sub_pd(_mm512_setzero_pd(), high);
#pragma GCC unroll 16
  for (int s = 0; s < 4 * Q; ++s) {
    if (s < C - 1) t[s + 1] = _mm512_sub_pd(z[s], high);
  }
}

// The same from sums of lowered margins.
template <int Q>
FAE_INLINE void logits_of_sums(std::int64_t C, const D8 (&sum)[4 * Q], D8 mass, double tolerance,
                               D8 (&t)[4 * Q + 1]) {
  const D8 scale = _mm512_div_pd(_mm512_set1_pd(-kToBase2), mass);
  const D8 lower = _mm512_set1_pd(-kToBase2 * tolerance);
  D8 z[4 * Q];
#pragma GCC unroll 16
  for (int s = 0; s < 4 * Q; ++s) {
    if (s < C - 1) z[s] = _mm512_fmadd_pd(sum[s], scale, lower);
  }
  to_largest<Q>(C, z, t);
}

// What divergences are taken from, and the bias alone.
template <int Q, int N>
inline void prepare_distances(const SweepParams& p, const Block<Q, N>& B, Extras<Q>& x) {
  const std::int64_t C = p.C;
  const D8 own = _mm512_load_pd(B.own_probability);
  // log of the sum of exp(z_c - z_y), 1 / p_y: a float32 logarithm and one step of Newton's.
  const D8 sum = _mm512_div_pd(_mm512_set1_pd(1), own);
  const Log2Table& table = log2_table();
  const F16 rough = log2_of_half(join(sum, sum), _mm512_load_ps(table.reciprocal),
                                 _mm512_load_ps(table.logarithm));
  const D8 start =
      _mm512_mul_pd(_mm512_add_pd(low_half(rough), _mm512_set1_pd(1)), _mm512_set1_pd(kLog2));
  const D8 back = exp_double(_mm512_sub_pd(_mm512_setzero_pd(), start));
  const D8 log_sum = _mm512_add_pd(start, _mm512_fmsub_pd(sum, back, _mm512_set1_pd(1)));
  D8 z[4 * Q], t[4 * Q + 1];
  const D8 own_bias = _mm512_load_pd(B.own_bias);
  for (std::int64_t c = 0; c < C; ++c) {
    const D8 relative = c == 0 ? _mm512_setzero_pd() : _mm512_load_pd(B.relative[c - 1]);
    const D8 probability = c == 0 ? own : _mm512_load_pd(B.probability[c - 1]);
    const D8 log_p = _mm512_mul_pd(_mm512_sub_pd(relative, log_sum), _mm512_set1_pd(kToBase2));
    _mm256_store_ps(x.p[c], _mm256_max_ps(_mm512_cvtpd_ps(probability), _mm256_set1_ps(1e-37f)));
    _mm256_store_ps(x.p_log_p[c], _mm512_cvtpd_ps(_mm512_mul_pd(probability, log_p)));
    _mm256_store_ps(x.log_p[c], _mm512_cvtpd_ps(log_p));
    if (c > 0) {
      z[c - 1] = _mm512_mul_pd(_mm512_sub_pd(_mm512_load_pd(B.bias[c - 1]), own_bias),
                               _mm512_set1_pd(kToBase2));
    }
  }
  to_largest<Q>(C, z, t);
  F16 points[4 * Q + 1];
  for (std::int64_t c = 0; c < C; ++c) points[c] = join(t[c], t[c]);
  const Divergences d = distances<Q>(
      C, points, x, p.curve_kl != nullptr,
      [](const float (&row)[8]) { return _mm512_castps256_ps512(_mm256_load_ps(row)); });
  _mm256_store_ps(x.js, _mm512_castps512_ps256(d.js));
  _mm256_store_ps(x.kl, _mm512_castps512_ps256(d.kl));
  _mm256_store_ps(x.own, _mm512_castps512_ps256(d.label_probability));
}

// In lane i the sum of the seven other lanes.
FAE_INLINE D8 sum_of_others(D8 x, D8* total) {
  const D8 neighbour = _mm512_permute_pd(x, 0x55);
  const D8 pair = _mm512_add_pd(x, neighbour);
  const D8 next_pair = _mm512_permutex_pd(pair, 0x4E);
  const D8 quad = _mm512_add_pd(pair, next_pair);
  const D8 next_quad = _mm512_shuffle_f64x2(quad, quad, 0x4E);
  *total = _mm512_add_pd(quad, next_quad);
  return _mm512_add_pd(_mm512_add_pd(neighbour, next_pair), next_quad);
}

// In lane i of half h the sum of all items but that one.
template <int N>
FAE_INLINE D8 sum_of_others(const double* items, int h) {
  D8 total;
  D8 sum = sum_of_others(_mm512_load_pd(items + 8 * h), &total);
  if (N == 2) {
    D8 more;
    sum_of_others(_mm512_load_pd(items + 8 * (1 - h)), &more);
    sum = _mm512_add_pd(sum, more);
  }
  return sum;
}

FAE_INLINE __m256 half_of(F16 x, int h) {
  return h == 0 ? _mm512_castps512_ps256(x) : _mm512_extractf32x8_ps(x, 1);
}

// Every item erased alone.
template <int Q, int N>
inline void erase_each(const SweepParams& p, Block<Q, N>& B, const Extras<Q>& x) {
  const std::int64_t C = p.C;
  const bool distant = p.single_js != nullptr || p.single_drop != nullptr;
  for (int v = 0; v < kBlock * N; v += 2) {
    const int two[2] = {v / N, (v + 1) / N};
    __mmask8 alone[2];
    D8 t[2][4 * Q + 1];
#pragma GCC unroll 2
    for (int u = 0; u < 2; ++u) {
      const int j = two[u], h = (v + u) % N;
      const __mmask8 lanes = B.lanes(j, h);
      const std::int64_t label = B.label[j];
      const D8 mass = sum_of_others<N>(B.a[j], h);
      const D8 scaled = _mm512_mul_pd(mass, _mm512_set1_pd(B.tolerance[j]));
      const D8 near = _mm512_mul_pd(scaled, _mm512_set1_pd(1 + 1e-9));
      D8 sum[4 * Q];
      D8 lowest = _mm512_setzero_pd();
      U16 decision = _mm512_set1_epi64(label);
      __mmask8 close = 0;
#pragma GCC unroll 16
      for (int s = 0; s < 4 * Q; ++s) {
        if (s >= C - 1) continue;
        sum[s] = sum_of_others<N>(B.margins[j][s], h);
        const D8 margin = _mm512_add_pd(sum[s], scaled);
        close |= _mm512_cmp_pd_mask(_mm512_abs_pd(margin), near, _CMP_LT_OQ);
        const __mmask8 lower = _mm512_cmp_pd_mask(margin, lowest, _CMP_LT_OQ);
        lowest = _mm512_mask_mov_pd(lowest, lower, margin);
        decision = _mm512_mask_mov_epi64(decision, lower, _mm512_set1_epi64(s + (s >= label)));
      }
      B.odd |= static_cast<unsigned>((close & lanes) != 0) << j;
      alone[u] = _mm512_cmp_pd_mask(mass, _mm512_setzero_pd(), _CMP_EQ_OQ);
      if (p.single_flip_label != nullptr) {
        decision = _mm512_mask_mov_epi64(decision, alone[u], _mm512_set1_epi64(B.bias_label[j]));
        const __mmask8 stays = _mm512_cmpeq_epi64_mask(decision, _mm512_set1_epi64(label));
        _mm512_mask_storeu_epi64(p.single_flip_label + B.first[j] + 8 * h, lanes,
                                 _mm512_mask_mov_epi64(decision, stays, _mm512_set1_epi64(-1)));
      }
      logits_of_sums<Q>(C, sum, mass, B.tolerance[j], t[u]);
    }
    if (!distant) continue;
    F16 points[4 * Q + 1];
#pragma GCC unroll 17
    for (int c = 0; c <= 4 * Q; ++c) {
      if (c < C) points[c] = join(t[0][c], t[1][c]);
    }
    const auto lanes_of = [&](const float (&row)[8]) { return of_two(row, two[0], two[1]); };
    const Divergences d = distances<Q>(C, points, x, false, lanes_of);
    const __mmask16 none = _mm512_kunpackb(alone[1], alone[0]);
    const F16 js = _mm512_mask_mov_ps(d.js, none, lanes_of(x.js));
    const F16 own = _mm512_mask_mov_ps(d.label_probability, none, lanes_of(x.own));
    const F16 drop = _mm512_sub_ps(lanes_of(x.p[0]), own);
#pragma GCC unroll 2
    for (int u = 0; u < 2; ++u) {
      const int h = (v + u) % N;
      const std::int64_t at = B.first[two[u]] + 8 * h;
      const __mmask8 lanes = B.lanes(two[u], h);
      if (p.single_js != nullptr) {
        _mm256_mask_storeu_ps(static_cast<float*>(p.single_js) + at, lanes, half_of(js, u));
      }
      if (p.single_drop != nullptr) {
        _mm256_mask_storeu_ps(static_cast<float*>(p.single_drop) + at, lanes, half_of(drop, u));
      }
    }
  }
}

// Eight rows of 4, two a vector, become 4 columns.
FAE_INLINE void columns_of_rows(const double* rows, D8 (&c)[4]) {
  const U16 first = _mm512_setr_epi64(0, 1, 4, 5, 8, 9, 12, 13);
  const U16 second = _mm512_setr_epi64(2, 3, 6, 7, 10, 11, 14, 15);
  D8 r[4];
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) r[k] = _mm512_load_pd(rows + 8 * k);
  const U16 even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
  const U16 odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
  const D8 a = _mm512_permutex2var_pd(r[0], first, r[1]),
           b = _mm512_permutex2var_pd(r[2], first, r[3]);
  const D8 d = _mm512_permutex2var_pd(r[0], second, r[1]),
           e = _mm512_permutex2var_pd(r[2], second, r[3]);
  c[0] = _mm512_permutex2var_pd(a, even, b);
  c[1] = _mm512_permutex2var_pd(a, odd, b);
  c[2] = _mm512_permutex2var_pd(d, even, e);
  c[3] = _mm512_permutex2var_pd(d, odd, e);
}

// In lane k the sum of lanes k … 7.
FAE_INLINE D8 suffix_sums(D8 x) {
  const U16 zero = _mm512_setzero_si512();
  const auto shifted = [&](D8 y, auto by) __attribute__((always_inline)) {
    return _mm512_castsi512_pd(_mm512_alignr_epi64(zero, _mm512_castpd_si512(y), by()));
  };
  x = _mm512_add_pd(x, shifted(x, [] { return 1; }));
  x = _mm512_add_pd(x, shifted(x, [] { return 2; }));
  return _mm512_add_pd(x, shifted(x, [] { return 4; }));
}

// The curves of rankings [begin, end) of instance j.
template <int Q, int N>
inline void draw_curves(const SweepParams& p, const Block<Q, N>& B, const Extras<Q>& x, int j,
                        std::int64_t begin, std::int64_t end) {
  const std::int64_t C = p.C, n = B.n[j];
  const bool distant = wants_distances(p);
  const auto point = [&](std::int64_t r) { return r * (p.T + p.B) + B.first[j] + B.index[j]; };
  for (int v = 0; v < (end - begin) * N; v += 2) {
    D8 t[2][4 * Q + 1];
    __mmask8 empty[2];
#pragma GCC unroll 2
    for (int u = 0; u < 2; ++u) {
      const int g = (v + u) / N, h = (v + u) % N;
      D8 a[N];
      ordered_weights(B, j, B.orders[j][g], a);
      D8 mass = suffix_sums(a[h]);
      if (N == 2 && h == 0) {
        mass = _mm512_add_pd(mass,
                             _mm512_broadcastsd_pd(_mm512_castpd512_pd128(suffix_sums(a[N - 1]))));
      }
      empty[u] = _mm512_cmp_pd_mask(mass, _mm512_setzero_pd(), _CMP_EQ_OQ);
      if (p.curve_mass != nullptr && begin + g < end) {
        _mm512_mask_storeu_pd(p.curve_mass + point(begin + g) + 8 * h, B.lanes(j, h), mass);
      }
      if (!distant) continue;
      D8 sum[4 * Q];
#pragma GCC unroll 4
      for (int q = 0; q < Q; ++q) {
        D8 columns[4];
        columns_of_rows(B.sums[j][g][q][8 * h], columns);
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) sum[4 * q + k] = columns[k];
      }
      logits_of_sums<Q>(C, sum, mass, B.tolerance[j], t[u]);
    }
    if (!distant) continue;
    F16 points[4 * Q + 1];
#pragma GCC unroll 17
    for (int c = 0; c <= 4 * Q; ++c) {
      if (c < C) points[c] = join(t[0][c], t[1][c]);
    }
    const auto lanes_of = [&](const float (&row)[8]) { return _mm512_set1_ps(row[j]); };
    const Divergences d = distances<Q>(C, points, x, p.curve_kl != nullptr, lanes_of);
    const __mmask16 none = _mm512_kunpackb(empty[1], empty[0]);
    // Nothing is erased at k = 0: the original distribution itself.
    const __mmask16 all = N == 2 ? 0x0001 : 0x0101;
    const auto write = [&](void* to, F16 y, const float (&bias)[8], float original) {
      if (to == nullptr) return;
      y = _mm512_mask_mov_ps(y, none, lanes_of(bias));
      y = _mm512_mask_mov_ps(y, all, _mm512_set1_ps(original));
#pragma GCC unroll 2
      for (int u = 0; u < 2; ++u) {
        const int g = (v + u) / N, h = (v + u) % N;
        if (begin + g >= end) continue;
        _mm256_mask_storeu_ps(static_cast<float*>(to) + point(begin + g) + 8 * h, B.lanes(j, h),
                              half_of(y, u));
      }
    };
    write(p.curve_js, d.js, x.js, 0);
    write(p.curve_kl, d.kl, x.kl, 0);
    write(p.curve_label_prob, d.label_probability, x.own, x.p[0][j]);
  }
  for (std::int64_t r = begin; r < end; ++r) {
    const std::int64_t at = point(r) + n;
    if (p.curve_mass != nullptr) p.curve_mass[at] = 0;
    if (p.curve_js != nullptr) static_cast<float*>(p.curve_js)[at] = x.js[j];
    if (p.curve_kl != nullptr) static_cast<float*>(p.curve_kl)[at] = x.kl[j];
    if (p.curve_label_prob != nullptr) static_cast<float*>(p.curve_label_prob)[at] = x.own[j];
  }
}

FAE_INLINE void exchange(D8& a, D8& b) {
  const D8 low = _mm512_min_pd(a, b);
  b = _mm512_max_pd(a, b);
  a = low;
}

// Batcher's odd-even merge sort of whole vectors: 19 exchanges for 8, 63 for 16.
template <int From, int Count, int Step, int M>
FAE_INLINE void merge_vectors(D8 (&x)[M]) {
  if constexpr (2 * Step < Count) {
    merge_vectors<From, Count, 2 * Step>(x);
    merge_vectors<From + Step, Count, 2 * Step>(x);
#pragma GCC unroll 16
    for (int i = From + Step; i + Step < From + Count; i += 2 * Step) exchange(x[i], x[i + Step]);
  } else {
    exchange(x[From], x[From + Step]);
  }
}

template <int From, int Count, int M>
FAE_INLINE void sort_vectors(D8 (&x)[M]) {
  if constexpr (Count > 1) {
    sort_vectors<From, Count / 2>(x);
    sort_vectors<From + Count / 2, Count / 2>(x);
    merge_vectors<From, Count, 1>(x);
  }
}

// Vector h of the margins of instance j in slot s, but for the last bits.
template <int Q, int N>
FAE_INLINE D8 margins_of(const Block<Q, N>& B, int j, std::int64_t s, int h) {
  return _mm512_fmadd_pd(_mm512_set1_pd(B.tolerance[j]), _mm512_load_pd(B.a[j] + 8 * h),
                         _mm512_load_pd(B.margins[j][s] + 8 * h));
}

// The same as the contract has them, with ties that are exact.
template <int Q, int N>
FAE_INLINE D8 exact_margins_of(const Block<Q, N>& B, int j, std::int64_t s, int h) {
  constexpr std::int64_t kPitch = kRun + 16;
  const std::int64_t label = B.label[j];
  const float* columns = B.columns[j] + 8 * h;
  const D8 own = _mm512_cvtps_pd(_mm256_loadu_ps(columns + label * kPitch));
  const D8 other = _mm512_cvtps_pd(_mm256_loadu_ps(columns + (s + (s >= label)) * kPitch));
  return _mm512_mul_pd(_mm512_load_pd(B.a[j] + 8 * h),
                       _mm512_sub_pd(_mm512_add_pd(own, _mm512_set1_pd(B.own_bias[j])),
                                     _mm512_add_pd(other, _mm512_set1_pd(B.bias[s][j]))));
}

// The minimal flipping sets.
template <int Q, int N>
inline void minimal_block(const SweepParams& p, Block<Q, N>& B) {
  const std::int64_t others = p.C - 1;
  const D8 infinity = _mm512_set1_pd(kInf);
  const D8 tolerance = _mm512_load_pd(B.tolerance);
  const U16 label = _mm512_load_si512(B.label), bias_label = _mm512_load_si512(B.bias_label);
  const auto some = [&](int j, int h) __attribute__((always_inline)) {
    return static_cast<__mmask8>(B.lanes(j, h) & ~(B.massless[j] >> (8 * h)));
  };
  alignas(64) std::int64_t with_mass[kBlock];
  for (int j = 0; j < kBlock; ++j) with_mass[j] = B.n[j] - __builtin_popcount(B.massless[j]);
  const U16 everything = _mm512_load_si512(with_mass);

  // Sizes, class by class: the survivors are the smallest margins whose sum is negative.
  const U16 no_size = _mm512_set1_epi64(kShort + 1);
  U16 size = no_size, winner = _mm512_setzero_si512(), runner_up = _mm512_setzero_si512();
  D8 closest = _mm512_set1_pd(-kInf);
  for (std::int64_t s = 0; s < others; ++s) {
    D8 x[8 * N];
    unsigned doubtful = 0;  // some survivor may be against the label, or nearly
#pragma GCC unroll 2
    for (int h = 0; h < N; ++h) {
      D8 r[8];
      for (int j = 0; j < kBlock; ++j) {
        r[j] = _mm512_mask_mov_pd(infinity, some(j, h), margins_of(B, j, s, h));
        const __mmask8 low = _mm512_mask_cmp_pd_mask(
            some(j, h), _mm512_load_pd(B.margins[j][s] + 8 * h), _mm512_setzero_pd(), _CMP_LE_OQ);
        doubtful |= static_cast<unsigned>(low != 0) << j;
      }
      transpose8(r);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) x[8 * h + i] = r[i];
    }
    sort_vectors<0, 8 * N>(x);
    D8 sum = _mm512_setzero_pd(), below = _mm512_setzero_pd(), above = infinity;
    U16 survivors = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (int i = 0; i < 8 * N; ++i) {
      sum = _mm512_add_pd(sum, x[i]);
      const __mmask8 negative = _mm512_movepi64_mask(_mm512_castpd_si512(sum));
      survivors = _mm512_mask_add_epi64(survivors, negative, survivors, _mm512_set1_epi64(1));
      below = _mm512_mask_mov_pd(below, negative, sum);
      above = _mm512_mask_min_pd(above, static_cast<__mmask8>(~negative), above, sum);
    }
    const __mmask8 flips = _mm512_test_epi64_mask(survivors, survivors);
    // The sums on both sides of the flip. Their mass is at most 1, so this is stricter than the
    // tolerance; sums before them are larger still.
    const __mmask8 clear =
        _mm512_cmp_pd_mask(above, tolerance, _CMP_GE_OQ) &
        _mm512_cmp_pd_mask(below, _mm512_sub_pd(_mm512_setzero_pd(), tolerance), _CMP_LE_OQ) &
        _mm512_cmplt_epi64_mask(survivors, everything);
    B.odd |= static_cast<__mmask8>(doubtful & ~(flips & clear));
    const U16 this_size = _mm512_sub_epi64(everything, survivors);
    const __mmask8 better = flips & _mm512_cmplt_epi64_mask(this_size, size);
    size = _mm512_mask_mov_epi64(size, better, this_size);
    winner = _mm512_mask_mov_epi64(winner, better, _mm512_set1_epi64(s));
    const D8 relative = _mm512_load_pd(B.relative[s]);
    const __mmask8 closer = _mm512_cmp_pd_mask(relative, closest, _CMP_GT_OQ);
    closest = _mm512_mask_mov_pd(closest, closer, relative);
    runner_up = _mm512_mask_mov_epi64(runner_up, closer, _mm512_set1_epi64(s));
  }
  const __mmask8 found = _mm512_cmplt_epi64_mask(size, no_size);
  const __mmask8 by_bias =
      static_cast<__mmask8>(~found) & _mm512_cmpneq_epi64_mask(label, bias_label);
  size = _mm512_mask_mov_epi64(size, static_cast<__mmask8>(~found), _mm512_set1_epi64(-1));
  size = _mm512_mask_mov_epi64(size, by_bias, everything);
  winner = _mm512_mask_mov_epi64(runner_up, found, winner);
  alignas(64) std::int64_t sizes[kBlock], winners[kBlock];
  _mm512_store_si512(sizes, size);
  _mm512_store_si512(winners, winner);

  // Orders.
  alignas(64) std::uint32_t orders[kBlock][8 * N];
  for (int f = 0; f < kBlock; f += kGroup) {
    alignas(64) double exact[kGroup][8 * N];
    __m256i keys[kGroup][N];
    std::int64_t n[kGroup];
#pragma GCC unroll 4
    for (int g = 0; g < kGroup; ++g) {
      const int j = f + g;
      n[g] = B.n[j];
#pragma GCC unroll 2
      for (int h = 0; h < N; ++h) {
        const D8 key = _mm512_mask_mov_pd(_mm512_set1_pd(-kInf), some(j, h),
                                          exact_margins_of(B, j, winners[j], h));
        _mm512_store_pd(exact[g] + 8 * h, key);
        keys[g][h] = approximate8(key);
      }
    }
    const std::uint64_t equal = sort_four<N>(keys, n, orders[f]);
    for (int g = 0; __builtin_expect(equal != 0, 0) && g < kGroup; ++g) {
      repair_list(exact[g], nullptr, equal >> (16 * g) & 0xFFFF, orders[f + g]);
    }
  }

  // Labels, from the sums over the survivors.
  D8 lowest = _mm512_setzero_pd(), scaled = lowest, near = lowest;
  U16 decision = label;
  __mmask8 close = 0;
  for (std::int64_t s = -1; s < others; ++s) {  // -1: the mass
    D8 x[8];
    for (int j = 0; j < kBlock; ++j) {
      const double* items = s < 0 ? B.a[j] : B.margins[j][s];
      const std::uint32_t survive = ~((1u << (sizes[j] & 31)) - 1);
#pragma GCC unroll 2
      for (int h = 0; h < N; ++h) {
        const U16 index = _mm512_cvtepu32_epi64(
            _mm256_load_si256(reinterpret_cast<const __m256i*>(orders[j] + 8 * h)));
        const __mmask8 lanes = static_cast<__mmask8>(survive >> (8 * h));
        const D8 part = N == 1 ? _mm512_maskz_permutexvar_pd(lanes, index, _mm512_load_pd(items))
                               : _mm512_maskz_permutex2var_pd(lanes, _mm512_load_pd(items), index,
                                                              _mm512_load_pd(items + 8 * (N - 1)));
        x[j] = h == 0 ? part : _mm512_add_pd(x[j], part);
      }
    }
    const D8 sum = across8(x, Sum());
    if (s < 0) {
      scaled = _mm512_mul_pd(sum, tolerance);
      near = _mm512_mul_pd(scaled, _mm512_set1_pd(1 + 1e-9));
      continue;
    }
    const D8 margin = _mm512_add_pd(sum, scaled);
    close |= _mm512_cmp_pd_mask(_mm512_abs_pd(margin), near, _CMP_LT_OQ);
    const __mmask8 lower = _mm512_cmp_pd_mask(margin, lowest, _CMP_LT_OQ);
    const __mmask8 beyond = _mm512_cmple_epi64_mask(label, _mm512_set1_epi64(s));
    lowest = _mm512_mask_mov_pd(lowest, lower, margin);
    decision = _mm512_mask_mov_epi64(
        decision, lower,
        _mm512_mask_mov_epi64(_mm512_set1_epi64(s), beyond, _mm512_set1_epi64(s + 1)));
  }
  B.odd |= static_cast<__mmask8>(close & found);
  decision = _mm512_mask_mov_epi64(_mm512_set1_epi64(-1), found, decision);
  decision = _mm512_mask_mov_epi64(decision, by_bias, bias_label);
  alignas(64) std::int64_t labels[kBlock];
  _mm512_store_si512(labels, decision);
  for (int j = 0; j < kBlock; ++j) {
    if (p.minimal_size != nullptr) p.minimal_size[B.index[j]] = sizes[j];
    if (p.minimal_flip_label != nullptr) p.minimal_flip_label[B.index[j]] = labels[j];
    if (p.minimal_order != nullptr) write_positions(B, j, orders[j], p.minimal_order);
  }
}
