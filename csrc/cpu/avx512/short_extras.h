// What short instances cost beside first flips: single items, the minimal set, curves.
//
// Instances stay in the lanes. Sums are of the contract's margins, in double, and never a
// subtraction: of all items that do not rank before one (curves), of all items but one (single
// items), over all pairs of items like the ranks themselves.
//   - Divergences take two items of 16 instances at a time, relative to the largest logit, to
//     base 2 (divergence.h). The point where nothing survives is the bias alone; it is computed
//     once an instance and put in where a lane has no mass.
//   - Minimal set: a class's margins sorted by exchanges of whole vectors, two operations for eight
//     instances; its size is read off their running sums. The order by the winner's margins is
//     ranked like any other.
// Times of 50,000 instances of about 7 items, C = 5, four rankings, as multiples of the plain sweep
// (one thread), the narrow way (of its own plain sweep, 20.9 ms) and this one (10.3 ms): JS curves
// 3.3 and 1.9, single items 2.7 and 1.4, the minimal set with its order 3.3 and 1.3.

template <int S>
struct Extras {
  static constexpr int kClasses = S > 0 ? S + 1 : 16;  // the label, then the slots
  // To base 2.
  alignas(64) float p[kClasses][kLanes], p_log_p[kClasses][kLanes], log_p[kClasses][kLanes];
  // The bias alone.
  alignas(64) float js[kLanes], kl[kLanes], own[kLanes];
};

constexpr double kToBase2 = 1.44269504088896340736;

// Of U points in 16 instances each, side by side so that their latencies overlap.
template <int S, int U>
using Points = F16[U][Extras<S>::kClasses];
template <int S, int U>
using PointSums = D8[U][2][Extras<S>::kClasses];  // instances in two vectors
template <int U>
using PointMasses = D8[U][2];

// Divergences of points with logits t, at most 0, to base 2.
template <int S, int U>
FAE_INLINE void distances(const SweepParams& p, const Extras<S>& x, const Points<S, U>& t,
                          Divergences (&d)[U]) {
  const std::int64_t C = slots<S>(p) + 1;
  const bool with_kl = p.curve_kl != nullptr || p.single_kl != nullptr;
  const F16 zero = _mm512_setzero_ps();
  const Log2Table& table = log2_table();
  const F16 reciprocals = _mm512_load_ps(table.reciprocal);
  const F16 logarithms = _mm512_load_ps(table.logarithm);
  Points<S, U> q;
  F16 sum[U], scale[U], log_sum[U], js[U], kl[U];  // twice JS
#pragma GCC unroll 2
  for (int u = 0; u < U; ++u) sum[u] = js[u] = kl[u] = zero;
#pragma GCC unroll 5
  for (std::int64_t c = 0; c < C; ++c) {
#pragma GCC unroll 2
    for (int u = 0; u < U; ++u) {
      q[u][c] = exp2_float(t[u][c]);
      sum[u] = _mm512_add_ps(sum[u], q[u][c]);
    }
  }
#pragma GCC unroll 2
  for (int u = 0; u < U; ++u) {
    scale[u] = _mm512_div_ps(_mm512_set1_ps(1.0f), sum[u]);
    log_sum[u] = _mm512_add_ps(log2_of_half(sum[u], reciprocals, logarithms), _mm512_set1_ps(1.0f));
  }
#pragma GCC unroll 5
  for (std::int64_t c = 0; c < C; ++c) {
#pragma GCC unroll 2
    for (int u = 0; u < U; ++u) {
      const F16 qc = _mm512_mul_ps(q[u][c], scale[u]);
      const F16 log_q = _mm512_sub_ps(t[u][c], log_sum[u]);
      const F16 sum_of_both = _mm512_add_ps(qc, _mm512_load_ps(x.p[c]));
      const F16 term = _mm512_fmadd_ps(qc, log_q, _mm512_load_ps(x.p_log_p[c]));
      const F16 log_m = log2_of_half(sum_of_both, reciprocals, logarithms);
      js[u] = _mm512_add_ps(js[u], _mm512_fnmadd_ps(sum_of_both, log_m, term));
      if (!with_kl) continue;
      kl[u] = _mm512_fmadd_ps(qc, _mm512_sub_ps(log_q, _mm512_load_ps(x.log_p[c])), kl[u]);
    }
  }
#pragma GCC unroll 2
  for (int u = 0; u < U; ++u) {
    js[u] = _mm512_mul_ps(_mm512_max_ps(js[u], zero), _mm512_set1_ps(kLn2 / 2));
    kl[u] = _mm512_mul_ps(_mm512_max_ps(kl[u], zero), _mm512_set1_ps(kLn2));
    d[u] = {_mm512_min_ps(js[u], _mm512_set1_ps(kLog2Below)), kl[u],
            _mm512_mul_ps(q[u][0], scale[u])};
  }
}

// Logits of the slots relative to the label's become logits of all classes relative to the largest.
template <int S, int U>
FAE_INLINE void to_largest(const SweepParams& p, const PointSums<S, U>& z, Points<S, U>& t) {
  const std::int64_t others = slots<S>(p);
#pragma GCC unroll 2
  for (int u = 0; u < U; ++u) {
    D8 high[2] = {_mm512_setzero_pd(), _mm512_setzero_pd()};
#pragma GCC unroll 5
    for (std::int64_t s = 0; s < others; ++s) {
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) high[h] = _mm512_max_pd(high[h], z[u][h][s]);
    }
    t[u][0] = _mm512_sub_ps(_mm512_setzero_ps(), join(high[0], high[1]));
#pragma GCC unroll 5
    for (std::int64_t s = 0; s < others; ++s) {
      t[u][s + 1] = join(_mm512_sub_pd(z[u][0][s], high[0]), _mm512_sub_pd(z[u][1][s], high[1]));
    }
  }
}

// Divergences where `sum` are the margins' sums over the survivors.
template <int S, int U>
FAE_INLINE void distances_of_sums(const SweepParams& p, const Extras<S>& x,
                                  const PointSums<S, U>& sum, const PointMasses<U>& mass,
                                  Divergences (&d)[U]) {
  const std::int64_t others = slots<S>(p);
  PointSums<S, U> z;
  __mmask8 empty[U][2];
#pragma GCC unroll 2
  for (int u = 0; u < U; ++u) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const D8 scale = _mm512_div_pd(_mm512_set1_pd(-kToBase2), mass[u][h]);
      empty[u][h] = _mm512_cmp_pd_mask(mass[u][h], _mm512_setzero_pd(), _CMP_EQ_OQ);
#pragma GCC unroll 5
      for (std::int64_t s = 0; s < others; ++s) z[u][h][s] = _mm512_mul_pd(sum[u][h][s], scale);
    }
  }
  Points<S, U> t;
  to_largest<S, U>(p, z, t);
  distances<S, U>(p, x, t, d);
#pragma GCC unroll 2
  for (int u = 0; u < U; ++u) {
    const __mmask16 none = both(empty[u][0], empty[u][1]);
    d[u] = {_mm512_mask_load_ps(d[u].js, none, x.js), _mm512_mask_load_ps(d[u].kl, none, x.kl),
            _mm512_mask_load_ps(d[u].label_probability, none, x.own)};
  }
}

// Sums over items j, for point u in the lanes `lanes_of(u, j)`: mass and the margins of all slots.
template <int S, int U, class LanesOf>
FAE_INLINE void sum_items(const SweepParams& p, const Block& B, LanesOf lanes_of,
                          PointSums<S, U>& sum, PointMasses<U>& mass) {
  constexpr int G = S > 0 ? S : 4;
  for (std::int64_t slot = 0; slot < slots<S>(p); slot += G) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      D8 part[U][G + 1];  // the mass last
#pragma GCC unroll 2
      for (int u = 0; u < U; ++u) {
#pragma GCC unroll 5
        for (int g = 0; g <= G; ++g) part[u][g] = _mm512_setzero_pd();
      }
      for (std::int64_t j = 0; j < B.items; ++j) {
        __mmask8 lanes[U];
#pragma GCC unroll 2
        for (int u = 0; u < U; ++u) lanes[u] = lanes_of(u, j, h);
#pragma GCC unroll 5
        for (int g = 0; g <= G; ++g) {
          D8 x = load_half(g < G ? B.margins[slot + g][j] : B.a[j], h);
          loaded(x);
#pragma GCC unroll 2
          for (int u = 0; u < U; ++u) {
            part[u][g] = _mm512_mask_add_pd(part[u][g], lanes[u], part[u][g], x);
          }
        }
      }
#pragma GCC unroll 2
      for (int u = 0; u < U; ++u) {
#pragma GCC unroll 4
        for (int g = 0; g < G; ++g) sum[u][h][slot + g] = part[u][g];
        mass[u][h] = part[u][G];
      }
    }
  }
}

// What divergences are taken from, and the bias alone.
template <int S>
inline __attribute__((noinline)) void prepare_distances(const SweepParams& p, const Block& B,
                                                        Extras<S>& x) {
  const std::int64_t C = slots<S>(p) + 1;
  PointSums<S, 1> z;
  for (int h = 0; h < 2; ++h) {
    const D8 own = load_half(B.own_probability, h);
    // log of the sum of exp(z_c - z_y), 1 / p_y: a float32 logarithm and one step of Newton's.
    const D8 sum = _mm512_div_pd(_mm512_set1_pd(1), own);
    const Log2Table& table = log2_table();
    const F16 rough = log2_of_half(join(sum, sum), _mm512_load_ps(table.reciprocal),
                                   _mm512_load_ps(table.logarithm));
    const D8 start =
        _mm512_mul_pd(_mm512_add_pd(low_half(rough), _mm512_set1_pd(1)), _mm512_set1_pd(kLog2));
    const D8 back = exp_double(_mm512_sub_pd(_mm512_setzero_pd(), start));
    const D8 log_sum = _mm512_add_pd(start, _mm512_fmsub_pd(sum, back, _mm512_set1_pd(1)));
    for (std::int64_t c = 0; c < C; ++c) {
      const D8 relative = c == 0 ? _mm512_setzero_pd() : load_half(B.relative[c - 1], h);
      const D8 probability = c == 0 ? own : load_half(B.probability[c - 1], h);
      const D8 log_p = _mm512_mul_pd(_mm512_sub_pd(relative, log_sum), _mm512_set1_pd(kToBase2));
      _mm256_store_ps(x.p[c] + 8 * h,
                      _mm256_max_ps(_mm512_cvtpd_ps(probability), _mm256_set1_ps(1e-37f)));
      _mm256_store_ps(x.p_log_p[c] + 8 * h, _mm512_cvtpd_ps(_mm512_mul_pd(probability, log_p)));
      _mm256_store_ps(x.log_p[c] + 8 * h, _mm512_cvtpd_ps(log_p));
      if (c == 0) continue;
      z[0][h][c - 1] =
          _mm512_mul_pd(_mm512_sub_pd(load_half(B.bias[c - 1], h), load_half(B.own_bias, h)),
                        _mm512_set1_pd(kToBase2));
    }
  }
  Points<S, 1> t;
  to_largest<S, 1>(p, z, t);
  Divergences d[1];
  distances<S, 1>(p, x, t, d);
  _mm512_store_ps(x.js, d[0].js);
  _mm512_store_ps(x.kl, d[0].kl);
  _mm512_store_ps(x.own, d[0].label_probability);
}

// The class with the smallest sum of eight instances, the label's being zero; `close`, where one is
// within the tolerance.
template <int S>
FAE_INLINE U16 decide(const SweepParams& p, const Block& B, int h,
                      const D8 (&sum)[Extras<S>::kClasses], D8 mass, __mmask8* close) {
  const std::int64_t others = slots<S>(p);
  const U16 label =
      _mm512_cvtepi32_epi64(_mm256_load_si256(reinterpret_cast<const __m256i*>(B.label + 8 * h)));
  const D8 near =
      _mm512_mul_pd(_mm512_mul_pd(mass, load_half(B.tolerance, h)), _mm512_set1_pd(1 + 1e-9));
  D8 lowest = _mm512_setzero_pd();
  U16 decision = label;
  *close = 0;
#pragma GCC unroll 5
  for (std::int64_t s = 0; s < others; ++s) {
    *close |= _mm512_cmp_pd_mask(_mm512_abs_pd(sum[s]), near, _CMP_LT_OQ);
    const __mmask8 lower = _mm512_cmp_pd_mask(sum[s], lowest, _CMP_LT_OQ);
    lowest = _mm512_min_pd(sum[s], lowest);
    const U16 slot = _mm512_set1_epi64(s);
    const U16 its = _mm512_mask_add_epi64(slot, _mm512_cmple_epi64_mask(label, slot), slot,
                                          _mm512_set1_epi64(1));
    decision = _mm512_mask_mov_epi64(decision, lower, its);
  }
  return decision;
}

FAE_INLINE void store_half(std::int32_t (&to)[kLanes], int h, U16 x) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(to + 8 * h), _mm512_cvtepi64_epi32(x));
}

// Sums over all items but i and over all items but i + 1.
template <int S>
FAE_INLINE void sum_pair(const SweepParams& p, const Block& B, std::int64_t i, PointSums<S, 2>& sum,
                         PointMasses<2>& mass) {
  const std::int64_t others = slots<S>(p);
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    D8 part[Extras<S>::kClasses];  // the mass last
#pragma GCC unroll 5
    for (std::int64_t s = 0; s <= others; ++s) part[s] = _mm512_setzero_pd();
    for (std::int64_t j = 0; j < B.items; ++j) {
      if (j == i || j == i + 1) continue;
#pragma GCC unroll 5
      for (std::int64_t s = 0; s <= others; ++s) {
        const auto& items = s < others ? B.margins[s] : B.a;
        part[s] = _mm512_add_pd(part[s], load_half(items[j], h));
      }
    }
#pragma GCC unroll 2
    for (int u = 0; u < 2; ++u) {
#pragma GCC unroll 5
      for (std::int64_t s = 0; s < others; ++s) {
        sum[u][h][s] = _mm512_add_pd(part[s], load_half(B.margins[s][i + 1 - u], h));
      }
      mass[u][h] = _mm512_add_pd(part[others], load_half(B.a[i + 1 - u], h));
    }
  }
}

// Every item erased alone.
template <int S>
inline __attribute__((noinline)) void erase_each(const SweepParams& p, const Extras<S>& x,
                                                 Block& B) {
  const bool distant = p.single_js != nullptr || p.single_kl != nullptr || p.single_drop != nullptr;
  const U16 label = _mm512_load_si512(B.label), bias_label = _mm512_load_si512(B.bias_label);
  alignas(64) std::int32_t flip_label[kShort][kLanes];
  alignas(64) float js[kShort][kLanes], kl[kShort][kLanes], drop[kShort][kLanes];
  for (std::int64_t i = 0; i < B.items; i += 2) {
    PointSums<S, 2> sum;
    PointMasses<2> mass;
    sum_pair<S>(p, B, i, sum, mass);
#pragma GCC unroll 2
    for (int u = 0; u < 2; ++u) {
      __mmask8 alone[2], close[2];
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        alone[h] = _mm512_cmp_pd_mask(mass[u][h], _mm512_setzero_pd(), _CMP_EQ_OQ);
        store_half(flip_label[i + u], h, decide<S>(p, B, h, sum[u][h], mass[u][h], &close[h]));
      }
      B.odd |= B.present[i + u] & both(close[0], close[1]);
      const U16 decision = _mm512_mask_mov_epi32(_mm512_load_si512(flip_label[i + u]),
                                                 both(alone[0], alone[1]), bias_label);
      _mm512_store_si512(flip_label[i + u],
                         _mm512_mask_mov_epi32(decision, _mm512_cmpeq_epi32_mask(decision, label),
                                               _mm512_set1_epi32(-1)));
    }
    if (!distant) continue;
    Divergences d[2];
    distances_of_sums<S, 2>(p, x, sum, mass, d);
#pragma GCC unroll 2
    for (int u = 0; u < 2; ++u) {
      _mm512_store_ps(js[i + u], d[u].js);
      _mm512_store_ps(kl[i + u], d[u].kl);
      _mm512_store_ps(drop[i + u], _mm512_sub_ps(_mm512_load_ps(x.p[0]), d[u].label_probability));
    }
  }
  for (std::int64_t l = 0; l < B.count; ++l) {
    const std::int64_t to = B.first[l];
    for (std::int64_t i = 0; i < B.n[l]; ++i) {
      if (p.single_flip_label != nullptr) p.single_flip_label[to + i] = flip_label[i][l];
      if (p.single_js != nullptr) static_cast<float*>(p.single_js)[to + i] = js[i][l];
      if (p.single_kl != nullptr) static_cast<float*>(p.single_kl)[to + i] = kl[i][l];
      if (p.single_drop != nullptr) static_cast<float*>(p.single_drop)[to + i] = drop[i][l];
    }
  }
}

// The curves of ranking r.
template <int S>
inline __attribute__((noinline)) void draw_curves(const SweepParams& p, const Block& B,
                                                  const Extras<S>& x, std::int64_t r) {
  const bool distant = wants_distances(p);
  float* const to_js = static_cast<float*>(p.curve_js);
  float* const to_kl = static_cast<float*>(p.curve_kl);
  float* const to_own = static_cast<float*>(p.curve_label_prob);
  // At an item's rank.
  alignas(64) double masses[kShort][kLanes];
  alignas(64) float js[kShort][kLanes], kl[kShort][kLanes], own[kShort][kLanes];
  const auto ranks = [&](std::int64_t i, int h) __attribute__((always_inline)) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(B.ranks[i] + 8 * h));
  };
  for (std::int64_t i = 0; i < B.items; i += 2) {
    PointSums<S, 2> sum;
    PointMasses<2> mass;
    sum_items<S, 2>(
        p, B,
        [&](int u, std::int64_t j, int h) __attribute__((always_inline)) {
          return _mm256_cmple_epi32_mask(ranks(i + u, h), ranks(j, h));
        },
        sum, mass);
#pragma GCC unroll 2
    for (int u = 0; u < 2; ++u) {
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) _mm512_store_pd(masses[i + u] + 8 * h, mass[u][h]);
    }
    if (!distant) continue;
    Divergences d[2];
    distances_of_sums<S, 2>(p, x, sum, mass, d);
#pragma GCC unroll 2
    for (int u = 0; u < 2; ++u) {
      // Nothing is erased at rank 0: the original distribution itself.
      const U16 rank = _mm512_load_si512(B.ranks[i + u]);
      const __mmask16 later = _mm512_test_epi32_mask(rank, rank);
      _mm512_store_ps(js[i + u], _mm512_maskz_mov_ps(later, d[u].js));
      _mm512_store_ps(kl[i + u], _mm512_maskz_mov_ps(later, d[u].kl));
      _mm512_store_ps(own[i + u],
                      _mm512_mask_mov_ps(_mm512_load_ps(x.p[0]), later, d[u].label_probability));
    }
  }
  for (std::int64_t l = 0; l < B.count; ++l) {
    const std::int64_t at = r * (p.T + p.B) + B.first[l] + B.index[l], n = B.n[l];
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t point = at + B.ranks[i][l];
      if (p.curve_mass != nullptr) p.curve_mass[point] = masses[i][l];
      if (to_js != nullptr) to_js[point] = js[i][l];
      if (to_kl != nullptr) to_kl[point] = kl[i][l];
      if (to_own != nullptr) to_own[point] = own[i][l];
    }
    if (p.curve_mass != nullptr) p.curve_mass[at + n] = 0;
    if (to_js != nullptr) to_js[at + n] = x.js[l];
    if (to_kl != nullptr) to_kl[at + n] = x.kl[l];
    if (to_own != nullptr) to_own[at + n] = x.own[l];
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

// Of eight instances, class by class.
struct Sizes {
  U16 size, winner;  // of the smallest set so far, and its slot
  U16 runner_up;     // the slot closest to the label
  D8 closest;
};

// Tries the class of a slot: the survivors are the smallest margins whose sum is negative. M is at
// least the number of items. Returns the instances for which this cannot tell.
template <int M>
inline __attribute__((noinline)) __mmask8 try_slot(const Block& B, std::int64_t s, int h,
                                                   U16 everything, Sizes& sizes) {
  const D8 infinity = _mm512_set1_pd(kInf), zero = _mm512_setzero_pd();
  const D8 tolerance = load_half(B.tolerance, h);
  D8 x[M];
  D8 least = infinity;  // margin per mass, less what is near
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
    x[i] = infinity;
    if (i >= B.items) continue;
    __mmask16 some = B.present[i];
    if (B.any_massless) some &= inverse(B.massless[i]);
    const __mmask8 lanes = half_lanes(some, h);
    x[i] = _mm512_mask_mov_pd(infinity, lanes, load_half(B.margins[s][i], h));
    const D8 above = _mm512_fnmadd_pd(_mm512_mul_pd(tolerance, _mm512_set1_pd(1 + 1e-9)),
                                      load_half(B.a[i], h), x[i]);
    least = _mm512_min_pd(least, above);
  }
  // Some survivor may be against the label, or nearly.
  const __mmask8 doubtful = _mm512_cmp_pd_mask(least, zero, _CMP_LE_OQ);
  sort_vectors<0, M>(x);
  D8 sum = zero, below = zero, above = infinity;
  U16 survivors = _mm512_setzero_si512();
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
    sum = _mm512_add_pd(sum, x[i]);
    const __mmask8 negative = _mm512_movepi64_mask(_mm512_castpd_si512(sum));
    survivors = _mm512_mask_add_epi64(survivors, negative, survivors, _mm512_set1_epi64(1));
    below = _mm512_mask_mov_pd(below, negative, sum);
    above = _mm512_mask_min_pd(above, static_cast<__mmask8>(~negative), above, sum);
  }
  const __mmask8 flips = _mm512_test_epi64_mask(survivors, survivors);
  // The sums on both sides of the flip. Their mass is at most 1, so this is stricter than the
  // tolerance; sums before them are larger still.
  const __mmask8 clear = _mm512_cmp_pd_mask(above, tolerance, _CMP_GE_OQ) &
                         _mm512_cmp_pd_mask(below, _mm512_sub_pd(zero, tolerance), _CMP_LE_OQ) &
                         _mm512_cmplt_epi64_mask(survivors, everything);
  const U16 slot = _mm512_set1_epi64(s);
  const U16 size = _mm512_sub_epi64(everything, survivors);
  const __mmask8 better = flips & _mm512_cmplt_epi64_mask(size, sizes.size);
  sizes.size = _mm512_mask_mov_epi64(sizes.size, better, size);
  sizes.winner = _mm512_mask_mov_epi64(sizes.winner, better, slot);
  const D8 relative = load_half(B.relative[s], h);
  const __mmask8 closer = _mm512_cmp_pd_mask(relative, sizes.closest, _CMP_GT_OQ);
  sizes.closest = _mm512_mask_mov_pd(sizes.closest, closer, relative);
  sizes.runner_up = _mm512_mask_mov_epi64(sizes.runner_up, closer, slot);
  return doubtful & static_cast<__mmask8>(~(flips & clear));
}

// Ranks by the keys alone.
inline void rank_block(Block& B) {
  const U16 one = _mm512_set1_epi32(1);
  for (std::int64_t i = 0; i < B.items; ++i) {
    const U16 low = _mm512_load_si512(B.keys[i]), high = _mm512_load_si512(B.keys[i] + 8);
    U16 rank = _mm512_setzero_si512();
    for (std::int64_t j = 0; j < B.items; ++j) {
      const U16 its_low = _mm512_load_si512(B.keys[j]), its_high = _mm512_load_si512(B.keys[j] + 8);
      const __mmask16 before = j < i ? both(_mm512_cmpge_epi64_mask(its_low, low),
                                            _mm512_cmpge_epi64_mask(its_high, high))
                                     : both(_mm512_cmpgt_epi64_mask(its_low, low),
                                            _mm512_cmpgt_epi64_mask(its_high, high));
      rank = _mm512_mask_add_epi32(rank, before, rank, one);
    }
    _mm512_store_si512(B.ranks[i], rank);
  }
}

// The minimal flipping sets.
template <int S>
inline __attribute__((noinline)) void minimal_block(const SweepParams& p, Block& B) {
  const std::int64_t others = slots<S>(p);
  const U16 no_size = _mm512_set1_epi64(kShort + 1);
  alignas(64) std::int32_t sizes[kLanes], labels[kLanes];
  U16 winner[2];
  __mmask8 flips[2], by_bias[2];
  for (int h = 0; h < 2; ++h) {
    U16 everything = _mm512_setzero_si512();
    for (std::int64_t i = 0; i < B.items; ++i) {
      __mmask16 some = B.present[i];
      if (B.any_massless) some &= inverse(B.massless[i]);
      everything =
          _mm512_mask_add_epi64(everything, half_lanes(some, h), everything, _mm512_set1_epi64(1));
    }
    Sizes best{no_size, _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_set1_pd(-kInf)};
    __mmask8 unsure = 0;
    for (std::int64_t s = 0; s < others; ++s) {
      unsure |= B.items <= 8 ? try_slot<8>(B, s, h, everything, best)
                             : try_slot<16>(B, s, h, everything, best);
    }
    B.odd |= static_cast<__mmask16>(unsure << (8 * h));
    flips[h] = _mm512_cmplt_epi64_mask(best.size, no_size);
    const __mmask8 never = static_cast<__mmask8>(~flips[h]);
    const __mmask16 leaves =
        _mm512_cmpneq_epi32_mask(_mm512_load_si512(B.label), _mm512_load_si512(B.bias_label));
    by_bias[h] = never & half_lanes(leaves, h);
    U16 size = _mm512_mask_mov_epi64(best.size, never, _mm512_set1_epi64(-1));
    size = _mm512_mask_mov_epi64(size, by_bias[h], everything);
    winner[h] = _mm512_mask_mov_epi64(best.winner, never, best.runner_up);
    store_half(sizes, h, size);
  }

  // The order by the winner's margins.
  keep_keys(B, [&](std::int64_t i, int h) {
    D8 margin = load_half(B.margins[0][i], h);
    for (std::int64_t s = 1; s < others; ++s) {
      const __mmask8 here = _mm512_cmpeq_epi64_mask(winner[h], _mm512_set1_epi64(s));
      margin = _mm512_mask_mov_pd(margin, here, load_half(B.margins[s][i], h));
    }
    const __mmask8 none = B.any_massless ? half_lanes(B.massless[i], h) : static_cast<__mmask8>(0);
    return ordered_words(_mm512_mask_mov_pd(margin, none, _mm512_set1_pd(-kInf)));
  });
  rank_block(B);
  if (p.minimal_order != nullptr) write_positions(B, p.minimal_order);

  // Labels, from the sums over the survivors.
  const U16 cut = _mm512_load_si512(sizes);
  PointSums<S, 1> sum;
  PointMasses<1> mass;
  sum_items<S, 1>(
      p, B,
      [&](int, std::int64_t j, int h) __attribute__((always_inline)) {
        return half_lanes(_mm512_cmple_epi32_mask(cut, _mm512_load_si512(B.ranks[j])), h);
      },
      sum, mass);
  for (int h = 0; h < 2; ++h) {
    __mmask8 close;
    const U16 decision = decide<S>(p, B, h, sum[0][h], mass[0][h], &close);
    B.odd |= static_cast<__mmask16>((close & flips[h]) << (8 * h));
    store_half(labels, h, _mm512_mask_mov_epi64(_mm512_set1_epi64(-1), flips[h], decision));
  }
  _mm512_store_si512(labels, _mm512_mask_load_epi32(_mm512_load_si512(labels),
                                                    both(by_bias[0], by_bias[1]), B.bias_label));
  for (std::int64_t l = 0; l < B.count; ++l) {
    if (p.minimal_size != nullptr) p.minimal_size[B.index[l]] = sizes[l];
    if (p.minimal_flip_label != nullptr) p.minimal_flip_label[B.index[l]] = labels[l];
  }
}
