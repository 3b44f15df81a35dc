// Instances of at most 16 items, everything but the rows of margins in registers.
//
// Their items are projected in runs of many instances, since one alone would waste most lanes of a
// block. The columns of 8 items become rows of 8 classes by one transpose; the rows give the
// original logits (a multiply-add an item, in position order) and then the margins. Four orders are
// sorted side by side, a vector each, with the position in the low 4 bits, and scanned side by
// side.

constexpr std::int64_t kShort = 16;     // items
constexpr std::int64_t kRun = 512;      // items projected together
constexpr std::int64_t kRunItems = 64;  // longer instances are projected alone

// Whether instances of this call can be swept by `sweep_short`.
inline bool short_possible(const SweepParams& p) {
  if (!narrow_possible(p) || wants_curves(p) || p.R > kGroup || p.R == 0 || wants_minimal(p) ||
      wanted(p).single) {
    return false;
  }
  for (std::int64_t r = 0; r < p.R; ++r) {
    const std::int32_t kind = p.rankings[r];
    if (kind != kAttention && kind != kGradient && kind != kProduct && kind != kRandom)
      return false;
  }
  return true;
}

// Approximate keys of 16 float keys that rank descending, as in `approximate_keys`.
FAE_INLINE U16 approximate16(F16 keys) {
  const U16 bits = _mm512_castps_si512(_mm512_add_ps(keys, _mm512_setzero_ps()));
  const U16 sign = _mm512_srai_epi32(bits, 31);
  return _mm512_xor_si512(bits, _mm512_andnot_si512(sign, _mm512_set1_epi32(0x7FFFFFFF)));
}

FAE_INLINE U16 mix64_vector(U16 x) {
  x = _mm512_mullo_epi64(_mm512_xor_si512(x, _mm512_srli_epi64(x, 30)),
                         _mm512_set1_epi64(static_cast<long long>(0xBF58476D1CE4E5B9ull)));
  x = _mm512_mullo_epi64(_mm512_xor_si512(x, _mm512_srli_epi64(x, 27)),
                         _mm512_set1_epi64(static_cast<long long>(0x94D049BB133111EBull)));
  return _mm512_xor_si512(x, _mm512_srli_epi64(x, 31));
}

// The random keys of positions first … first + 7.
FAE_INLINE U16 random_keys(std::uint64_t stream, std::int64_t first) {
  const U16 position =
      _mm512_add_epi64(_mm512_setr_epi64(1, 2, 3, 4, 5, 6, 7, 8), _mm512_set1_epi64(first));
  const U16 gamma = _mm512_set1_epi64(static_cast<long long>(0x9E3779B97F4A7C15ull));
  return mix64_vector(_mm512_add_epi64(_mm512_set1_epi64(static_cast<long long>(stream)),
                                       _mm512_mullo_epi64(position, gamma)));
}

struct Short {
  alignas(64) double rows[kShort * 16];
  alignas(64) double keys[kGroup][kShort];  // exact keys, for repairs
  alignas(64) std::uint64_t words[kGroup][kShort];
  alignas(64) std::uint32_t orders[kGroup][kShort];
  alignas(64) unsigned char signs[kGroup][kShort];
  alignas(64) double probability[16];
};

// Whether the sums are clear of ties, and the decision: `clear_decision` on registers.
template <int V>
FAE_INLINE bool clear_vector(const D8 (&sum)[V], double tolerance, std::int64_t label,
                             std::int64_t C, std::int64_t* decision) {
  alignas(64) double sums[8 * V];
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) _mm512_store_pd(sums + 8 * v, sum[v]);
  const double mass = sums[label];
  const D8 scaled = _mm512_set1_pd(tolerance * mass);
  const D8 near = _mm512_set1_pd(tolerance * mass * (1 + 1e-9));
  D8 margin[V];
  D8 least = _mm512_setzero_pd();
  bool close = false;
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
    const __mmask8 others =
        first_lanes8(C - 8 * v) & static_cast<__mmask8>(~(label / 8 == v ? 1u << (label % 8) : 0u));
    margin[v] = _mm512_maskz_add_pd(others, sum[v], scaled);
    close =
        close || _mm512_mask_cmp_pd_mask(others, _mm512_abs_pd(margin[v]), near, _CMP_LT_OQ) != 0;
    least = _mm512_min_pd(least, margin[v]);
  }
  const D8 lowest = _mm512_set1_pd(_mm512_reduce_min_pd(least));
  unsigned equal = 0;
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
    equal |= static_cast<unsigned>(_mm512_cmp_pd_mask(margin[v], lowest, _CMP_EQ_OQ)) << (8 * v);
  }
  *decision = __builtin_ctz(equal);
  return !close;
}

// Contributions in columns (`pitch` apart) and squared norms of the instance's items.
template <int V, int N>
inline bool sweep_short(const Context& ctx, std::int64_t b, const float* columns,
                        std::int64_t pitch, const float* norms, const D8* bias_rows,
                        double largest_bias, std::int64_t bias_label) {
  const SweepParams& p = ctx.p;
  const std::int64_t C = p.C;
  const std::int64_t first = p.offsets[b];
  const std::int64_t n = p.offsets[b + 1] - first;
  const __mmask16 items = first_lanes16(n);
  Short s;
  const Wanted want = wanted(p);

  // Weights.
  D8 e[N], a[N];
  if (p.attention_dtype == kFloat32 && p.attention_stride_t == 1) {
    const F16 x = _mm512_maskz_loadu_ps(items, static_cast<const float*>(p.attention) + first);
    e[0] = low_half(x);
    if (N == 2) e[N - 1] = high_half(x);
  } else {
    alignas(64) double loaded[kShort] = {};
    load_elements(p.attention, p.attention_dtype, first * p.attention_stride_t,
                  p.attention_stride_t, n, loaded);
#pragma GCC unroll 2
    for (int h = 0; h < N; ++h) e[h] = _mm512_load_pd(loaded + 8 * h);
  }
  unsigned massless = 0;
  D8 high = _mm512_set1_pd(-kInf), low = _mm512_set1_pd(kInf);
#pragma GCC unroll 2
  for (int h = 0; h < N; ++h) {
    const __mmask8 lanes = first_lanes8(n - 8 * h);
    const __mmask8 none =
        _mm512_mask_cmp_pd_mask(lanes, e[h], _mm512_set1_pd(p.is_scores ? -kInf : 0.0), _CMP_EQ_OQ);
    const __mmask8 some = lanes & static_cast<__mmask8>(~none);
    if (_mm512_mask_cmp_pd_mask(some, _mm512_sub_pd(e[h], e[h]), _mm512_setzero_pd(),
                                _CMP_NEQ_UQ)) {
      return false;
    }
    high = _mm512_mask_max_pd(high, some, high, e[h]);
    low = _mm512_mask_min_pd(low, some, low, e[h]);
    massless |= static_cast<unsigned>(none) << (8 * h);
  }
  const double largest = _mm512_reduce_max_pd(high), least = _mm512_reduce_min_pd(low);
  if (massless == items || (p.is_scores && largest - least > kUnderflowSpan) ||
      (!p.is_scores && (least < 0 || largest > 1e250 || largest < 1e-250))) {
    return false;
  }
  D8 total = _mm512_setzero_pd();
#pragma GCC unroll 2
  for (int h = 0; h < N; ++h) {
    a[h] = p.is_scores ? exp_double(_mm512_sub_pd(e[h], _mm512_set1_pd(largest))) : e[h];
    a[h] = _mm512_maskz_mov_pd(first_lanes8(n - 8 * h), a[h]);
    total = _mm512_add_pd(total, a[h]);
  }
  const D8 sum_of_weights = _mm512_set1_pd(_mm512_reduce_add_pd(total));
  alignas(64) double weights[kShort];
#pragma GCC unroll 2
  for (int h = 0; h < N; ++h) {
    a[h] = _mm512_div_pd(a[h], sum_of_weights);
    _mm512_store_pd(weights + 8 * h, a[h]);
  }

  // Rows of contributions plus bias, and the original logits.
  D8 z[V];
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
    z[v] = _mm512_setzero_pd();
#pragma GCC unroll 2
    for (int h = 0; h < N; ++h) {
      const __mmask8 lanes = first_lanes8(n - 8 * h);
      D8 r[8];
#pragma GCC unroll 8
      for (int k = 0; k < 8; ++k) {
        const std::int64_t c = 8 * v + k;
        r[k] = c < C ? _mm512_maskz_cvtps_pd(lanes, _mm256_loadu_ps(columns + c * pitch + 8 * h))
                     : _mm512_setzero_pd();
      }
      transpose8(r);
#pragma GCC unroll 8
      for (int k = 0; k < 8; ++k) {
        z[v] = _mm512_fmadd_pd(_mm512_set1_pd(weights[8 * h + k]), r[k], z[v]);
        _mm512_store_pd(s.rows + (8 * h + k) * 8 * V + 8 * v, _mm512_add_pd(r[k], bias_rows[v]));
      }
    }
  }
  D8 top = _mm512_set1_pd(-kInf);
  unsigned odd = 0;
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
    const __mmask8 classes = first_lanes8(C - 8 * v);
    z[v] = _mm512_add_pd(z[v], bias_rows[v]);
    odd |= _mm512_cmp_pd_mask(_mm512_sub_pd(z[v], z[v]), _mm512_setzero_pd(), _CMP_NEQ_UQ);
    top = _mm512_mask_max_pd(top, classes, top, z[v]);
  }
  const F16 norm2 = _mm512_maskz_loadu_ps(items, norms);
  const float largest_norm2 = _mm512_reduce_max_ps(norm2);
  if (odd != 0 || !(largest_norm2 > 1e-30f && largest_norm2 < 1e37f)) return false;
  const double top_logit = _mm512_reduce_max_pd(top);
  unsigned at_top = 0;
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
    at_top |= static_cast<unsigned>(_mm512_mask_cmp_pd_mask(first_lanes8(C - 8 * v), z[v],
                                                            _mm512_set1_pd(top_logit), _CMP_EQ_OQ))
              << (8 * v);
  }
  const std::int64_t label = __builtin_ctz(at_top);
  const double tolerance =
      kNearTieTolerance *
      (sqrt(static_cast<double>(largest_norm2)) * ctx.max_head_norm + largest_bias);
  std::int64_t status = n == 1 ? kSingle : StatusBit{};
  D8 q[V];
  D8 q_sum = _mm512_setzero_pd();
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
    const __mmask8 classes = first_lanes8(C - 8 * v);
    const D8 relative = _mm512_sub_pd(z[v], _mm512_set1_pd(top_logit));
    const __mmask8 others =
        classes & static_cast<__mmask8>(~(label / 8 == v ? 1u << (label % 8) : 0u));
    if (_mm512_mask_cmp_pd_mask(others, relative, _mm512_set1_pd(-tolerance * (1 + 1e-9)),
                                _CMP_GT_OQ) != 0) {
      status |= kNearTie;
    }
    q[v] = _mm512_maskz_mov_pd(classes, exp_double(relative));
    q_sum = _mm512_add_pd(q_sum, q[v]);
  }
  const D8 q_total = _mm512_set1_pd(_mm512_reduce_add_pd(q_sum));
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
    q[v] = _mm512_div_pd(q[v], q_total);
    _mm512_store_pd(s.probability + 8 * v, q[v]);
    if (p.probabilities != nullptr) {
      _mm256_mask_storeu_ps(static_cast<float*>(p.probabilities) + b * C + 8 * v,
                            first_lanes8(C - 8 * v), _mm512_cvtpd_ps(q[v]));
    }
  }

  // Rows of lowered margins.
  {
    const U16 own_lane = _mm512_set1_epi64(label % 8);
    const D8 lower = _mm512_set1_pd(tolerance);
    for (std::int64_t i = 0; i < n; ++i) {
      double* row = s.rows + i * 8 * V;
      const D8 own =
          _mm512_permutexvar_pd(own_lane, _mm512_load_pd(row + (V == 2 ? label / 8 * 8 : 0)));
      const D8 weight = _mm512_set1_pd(weights[i]);
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        const __mmask8 mine = static_cast<__mmask8>(label / 8 == v ? 1u << (label % 8) : 0u);
        const D8 margin = _mm512_maskz_mul_pd(
            first_lanes8(C - 8 * v), weight,
            _mm512_sub_pd(_mm512_sub_pd(own, _mm512_load_pd(row + 8 * v)), lower));
        _mm512_store_pd(row + 8 * v, _mm512_mask_mov_pd(margin, mine, weight));
      }
    }
  }

  // Orders.
  D8 gradient[N];
  if (want.gradient) {
    const float* own_column = columns + label * pitch;
#pragma GCC unroll 2
    for (int h = 0; h < N; ++h) {
      const __mmask8 lanes = first_lanes8(n - 8 * h);
      const D8 own = _mm512_maskz_cvtps_pd(lanes, _mm256_loadu_ps(own_column + 8 * h));
      D8 sum = _mm512_setzero_pd();
      for (std::int64_t c = 0; c < C; ++c) {
        const D8 other = _mm512_maskz_cvtps_pd(lanes, _mm256_loadu_ps(columns + c * pitch + 8 * h));
        sum = _mm512_fmadd_pd(_mm512_set1_pd(s.probability[c]), _mm512_sub_pd(own, other), sum);
      }
      gradient[h] = _mm512_mul_pd(_mm512_set1_pd(s.probability[label]), sum);
    }
  }
  const std::int64_t R = p.R;
  U16 packed[kGroup];
  const U16 position = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const U16 low_bits = _mm512_set1_epi32(15);
  for (std::int64_t r = 0; r < kGroup; ++r) {
    if (r >= R) {
      packed[r] = position;
      continue;
    }
    U16 approximate;
    if (p.rankings[r] == kRandom) {
      const std::uint64_t stream = random_stream(p.seed, p.ranking_args[r], p.ids[b]);
      __m256i half[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
#pragma GCC unroll 2
      for (int h = 0; h < N; ++h) {
        const U16 words = random_keys(stream, 8 * h);
        _mm512_store_si512(s.words[r] + 8 * h, words);
        half[h] = _mm512_cvtepi64_epi32(_mm512_srli_epi64(words, 32));
      }
      approximate = _mm512_inserti64x4(_mm512_castsi256_si512(half[0]), half[1], 1);
      approximate = _mm512_xor_si512(approximate, _mm512_set1_epi32(-1));
    } else {
      D8 key[2] = {_mm512_setzero_pd(), _mm512_setzero_pd()};
#pragma GCC unroll 2
      for (int h = 0; h < N; ++h) {
        key[h] = p.rankings[r] == kAttention  ? e[h]
                 : p.rankings[r] == kGradient ? gradient[h]
                                              : _mm512_mul_pd(a[h], gradient[h]);
        _mm512_store_pd(s.keys[r] + 8 * h, key[h]);
      }
      approximate = approximate16(join(key[0], key[1]));
    }
    packed[r] = _mm512_mask_or_epi32(_mm512_set1_epi32(-1), items,
                                     _mm512_andnot_si512(low_bits, approximate), position);
  }
  U16 r4[kGroup][1] = {{packed[0]}, {packed[1]}, {packed[2]}, {packed[3]}};
#define FAE_EACH(step) \
  _Pragma("GCC unroll 4") for (int g = 0; g < kGroup; ++g) { step(r4[g]); }
  FAE_EACH((reverse_across<1, 1>))
  FAE_EACH((reverse_across<3, 1>))
  FAE_EACH((straight_across<1, 1>))
  FAE_EACH((reverse_across<7, 1>))
  FAE_EACH((straight_across<2, 1>))
  FAE_EACH((straight_across<1, 1>))
  if (N == 2) {
    FAE_EACH((reverse_across<15, 1>))
    FAE_EACH((straight_across<4, 1>))
    FAE_EACH((straight_across<2, 1>))
    FAE_EACH((straight_across<1, 1>))
  }
#undef FAE_EACH
  for (std::int64_t r = 0; r < R; ++r) {
    const U16 word = r4[r][0];
    _mm512_store_si512(s.orders[r], _mm512_and_si512(word, low_bits));
    const U16 difference = _mm512_xor_si512(word, _mm512_alignr_epi32(word, word, 1));
    unsigned equal =
        _mm512_mask_testn_epi32_mask(first_lanes16(n - 1), difference, _mm512_set1_epi32(-16));
    if (__builtin_expect(equal != 0, 0)) {
      const bool random = p.rankings[r] == kRandom;
      const KeySort sort{
          random ? nullptr : s.keys[r], random ? s.words[r] : nullptr, nullptr, nullptr, {}};
      while (equal != 0) {
        const int begin = __builtin_ctz(equal);
        const int length = __builtin_ctz(~(equal >> begin));
        repair(sort, s.orders[r], begin, begin + length + 1);
        equal &= ~(((1u << length) - 1) << begin);
      }
    }
  }

  // Scans, side by side.
#pragma GCC unroll 4
  for (int g = 0; g < kGroup; ++g)
    _mm_store_si128(reinterpret_cast<__m128i*>(s.signs[g]), _mm_setzero_si128());
  D8 sum[kGroup][V];
#pragma GCC unroll 4
  for (int g = 0; g < kGroup; ++g) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) sum[g][v] = _mm512_setzero_pd();
  }
  if (R < kGroup) {
    for (std::int64_t r = R; r < kGroup; ++r) _mm512_store_si512(s.orders[r], position);
  }
  for (std::int64_t k = n - 1; k >= 0; --k) {
#pragma GCC unroll 4
    for (int g = 0; g < kGroup; ++g) {
      const double* row = s.rows + s.orders[g][k] * (8 * V);
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) sum[g][v] = _mm512_add_pd(sum[g][v], _mm512_load_pd(row + 8 * v));
      D8 smallest = sum[g][0];
      if (V == 2) smallest = _mm512_min_pd(smallest, sum[g][V - 1]);
      s.signs[g][k] =
          static_cast<unsigned char>(_mm512_movepi64_mask(_mm512_castpd_si512(smallest)));
    }
  }
  for (std::int64_t r = 0; r < R; ++r) {
    const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(s.signs[r]));
    const unsigned negative = _mm_test_epi8_mask(bytes, bytes);
    Flip flip;
    if (negative != 0) {
      const std::int64_t k = __builtin_ctz(negative);
      D8 at[V];
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) at[v] = _mm512_setzero_pd();
      for (std::int64_t j = n - 1; j >= k; --j) {
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) {
          at[v] = _mm512_add_pd(at[v], _mm512_load_pd(s.rows + s.orders[r][j] * (8 * V) + 8 * v));
        }
      }
      if (k == 0 || !clear_vector<V>(at, tolerance, label, C, &flip.label)) return false;
      flip.first = k;
    } else if (bias_label != label) {
      std::int64_t end = n;
      while (massless >> s.orders[r][end - 1] & 1) --end;
      flip.first = end;
      flip.label = bias_label;
    }
    if (p.first_flip != nullptr) p.first_flip[r * p.B + b] = flip.first;
    if (p.flip_label != nullptr) p.flip_label[r * p.B + b] = flip.label;
    if (p.removed_mass != nullptr) {
      double mass = kNan;
      if (flip.first >= 0) {
        mass = 0;
        for (std::int64_t j = 0; j < flip.first; ++j) mass += weights[s.orders[r][j]];
      }
      p.removed_mass[r * p.B + b] = mass;
    }
    for (std::int64_t j = 0; p.order != nullptr && j < n; ++j) {
      p.order[r * p.T + first + j] = s.orders[r][j];
    }
  }
  if (p.label != nullptr) p.label[b] = label;
  if (p.status != nullptr) p.status[b] = status;
  return true;
}

inline bool sweep_short(const Context& ctx, std::int64_t b, const float* columns,
                        std::int64_t pitch, const float* norm2) {
  const SweepParams& p = ctx.p;
  alignas(64) double bias[16] = {};
  load_elements(p.head_bias, p.head_bias_dtype, b * p.head_bias_stride_b, 1, p.C, bias);
  double largest = 0;
  std::int64_t label = 0;
  for (std::int64_t c = 0; c < p.C; ++c) {
    if (bias[c] > bias[label]) label = c;
    const double size = bias[c] < 0 ? -bias[c] : bias[c];
    largest = size > largest ? size : largest;
  }
  const D8 rows[2] = {_mm512_load_pd(bias), _mm512_load_pd(bias + 8)};
  const bool half = p.offsets[b + 1] - p.offsets[b] <= 8;
  if (p.C <= 8) {
    return half ? sweep_short<1, 1>(ctx, b, columns, pitch, norm2, rows, largest, label)
                : sweep_short<1, 2>(ctx, b, columns, pitch, norm2, rows, largest, label);
  }
  return half ? sweep_short<2, 1>(ctx, b, columns, pitch, norm2, rows, largest, label)
              : sweep_short<2, 2>(ctx, b, columns, pitch, norm2, rows, largest, label);
}

// What a thread keeps for runs of short instances.
struct RunMemory {
  float* columns;  // [C, kRun + 16]
  float* norm2;    // [kRun + 16]
};

inline RunMemory lay_out_run(const SweepParams& p, Arena& arena) {
  RunMemory run{};
  run.columns = arena.take<float>(p.C * (kRun + 16));
  run.norm2 = arena.take<float>(kRun + 16);
  return run;
}

// Projects the run of instances [b, end) that ends before a long one, after kRun items or with the
// chunk; returns the run's end, b itself where instance b is to be projected alone.
inline std::int64_t project_run(const SweepParams& p, const float* packed_weights,
                                const RunMemory& run, std::int64_t b, std::int64_t end) {
  std::int64_t to = b;
  while (to < end && p.offsets[to + 1] - p.offsets[to] <= kRunItems &&
         p.offsets[to + 1] - p.offsets[b] <= kRun) {
    ++to;
  }
  if (to == b) return b;
  alignas(64) float converted[16 * kMaxSpan];
  const Projection out{packed_weights, run.columns, kRun + 16, converted, run.norm2};
  project_columns_for(p.C)(p, out, p.offsets[b], p.offsets[to], 0);
  return to;
}
