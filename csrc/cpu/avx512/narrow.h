// Instances of at most 16 classes, one head, float32 contributions, erased from the front: the
// common case, with classes in the lanes of a row of margins.
//
// An item's row holds, for c != y, the margin lowered by the near-tie tolerance t,
//   m'_{i,c} = a_i [(s_{i,y} + b_y) - (s_{i,c} + b_c) - t],
// and a_i in column y. While every sum of m' is positive nothing flips and nothing is near a tie,
// so that one minimum and the sign bits decide a prefix. At the first negative sum the margins are
// read back, sum m = sum m' + t A; if one of them is within the tolerance, the ranking is scanned
// again with the margins of the contract (`exact_scan`). Everything unusual (not finite, scores
// that span too much, no mass at all) takes the general way.

constexpr std::int64_t kCheckpoint = 32;  // ranks between two checkpoints of the sums

// Weights of scores or weights that are all usual; false where the general way is needed.
inline bool load_narrow(const SweepParams& p, Instance& I) {
  const std::int64_t n = I.n;
  double* e = p.is_scores ? I.e : I.a;
  load_elements(p.attention, p.attention_dtype, I.first * p.attention_stride_t,
                p.attention_stride_t, n, e);
  const D8 infinity = _mm512_set1_pd(kInf), minus = _mm512_set1_pd(-kInf);
  D8 high = minus, low = infinity, sum = _mm512_setzero_pd();
  std::uint32_t odd = 0;
  std::int64_t absent = 0;
  if (n <= 0) return false;
  memset(I.massless, 0, n);
  for (std::int64_t i = 0; i < n; i += 8) {
    const __mmask8 lanes = first_lanes8(n - i);
    const D8 x = _mm512_maskz_loadu_pd(lanes, e + i);
    const __mmask8 none = p.is_scores
                              ? _mm512_mask_cmp_pd_mask(lanes, x, minus, _CMP_EQ_OQ)
                              : _mm512_mask_cmp_pd_mask(lanes, x, _mm512_setzero_pd(), _CMP_EQ_OQ);
    const __mmask8 some = lanes & static_cast<__mmask8>(~none);
    odd |= _mm512_mask_cmp_pd_mask(some, _mm512_sub_pd(x, x), _mm512_setzero_pd(), _CMP_NEQ_UQ);
    high = _mm512_mask_max_pd(high, some, high, x);
    low = _mm512_mask_min_pd(low, some, low, x);
    absent += __builtin_popcount(none);
    if (none != 0) {
      for (std::int64_t l = 0; l < 8 && i + l < n; ++l) I.massless[i + l] = none >> l & 1;
    }
  }
  if (absent == n || odd != 0) return false;
  const double largest = _mm512_reduce_max_pd(high), least = _mm512_reduce_min_pd(low);
  if (p.is_scores && largest - least > kUnderflowSpan) return false;
  if (!p.is_scores && (least < 0 || largest > 1e250 || largest < 1e-250)) return false;
  for (std::int64_t i = 0; i < n; i += 8) {
    const __mmask8 lanes = first_lanes8(n - i);
    D8 w = _mm512_maskz_loadu_pd(lanes, e + i);
    if (p.is_scores) w = exp_double(_mm512_sub_pd(w, _mm512_set1_pd(largest)));
    w = _mm512_maskz_mov_pd(lanes, w);
    _mm512_mask_storeu_pd(I.a + i, lanes, w);
    sum = _mm512_add_pd(sum, w);
  }
  const D8 total = _mm512_set1_pd(_mm512_reduce_add_pd(sum));
  for (std::int64_t i = 0; i < n; i += 8) {
    const __mmask8 lanes = first_lanes8(n - i);
    _mm512_mask_storeu_pd(I.a + i, lanes,
                          _mm512_div_pd(_mm512_maskz_loadu_pd(lanes, I.a + i), total));
  }
  I.with_mass = n - absent;
  return true;
}

inline void project_narrow(const SweepParams& p, Instance& I, std::int64_t begin,
                           std::int64_t end) {
  alignas(64) float converted[16 * kMaxSpan];
  const Projection out{I.packed_weights, I.columns, I.pitch, converted, nullptr};
  memset(I.columns + begin, 0, (end - begin) * sizeof *I.columns);  // class 0
  for (std::int64_t i = begin; i < end; i += kSlice) {
    const std::int64_t to = i + kSlice < end ? i + kSlice : end;
    I.norm2[i / kSlice] = project_columns_for(p.C)(p, out, I.first + i, I.first + to, i);
  }
}

// Label, probabilities, tolerance; false where the general way is needed.
inline bool originate_label(const SweepParams& p, double max_head_norm, Instance& I) {
  const std::int64_t C = p.C;
  if (I.bad_bias) return false;
  alignas(64) double z[16];
  D8 mass = _mm512_setzero_pd();
  for (std::int64_t i = 0; i < I.n; i += 8) {
    mass = _mm512_add_pd(mass, _mm512_maskz_loadu_pd(first_lanes8(I.n - i), I.a + i));
  }
  const double total = _mm512_reduce_add_pd(mass);
  z[0] = I.bias[0];
  for (std::int64_t c = 1; c < C; ++c) {
    const float* s = I.columns + c * I.pitch;
    D8 sum = _mm512_setzero_pd(), more = _mm512_setzero_pd();
    for (std::int64_t i = 0; i < I.n; i += 16) {
      const F16 x = _mm512_loadu_ps(s + i);
      const __mmask8 lanes = first_lanes8(I.n - i), next = first_lanes8(I.n - i - 8);
      sum = _mm512_mask3_fmadd_pd(_mm512_maskz_loadu_pd(lanes, I.a + i), low_half(x), sum, lanes);
      more =
          _mm512_mask3_fmadd_pd(_mm512_maskz_loadu_pd(next, I.a + i + 8), high_half(x), more, next);
    }
    z[c] = _mm512_reduce_add_pd(_mm512_add_pd(sum, more)) / total + I.bias[c];
    if (!is_finite(z[c])) return false;
  }
  I.label = 0;
  double largest_bias = 0;
  for (std::int64_t c = 0; c < C; ++c) {
    if (z[c] > z[I.label]) I.label = c;
    const double size = I.bias[c] < 0 ? -I.bias[c] : I.bias[c];
    largest_bias = size > largest_bias ? size : largest_bias;
  }
  const double top = z[I.label];
  const double size = largest_norm(p, I) * max_head_norm;
  if (!(size < kMostContribution)) return false;
  I.tolerance = kNearTieTolerance * (size + largest_bias);
  for (std::int64_t c = C; c < 16; ++c) z[c] = -kInf;
  D8 q[2], relative[2];
  for (int k = 0; k < 2; ++k) {
    relative[k] = _mm512_sub_pd(_mm512_load_pd(z + 8 * k), _mm512_set1_pd(top));
    q[k] = exp_double(relative[k]);
  }
  const double sum = _mm512_reduce_add_pd(_mm512_add_pd(q[0], q[1]));
  const double log_sum = log(sum);
  for (int k = 0; k < 2; ++k) {
    const __mmask8 lanes = first_lanes8(C - 8 * k);
    _mm512_mask_storeu_pd(I.probability + 8 * k, lanes, _mm512_div_pd(q[k], _mm512_set1_pd(sum)));
    _mm512_mask_storeu_pd(I.log_probability + 8 * k, lanes,
                          _mm512_sub_pd(relative[k], _mm512_set1_pd(log_sum)));
  }
  for (std::int64_t c = 0; c < C; ++c) {
    if (c != I.label && (top - z[c]) * total < I.tolerance * total * (1 + 1e-9))
      I.status |= kNearTie;
  }
  return true;
}

// Rows of lowered margins, from columns of contributions: two transposes of 8 by 8.
template <int V>
inline void margin_rows(const SweepParams& p, Instance& I) {
  const std::int64_t n = I.n;
  const float* own_column = I.columns + I.label * I.pitch;
  const double own_bias = I.bias[I.label];
  const D8 lower = _mm512_set1_pd(I.tolerance);
  for (std::int64_t i = 0; i < n; i += 8) {
    const std::int64_t count = n - i < 8 ? n - i : 8;
    const D8 a = _mm512_maskz_loadu_pd(first_lanes8(count), I.a + i);
    const D8 own =
        _mm512_add_pd(_mm512_cvtps_pd(_mm256_loadu_ps(own_column + i)), _mm512_set1_pd(own_bias));
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      D8 r[8];
#pragma GCC unroll 8
      for (int k = 0; k < 8; ++k) {
        const std::int64_t c = 8 * v + k;
        r[k] = _mm512_setzero_pd();
        if (c < p.C) {
          const D8 other =
              _mm512_add_pd(_mm512_cvtps_pd(_mm256_loadu_ps(I.columns + c * I.pitch + i)),
                            _mm512_set1_pd(I.bias[c]));
          r[k] = _mm512_mul_pd(a, _mm512_sub_pd(_mm512_sub_pd(own, other), lower));
          if (c == I.label) r[k] = a;
        }
      }
      transpose8(r);
      double* to = I.rows + i * 8 * V + 8 * v;
      if (count == 8) {
#pragma GCC unroll 8
        for (int k = 0; k < 8; ++k) _mm512_store_pd(to + k * 8 * V, r[k]);
      } else {
#pragma GCC unroll 8
        for (int k = 0; k < 8; ++k) {
          if (k < count) _mm512_store_pd(to + k * 8 * V, r[k]);
        }
      }
    }
  }
}

inline void gradient_narrow(const SweepParams& p, Instance& I) {
  const float* own_column = I.columns + I.label * I.pitch;
  const D8 own_probability = _mm512_set1_pd(I.probability[I.label]);
  for (std::int64_t i = 0; i < I.n; i += 8) {
    const D8 own = _mm512_cvtps_pd(_mm256_loadu_ps(own_column + i));
    D8 sum = _mm512_setzero_pd();
    for (std::int64_t c = 0; c < p.C; ++c) {
      const D8 other = _mm512_cvtps_pd(_mm256_loadu_ps(I.columns + c * I.pitch + i));
      sum = _mm512_fmadd_pd(_mm512_set1_pd(I.probability[c]), _mm512_sub_pd(own, other), sum);
    }
    _mm512_mask_storeu_pd(I.gradient + i, first_lanes8(I.n - i),
                          _mm512_mul_pd(own_probability, sum));
  }
}

// The contract's own sums over survivors, with margins computed on the way.
struct ExactSums {
  double sum[16] = {};
  double mass = 0;

  void add(const SweepParams& p, const Instance& I, std::int64_t i) {
    const double a = I.a[i];
    const double own = static_cast<double>(I.columns[I.label * I.pitch + i]) + I.bias[I.label];
    for (std::int64_t c = 0; c < p.C; ++c) {
      sum[c] += a * (own - (static_cast<double>(I.columns[c * I.pitch + i]) + I.bias[c]));
    }
    mass += a;
  }

  std::int64_t decide(const SweepParams& p, const Instance& I, bool* near) const {
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
};

// Walks from rank `from` down to rank `to` and keeps the first flip and the first near-tie met.
inline void exact_walk(const SweepParams& p, const Instance& I, const std::uint32_t* order,
                       std::int64_t from, std::int64_t to, ExactSums& sums, Flip* flip,
                       std::int64_t* nearest) {
  for (std::int64_t k = from - 1; k >= to; --k) {
    sums.add(p, I, order[k]);
    bool near = false;
    const std::int64_t decision = sums.decide(p, I, &near);
    if (near) *nearest = k;
    if (k > 0 && decision != I.label) {
      flip->first = k;
      flip->label = decision;
    }
  }
}

// All ranks, for rankings near a tie.
inline __attribute__((noinline)) Flip exact_scan(const SweepParams& p, const Instance& I,
                                                 const std::uint32_t* order) {
  Flip flip;
  std::int64_t nearest = -1;
  if (I.bias_label != I.label) {
    flip.first = I.n;
    flip.label = I.bias_label;
  }
  ExactSums sums;
  exact_walk(p, I, order, I.n, 0, sums, &flip, &nearest);
  flip.near = nearest >= 0 && (flip.first < 0 || nearest <= flip.first);
  return flip;
}

// Reads a row of lowered sums: whether every margin is clear of the tolerance, and the decision.
inline bool clear_decision(const SweepParams& p, const Instance& I, const double* sums,
                           std::int64_t* decision) {
  const double mass = sums[I.label];
  const double near = I.tolerance * mass * (1 + 1e-9);
  double least = 0;
  *decision = I.label;
  for (std::int64_t c = 0; c < p.C; ++c) {
    if (c == I.label) continue;
    const double margin = sums[c] + I.tolerance * mass;
    if (margin < near && -margin < near) return false;
    if (margin < least) {
      least = margin;
      *decision = c;
    }
  }
  return true;
}

struct NarrowWork {
  std::uint32_t* orders[kGroup];  // [n + 16]
  unsigned char* signs[kGroup];   // [n + 64] whether a lowered sum is negative at k
  double* checkpoints[kGroup];    // [n / kCheckpoint + 2, row]
  double* keys;                   // [n]
  std::uint64_t* words;           // [n]
  std::uint32_t* approximate;     // [max(n, kNetworkItems) + 32]
  std::uint32_t* packed;          // the same
  double* block;                  // [16, row] of single items
};

inline NarrowWork lay_out_narrow(const SweepParams& p, std::int64_t n, Arena& arena) {
  NarrowWork w{};
  const std::int64_t row = row_width(p.C);
  const std::int64_t group = p.R < kGroup ? p.R : kGroup;
  for (std::int64_t g = 0; g < group; ++g) {
    w.orders[g] = arena.take<std::uint32_t>(n + 16);
    w.signs[g] = arena.take<unsigned char>(n + 64);
    w.checkpoints[g] = arena.take<double>((n / kCheckpoint + 2) * row);
  }
  const std::int64_t slots = (n < kNetworkItems ? kNetworkItems : n) + 32;
  w.keys = arena.take<double>(n + 16);
  w.words = arena.take<std::uint64_t>(n + 16);
  w.approximate = arena.take<std::uint32_t>(slots);
  w.packed = arena.take<std::uint32_t>(slots);
  w.block = arena.take<double>(16 * row);
  return w;
}

// Adds rows from the tail of G orders on; leaves sign bytes and checkpoints.
template <int G, int V>
inline void scan_group(const Instance& I, const NarrowWork& w) {
  const std::int64_t n = I.n;
  const double* rows = I.rows;
  D8 sum[G][V];
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) sum[g][v] = _mm512_setzero_pd();
  }
  const auto step = [&](std::int64_t k) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) {
      const double* row = rows + static_cast<std::int64_t>(w.orders[g][k]) * (8 * V);
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) sum[g][v] = _mm512_add_pd(sum[g][v], _mm512_load_pd(row + 8 * v));
      D8 least = sum[g][0];
      if (V == 2) least = _mm512_min_pd(least, sum[g][V - 1]);
      w.signs[g][k] = static_cast<unsigned char>(_mm512_movepi64_mask(_mm512_castpd_si512(least)));
    }
  };
  const auto checkpoint = [&](std::int64_t k) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) {
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        _mm512_store_pd(w.checkpoints[g] + (k / kCheckpoint * V + v) * 8, sum[g][v]);
      }
    }
  };
  constexpr std::int64_t kAhead = 24;  // ranks; for instances beyond the second-level cache
  std::int64_t k = n - 1;
  for (; k >= 0 && (k + 1) % kCheckpoint != 0; --k) step(k);
  checkpoint(k + 1);
  const bool fetch = n > 2048;
  for (; k >= 0; k -= kCheckpoint) {
    for (std::int64_t j = k; j > k - kCheckpoint; --j) {
      if (fetch && j >= kAhead) {
#pragma GCC unroll 4
        for (int g = 0; g < G; ++g) {
          const double* row = rows + static_cast<std::int64_t>(w.orders[g][j - kAhead]) * (8 * V);
          __builtin_prefetch(row, 0, 3);
          if (V == 2) __builtin_prefetch(row + 8, 0, 3);
        }
      }
      step(j);
    }
    checkpoint(k + 1 - kCheckpoint);
  }
}

// The first k whose sign byte is set; n if none.
inline std::int64_t first_sign(const unsigned char* signs, std::int64_t n) {
  for (std::int64_t k = 0; k < n; k += 64) {
    const std::uint64_t lanes = n - k >= 64 ? ~0ull : (1ull << (n - k)) - 1;
    const std::uint64_t set =
        lanes & _mm512_test_epi8_mask(_mm512_loadu_si512(signs + k), _mm512_loadu_si512(signs + k));
    if (set != 0) return k + __builtin_ctzll(set);
  }
  return n;
}

// The row of lowered sums at rank k, from the checkpoint behind it.
template <int V>
inline void sums_at(const Instance& I, const NarrowWork& w, int g, std::int64_t k, double* sums) {
  const std::int64_t from = (k + kCheckpoint) / kCheckpoint * kCheckpoint;
  std::int64_t j = from < I.n ? from : I.n;
  D8 sum[V];
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
    sum[v] = from < I.n ? _mm512_load_pd(w.checkpoints[g] + (from / kCheckpoint * V + v) * 8)
                        : _mm512_setzero_pd();
  }
  while (--j >= k) {
    const double* row = I.rows + static_cast<std::int64_t>(w.orders[g][j]) * (8 * V);
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) sum[v] = _mm512_add_pd(sum[v], _mm512_load_pd(row + 8 * v));
  }
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) _mm512_storeu_pd(sums + 8 * v, sum[v]);
}

// Ranks at and beyond which no item has mass.
inline std::int64_t end_of_mass(const Instance& I, const std::uint32_t* order) {
  std::int64_t end = I.n;
  if (I.with_mass < I.n) {
    while (end > 0 && I.massless[order[end - 1]] != 0) --end;
  }
  return end;
}

// The exact sums over ranks `from` and beyond, items in the order of memory; `erased` is scratch
// for n + 8 bytes.
inline ExactSums exact_tail(const SweepParams& p, const Instance& I, const std::uint32_t* order,
                            std::int64_t from, unsigned char* erased) {
  memset(erased, 0, I.n + 8);
  for (std::int64_t k = 0; k < from; ++k) erased[order[k]] = 1;
  const float* own_column = I.columns + I.label * I.pitch;
  const D8 own_bias = _mm512_set1_pd(I.bias[I.label]);
  D8 sum[16];
  for (std::int64_t c = 0; c < p.C; ++c) sum[c] = _mm512_setzero_pd();
  D8 mass = _mm512_setzero_pd();
  for (std::int64_t i = 0; i < I.n; i += 8) {
    const __m128i gone = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(erased + i));
    const __mmask8 lanes =
        first_lanes8(I.n - i) & static_cast<__mmask8>(_mm_testn_epi8_mask(gone, gone));
    const D8 a = _mm512_maskz_loadu_pd(lanes, I.a + i);
    const D8 own = _mm512_add_pd(_mm512_cvtps_pd(_mm256_loadu_ps(own_column + i)), own_bias);
    mass = _mm512_add_pd(mass, a);
    for (std::int64_t c = 0; c < p.C; ++c) {
      const D8 other = _mm512_add_pd(_mm512_cvtps_pd(_mm256_loadu_ps(I.columns + c * I.pitch + i)),
                                     _mm512_set1_pd(I.bias[c]));
      sum[c] =
          _mm512_mask_add_pd(sum[c], lanes, sum[c], _mm512_mul_pd(a, _mm512_sub_pd(own, other)));
    }
  }
  ExactSums sums;
  for (std::int64_t c = 0; c < p.C; ++c) sums.sum[c] = _mm512_reduce_add_pd(sum[c]);
  sums.mass = _mm512_reduce_add_pd(mass);
  return sums;
}

// The flip of a ranking whose first negative lowered sum, at rank k, is near a tie or without mass.
// Long instances are walked only around the ranks with a negative sum; nothing elsewhere can flip
// or be near.
inline __attribute__((noinline)) Flip resolve_exactly(const SweepParams& p, const Instance& I,
                                                      const NarrowWork& w, int g, std::int64_t k) {
  constexpr std::int64_t kWorthIt = 512;  // items
  constexpr int kRounds = 4;
  const std::uint32_t* order = w.orders[g];
  if (I.n < kWorthIt) return exact_scan(p, I, order);
  std::int64_t nearest = -1;
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t end = (k + kCheckpoint) / kCheckpoint * kCheckpoint;
    const std::int64_t from = end < I.n ? end : I.n;
    ExactSums sums = exact_tail(p, I, order, from, reinterpret_cast<unsigned char*>(w.packed));
    Flip flip;
    std::int64_t near = -1;
    exact_walk(p, I, order, from, k, sums, &flip, &near);
    if (nearest < 0) nearest = near;
    if (flip.first < 0 && from < I.n) {
      const std::int64_t next = from + first_sign(w.signs[g] + from, I.n - from);
      if (next < I.n) {
        k = next;
        continue;
      }
    }
    if (flip.first < 0 && I.bias_label != I.label) {
      flip.first = end_of_mass(I, order);
      flip.label = I.bias_label;
    }
    flip.near = nearest >= 0 && (flip.first < 0 || nearest <= flip.first);
    return flip;
  }
  return exact_scan(p, I, order);
}

template <int V>
inline Flip resolve(const SweepParams& p, const Instance& I, const NarrowWork& w, int g) {
  const std::int64_t k = first_sign(w.signs[g], I.n);
  Flip flip;
  if (k < I.n) {
    alignas(64) double sums[8 * V];
    sums_at<V>(I, w, g, k, sums);
    if (k == 0 || sums[I.label] == 0 || !clear_decision(p, I, sums, &flip.label)) {
      return resolve_exactly(p, I, w, g, k);
    }
    flip.first = k;
  } else if (I.bias_label != I.label) {
    flip.first = end_of_mass(I, w.orders[g]);
    flip.label = I.bias_label;
  }
  return flip;
}

inline double mass_of_top(const Instance& I, const std::uint32_t* order, std::int64_t k) {
  double sum[4] = {};
  std::int64_t j = 0;
  for (; j + 4 <= k; j += 4) {
    for (int l = 0; l < 4; ++l) sum[l] += I.a[order[j + l]];
  }
  for (; j < k; ++j) sum[0] += I.a[order[j]];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}
