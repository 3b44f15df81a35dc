// Instances of at most 16 items, eight at a time.
//
// Their items are projected in runs of many instances, since one alone would waste most lanes of a
// block. A run's instances of up to 8 items and those of 9 to 16 form blocks of 8, whose steps are
// loops of their own: one instance's steps depend on each other, the same step of eight instances
// does not, so that latencies overlap and next to no branch depends on the data.
//   - Sums over items and all that is per instance or class (maxima, logits, label, softmax, near
//     ties): instances in the lanes, 8 vectors reduced to one with 21 operations.
//   - Margins, gradients, keys: items in the lanes; two orders a vector are sorted side by side.
//   - Suffix sums: an item's row holds its lowered margins (narrow.h) against the classes other
//     than the label, in quarters of 4; four rankings side by side, all rows of sums kept.
//   - First flips: rankings in the lanes.
// Ladder, four rankings of 50,000 instances of about 7 items, C = 5 (one thread, ns an instance
// without the projection): one instance at a time, in registers, with reductions across lanes and
// loops over its items 260; in blocks, with rows of 4 classes 140.
// An instance that is not usual, or nearer to a tie than this can tell, is left to the general way,
// which writes all of its results again.

constexpr std::int64_t kShort = 16;     // items
constexpr std::int64_t kRun = 512;      // items, or instances, projected together
constexpr std::int64_t kRunItems = 64;  // longer instances are projected alone
constexpr int kBlock = 8;               // instances

using D4 = __m256d;

// Whether instances of this call can be swept in blocks.
inline bool short_possible(const SweepParams& p) {
  if (!narrow_possible(p)) return false;
  for (std::int64_t r = 0; r < p.R; ++r) {
    const std::int32_t kind = p.rankings[r];
    if (kind != kAttention && kind != kGradient && kind != kProduct && kind != kRandom)
      return false;
  }
  return true;
}

// Eight instances. Q quarters of 4 classes other than the label ("slots"), N vectors of 8 items.
// The slot s of class c is c, or c - 1 beyond the label.
template <int Q, int N>
struct Block {
  static constexpr int kItems = 8 * N;
  static constexpr int kSlots = 4 * Q;
  // Of each instance.
  std::int64_t index[kBlock], first[kBlock], n[kBlock];
  const float* columns[kBlock];
  const float* norm2[kBlock];
  alignas(64) double e[kBlock][kItems];  // scores or weights as given
  alignas(64) double a[kBlock][kItems];
  alignas(64) double gradient[kBlock][kItems];
  alignas(64) double margins[kBlock][kSlots][kItems];  // lowered
  alignas(64) double rows[kBlock][Q][kItems][4];       // the same by item
  alignas(64) std::uint32_t orders[kBlock][kGroup][kItems];
  alignas(64) double sums[kBlock][kGroup][Q][kItems][4];  // over ranks k and beyond
  std::uint64_t negative[kBlock][kGroup];                 // 4 bits a k: signs of the least quarter
  std::uint32_t massless[kBlock];                         // a bit an item
  // Instances in the lanes.
  alignas(64) double tolerance[kBlock];
  alignas(64) double own_probability[kBlock];
  alignas(64) double probability[kSlots][kBlock];
  alignas(64) double own_bias[kBlock];
  alignas(64) double bias[kSlots][kBlock];
  alignas(64) double relative[kSlots][kBlock];  // z_c - z_y
  alignas(64) std::int64_t label[kBlock];
  alignas(64) std::int64_t bias_label[kBlock];
  unsigned odd;  // instances for the general way

  __mmask16 items(int j) const { return first_lanes16(n[j]); }
  // Of vector h of instance j's items.
  __mmask8 lanes(int j, int h) const { return first_lanes8(n[j] - 8 * h); }
};

struct Maximum {
  FAE_INLINE D8 operator()(D8 a, D8 b) const { return _mm512_max_pd(a, b); }
};
struct Sum {
  FAE_INLINE D8 operator()(D8 a, D8 b) const { return _mm512_add_pd(a, b); }
};

// Lane j of the result is vector j reduced.
template <class Op>
FAE_INLINE D8 across8(const D8 (&x)[8], Op op) {
  D8 t[4], u[2];
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    t[k] =
        op(_mm512_unpacklo_pd(x[2 * k], x[2 * k + 1]), _mm512_unpackhi_pd(x[2 * k], x[2 * k + 1]));
  }
#pragma GCC unroll 2
  for (int k = 0; k < 2; ++k) {
    u[k] = op(_mm512_shuffle_f64x2(t[2 * k], t[2 * k + 1], 0x88),
              _mm512_shuffle_f64x2(t[2 * k], t[2 * k + 1], 0xDD));
  }
  return op(_mm512_shuffle_f64x2(u[0], u[1], 0x88), _mm512_shuffle_f64x2(u[0], u[1], 0xDD));
}

// Weights, and which instances are odd in them.
template <int Q, int N>
inline void weigh(const SweepParams& p, Block<Q, N>& B) {
  const D8 absent = _mm512_set1_pd(p.is_scores ? -kInf : 0.0);
  const bool plain = p.attention_dtype == kFloat32 && p.attention_stride_t == 1;
  D8 x[8];
  for (int j = 0; j < kBlock; ++j) {
    D8 e[N];
    if (plain) {
      const float* from = static_cast<const float*>(p.attention) + B.first[j];
#pragma GCC unroll 2
      for (int h = 0; h < N; ++h) {
        const __mmask8 lanes = B.lanes(j, h);
        e[h] = _mm512_mask_cvtps_pd(absent, lanes, _mm256_maskz_loadu_ps(lanes, from + 8 * h));
      }
    } else {
      alignas(64) double loaded[8 * N];
      load_elements(p.attention, p.attention_dtype, B.first[j] * p.attention_stride_t,
                    p.attention_stride_t, B.n[j], loaded);
#pragma GCC unroll 2
      for (int h = 0; h < N; ++h) {
        e[h] = _mm512_mask_loadu_pd(absent, B.lanes(j, h), loaded + 8 * h);
      }
    }
#pragma GCC unroll 2
    for (int h = 0; h < N; ++h) _mm512_store_pd(B.e[j] + 8 * h, e[h]);
    x[j] = N == 2 ? _mm512_max_pd(e[0], e[N - 1]) : e[0];
  }
  const D8 largest = across8(x, Maximum());
  alignas(64) double reference[kBlock];  // the largest score, or the least weight that is usual
  if (p.is_scores) {
    _mm512_store_pd(reference, largest);
  } else {
    _mm512_store_pd(reference, _mm512_mul_pd(largest, _mm512_set1_pd(1e-280)));
    const __mmask8 usual = _mm512_cmp_pd_mask(largest, _mm512_set1_pd(1e250), _CMP_LE_OQ) &
                           _mm512_cmp_pd_mask(largest, _mm512_set1_pd(1e-250), _CMP_GE_OQ);
    B.odd |= static_cast<__mmask8>(~usual);
  }
  std::uint32_t suspect[kBlock];
  std::uint32_t suspects = 0;
  for (int j = 0; j < kBlock; ++j) {
    const D8 from = _mm512_set1_pd(reference[j]);
    suspect[j] = 0;
#pragma GCC unroll 2
    for (int h = 0; h < N; ++h) {
      D8 w = _mm512_load_pd(B.e[j] + 8 * h);
      __mmask8 good;
      if (p.is_scores) {
        const D8 t = _mm512_sub_pd(w, from);
        good = _mm512_cmp_pd_mask(t, _mm512_set1_pd(-kUnderflowSpan), _CMP_GE_OQ);
        w = exp_double(t);
      } else {
        good = _mm512_cmp_pd_mask(w, from, _CMP_GE_OQ);
      }
      suspect[j] |= static_cast<std::uint32_t>(B.lanes(j, h) & ~good) << (8 * h);
      _mm512_store_pd(B.a[j] + 8 * h, w);
      x[j] = h == 0 ? w : _mm512_add_pd(x[j], w);
    }
    suspects |= suspect[j];
    B.massless[j] = 0;
  }
  alignas(64) double per_sum[kBlock];
  _mm512_store_pd(per_sum, _mm512_div_pd(_mm512_set1_pd(1), across8(x, Sum())));
  for (int j = 0; j < kBlock; ++j) {
#pragma GCC unroll 2
    for (int h = 0; h < N; ++h) {
      _mm512_store_pd(B.a[j] + 8 * h,
                      _mm512_mul_pd(_mm512_load_pd(B.a[j] + 8 * h), _mm512_set1_pd(per_sum[j])));
    }
  }
  for (int j = 0; suspects != 0 && j < kBlock; ++j) {
    for (int i = 0; i < B.n[j]; ++i) {
      const bool none = B.e[j][i] == (p.is_scores ? -kInf : 0.0);
      if (none) {
        B.massless[j] |= 1u << i;
      } else if ((suspect[j] >> i & 1) != 0) {
        B.odd |= 1u << j;
      }
    }
    if (B.massless[j] == B.items(j)) B.odd |= 1u << j;
  }
}

// Logits, label, probabilities, tolerance, status; results of theirs.
template <int Q, int N>
inline void judge_originals(const Context& ctx, Block<Q, N>& B) {
  const SweepParams& p = ctx.p;
  const std::int64_t C = p.C;
  constexpr std::int64_t kPitch = kRun + 16;
  constexpr int kClasses = 4 * Q + 1;
  D8 z[kClasses], bias[kClasses];
  D8 largest_bias = _mm512_setzero_pd();
#pragma GCC unroll 17
  for (int c = 0; c < kClasses; ++c) {
    if (c >= C) continue;
    D8 x[8];
    for (int j = 0; c > 0 && j < kBlock; ++j) {
      const float* column = B.columns[j] + c * kPitch;
      x[j] = _mm512_mul_pd(_mm512_load_pd(B.a[j]),
                           _mm512_maskz_cvtps_pd(B.lanes(j, 0), _mm256_loadu_ps(column)));
      if (N == 2) {
        x[j] = _mm512_fmadd_pd(_mm512_load_pd(B.a[j] + 8 * (N - 1)),
                               _mm512_maskz_cvtps_pd(B.lanes(j, 1), _mm256_loadu_ps(column + 8)),
                               x[j]);
      }
    }
    alignas(64) double b[kBlock];
    if (p.head_bias_stride_b == 0) {
      load_elements(p.head_bias, p.head_bias_dtype, c, 1, 1, b);
      bias[c] = _mm512_set1_pd(b[0]);
    } else {
      for (int j = 0; j < kBlock; ++j) {
        load_elements(p.head_bias, p.head_bias_dtype, B.index[j] * p.head_bias_stride_b + c, 1, 1,
                      b + j);
      }
      bias[c] = _mm512_load_pd(b);
    }
    z[c] = c > 0 ? _mm512_add_pd(across8(x, Sum()), bias[c]) : bias[c];
    largest_bias = _mm512_max_pd(largest_bias, _mm512_abs_pd(bias[c]));
  }
  D8 x[8];
  for (int j = 0; j < kBlock; ++j) {
    x[j] = _mm512_maskz_cvtps_pd(B.lanes(j, 0), _mm256_loadu_ps(B.norm2[j]));
    if (N == 2) {
      x[j] = _mm512_max_pd(x[j],
                           _mm512_maskz_cvtps_pd(B.lanes(j, 1), _mm256_loadu_ps(B.norm2[j] + 8)));
    }
  }
  const D8 norm2 = across8(x, Maximum());
  const D8 size = _mm512_mul_pd(_mm512_sqrt_pd(norm2), _mm512_set1_pd(ctx.max_head_norm));
  __mmask8 usual = _mm512_cmp_pd_mask(norm2, _mm512_set1_pd(1e-30), _CMP_GT_OQ) &
                   _mm512_cmp_pd_mask(norm2, _mm512_set1_pd(1e37), _CMP_LT_OQ) &
                   _mm512_cmp_pd_mask(size, _mm512_set1_pd(kMostContribution), _CMP_LT_OQ);
  D8 top = z[0], bias_top = bias[0];
#pragma GCC unroll 17
  for (int c = 0; c < kClasses; ++c) {
    if (c >= C) continue;
    usual &= _mm512_cmp_pd_mask(_mm512_sub_pd(z[c], z[c]), _mm512_setzero_pd(), _CMP_EQ_OQ);
    top = _mm512_max_pd(top, z[c]);
    bias_top = _mm512_max_pd(bias_top, bias[c]);
  }
  B.odd |= static_cast<__mmask8>(~usual);
  U16 label = _mm512_setzero_si512(), bias_label = label;
  D8 own_bias = bias[0];
#pragma GCC unroll 17
  for (int k = 0; k < kClasses; ++k) {
    const int c = kClasses - 1 - k;
    if (c >= C) continue;
    const __mmask8 here = _mm512_cmp_pd_mask(z[c], top, _CMP_EQ_OQ);
    label = _mm512_mask_mov_epi64(label, here, _mm512_set1_epi64(c));
    own_bias = _mm512_mask_mov_pd(own_bias, here, bias[c]);
    bias_label = _mm512_mask_mov_epi64(
        bias_label, _mm512_cmp_pd_mask(bias[c], bias_top, _CMP_EQ_OQ), _mm512_set1_epi64(c));
  }
  const D8 tolerance =
      _mm512_mul_pd(_mm512_set1_pd(kNearTieTolerance), _mm512_add_pd(size, largest_bias));
  _mm512_store_si512(B.label, label);
  _mm512_store_si512(B.bias_label, bias_label);
  _mm512_store_pd(B.tolerance, tolerance);
  _mm512_store_pd(B.own_bias, own_bias);

  const D8 clear = _mm512_mul_pd(tolerance, _mm512_set1_pd(-(1 + 1e-9)));
  D8 q[(kClasses + 7) / 8 * 8];
#pragma GCC unroll 24
  for (int c = 0; c < (kClasses + 7) / 8 * 8; ++c) q[c] = _mm512_setzero_pd();
  D8 sum = _mm512_setzero_pd();
#pragma GCC unroll 17
  for (int c = 0; c < kClasses; ++c) {
    if (c >= C) continue;
    z[c] = _mm512_sub_pd(z[c], top);
    q[c] = exp_double(z[c]);
    sum = _mm512_add_pd(sum, q[c]);
  }
  const D8 per_sum = _mm512_div_pd(_mm512_set1_pd(1), sum);
#pragma GCC unroll 17
  for (int c = 0; c < kClasses; ++c) {
    if (c < C) q[c] = _mm512_mul_pd(q[c], per_sum);
  }
  _mm512_store_pd(B.own_probability, per_sum);
  __mmask8 near = 0;
#pragma GCC unroll 16
  for (int s = 0; s < 4 * Q; ++s) {
    if (s >= C - 1) continue;
    const __mmask8 beyond = _mm512_cmple_epi64_mask(label, _mm512_set1_epi64(s));
    const D8 relative = _mm512_mask_mov_pd(z[s], beyond, z[s + 1]);
    near |= _mm512_cmp_pd_mask(relative, clear, _CMP_GT_OQ);
    _mm512_store_pd(B.relative[s], relative);
    _mm512_store_pd(B.probability[s], _mm512_mask_mov_pd(q[s], beyond, q[s + 1]));
    _mm512_store_pd(B.bias[s], _mm512_mask_mov_pd(bias[s], beyond, bias[s + 1]));
  }
#pragma GCC unroll 3
  for (int v = 0; v < (kClasses + 7) / 8; ++v) {
    if (p.probabilities == nullptr || 8 * v >= C) continue;
    D8 rows[8];
#pragma GCC unroll 8
    for (int c = 0; c < 8; ++c) rows[c] = q[8 * v + c];
    transpose8(rows);
    for (int j = 0; j < kBlock; ++j) {
      _mm256_mask_storeu_ps(static_cast<float*>(p.probabilities) + B.index[j] * C + 8 * v,
                            first_lanes8(C - 8 * v), _mm512_cvtpd_ps(rows[j]));
    }
  }
  for (int j = 0; j < kBlock; ++j) {
    if (p.label != nullptr) p.label[B.index[j]] = B.label[j];
    if (p.status != nullptr) {
      std::int64_t status = B.n[j] == 1 ? kSingle : StatusBit{};
      if ((near >> j & 1) != 0) status |= kNearTie;
      p.status[B.index[j]] = status;
    }
  }
}

// Four columns of 8 become 8 rows of 4, two a vector.
FAE_INLINE void rows_of_columns(const D8 (&c)[4], D8 (&rows)[4]) {
  const U16 low = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
  const U16 high = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
  const U16 first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const U16 second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  const D8 a = _mm512_permutex2var_pd(c[0], low, c[1]), b = _mm512_permutex2var_pd(c[2], low, c[3]);
  const D8 d = _mm512_permutex2var_pd(c[0], high, c[1]),
           e = _mm512_permutex2var_pd(c[2], high, c[3]);
  rows[0] = _mm512_permutex2var_pd(a, first, b);
  rows[1] = _mm512_permutex2var_pd(a, second, b);
  rows[2] = _mm512_permutex2var_pd(d, first, e);
  rows[3] = _mm512_permutex2var_pd(d, second, e);
}

// Gradients, columns and rows of lowered margins of one instance.
template <int Q, int N>
FAE_INLINE void lower_margins(const SweepParams& p, Block<Q, N>& B, int j, bool keep_columns) {
  constexpr std::int64_t kPitch = kRun + 16;
  const std::int64_t label = B.label[j];
#pragma GCC unroll 2
  for (int h = 0; h < N; ++h) {
    const __mmask8 lanes = B.lanes(j, h);
    const float* columns = B.columns[j] + 8 * h;
    const D8 own = _mm512_cvtps_pd(_mm256_loadu_ps(columns + label * kPitch));
    const D8 own_biased = _mm512_add_pd(own, _mm512_set1_pd(B.own_bias[j]));
    const D8 lower = _mm512_set1_pd(B.tolerance[j]);
    const D8 a = _mm512_load_pd(B.a[j] + 8 * h);
    D8 gradient = _mm512_setzero_pd();
#pragma GCC unroll 4
    for (int q = 0; q < Q; ++q) {
      D8 margin[4], row[4];
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        const int s = 4 * q + k;
        margin[k] = _mm512_setzero_pd();
        if (s >= p.C - 1) continue;
        const D8 other = _mm512_cvtps_pd(_mm256_loadu_ps(columns + (s + (s >= label)) * kPitch));
        gradient = _mm512_fmadd_pd(_mm512_set1_pd(B.probability[s][j]), _mm512_sub_pd(own, other),
                                   gradient);
        const D8 difference =
            _mm512_sub_pd(own_biased, _mm512_add_pd(other, _mm512_set1_pd(B.bias[s][j])));
        margin[k] = _mm512_maskz_mul_pd(lanes, a, _mm512_sub_pd(difference, lower));
      }
      if (keep_columns) {
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) _mm512_store_pd(B.margins[j][4 * q + k] + 8 * h, margin[k]);
      }
      rows_of_columns(margin, row);
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) _mm512_store_pd(B.rows[j][q][8 * h + 2 * k], row[k]);
    }
    _mm512_store_pd(B.gradient[j] + 8 * h,
                    _mm512_mul_pd(_mm512_set1_pd(B.own_probability[j]), gradient));
  }
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

// Approximate keys of 8 keys that rank descending, as in `approximate_keys`.
FAE_INLINE __m256i approximate8(D8 keys) {
  const __m256i bits =
      _mm256_castps_si256(_mm256_add_ps(_mm512_cvtpd_ps(keys), _mm256_setzero_ps()));
  const __m256i sign = _mm256_srai_epi32(bits, 31);
  return _mm256_xor_si256(bits, _mm256_andnot_si256(sign, _mm256_set1_epi32(0x7FFFFFFF)));
}

// Four lists of 8 N approximate keys, list after list, of `n` items each, become orders. Returns
// whether neighbours in list g have equal shortened keys, 16 bits a list.
template <int N>
FAE_INLINE std::uint64_t sort_four(const __m256i (&keys)[kGroup][N],
                                   const std::int64_t (&n)[kGroup], std::uint32_t* orders) {
  constexpr int kVectors = 2 * N;
  const U16 low_bits = _mm512_set1_epi32(8 * N - 1);
  const U16 position = N == 2
                           ? _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
                           : _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
  U16 r[kVectors][1];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const int g = 2 * v / N, next = (2 * v + 1) / N;
    const U16 key = _mm512_inserti64x4(_mm512_castsi256_si512(keys[g][0]), keys[next][N - 1], 1);
    const __mmask16 items =
        N == 2 ? first_lanes16(n[g]) : _mm512_kunpackb(first_lanes8(n[next]), first_lanes8(n[g]));
    r[v][0] = _mm512_mask_or_epi32(_mm512_set1_epi32(-1), items, _mm512_andnot_si512(low_bits, key),
                                   position);
  }
#define FAE_EACH(step) \
  _Pragma("GCC unroll 4") for (int v = 0; v < kVectors; ++v) { step(r[v]); }
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
  std::uint64_t equal = 0;
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const U16 word = r[v][0];
    _mm512_store_si512(orders + 16 * v, _mm512_and_si512(word, low_bits));
    const U16 difference = _mm512_xor_si512(word, _mm512_alignr_epi32(word, word, 1));
    const std::uint64_t same = _mm512_testn_epi32_mask(difference, _mm512_set1_epi32(-8 * N));
    if (N == 2) {
      equal |= (same & first_lanes16(n[v % kGroup] - 1)) << (16 * v);
    } else {
      equal |= (same & first_lanes8(n[2 * v % kGroup] - 1)) << (32 * v) |
               (same >> 8 & first_lanes8(n[(2 * v + 1) % kGroup] - 1)) << (32 * v + 16);
    }
  }
  return equal;
}

// Sorts the runs of equal shortened keys of one list by exact key.
inline __attribute__((noinline)) void repair_list(const double* exact, const std::uint64_t* words,
                                                  unsigned equal, std::uint32_t* order) {
  const KeySort sort{exact, words, nullptr, nullptr, {}};
  while (equal != 0) {
    const int begin = __builtin_ctz(equal);
    const int length = __builtin_ctz(~(equal >> begin));
    repair(sort, order, begin, begin + length + 1);
    equal &= ~(((1u << length) - 1) << begin);
  }
}

// The random stream of an instance (math.h) in two parts, the first once a ranking.
inline std::uint64_t order_stem(std::uint64_t seed, std::int64_t order) {
  constexpr std::uint64_t kGamma = 0x9E3779B97F4A7C15ull;
  return mix64(mix64(seed + kGamma) + static_cast<std::uint64_t>(order) + kGamma) + kGamma;
}
inline std::uint64_t instance_stream(std::uint64_t stem, std::int64_t id) {
  return mix64(stem + static_cast<std::uint64_t>(id));
}

// The orders of rankings [begin, end) of instance j; `stems` are their random streams but for the
// instance's part.
template <int Q, int N>
FAE_INLINE void order_four(const SweepParams& p, Block<Q, N>& B, int j, std::int64_t begin,
                           std::int64_t end, const std::uint64_t (&stems)[kGroup]) {
  __m256i keys[kGroup][N];
#pragma GCC unroll 4
  for (int g = 0; g < kGroup; ++g) {
    const std::int32_t kind = begin + g < end ? p.rankings[begin + g] : kAttention;
    const std::uint64_t stream = instance_stream(stems[g], p.ids[B.index[j]]);
#pragma GCC unroll 2
    for (int h = 0; h < N; ++h) {
      if (kind == kRandom) {
        const U16 words = _mm512_srli_epi64(random_keys(stream, 8 * h), 32);
        keys[g][h] = _mm256_xor_si256(_mm512_cvtepi64_epi32(words), _mm256_set1_epi32(-1));
      } else {
        D8 key = _mm512_load_pd((kind == kAttention ? B.e[j] : B.gradient[j]) + 8 * h);
        if (kind == kProduct) key = _mm512_mul_pd(key, _mm512_load_pd(B.a[j] + 8 * h));
        keys[g][h] = approximate8(key);
      }
    }
  }
  const std::int64_t n[kGroup] = {B.n[j], B.n[j], B.n[j], B.n[j]};
  const std::uint64_t equal = sort_four<N>(keys, n, B.orders[j][0]);
  for (int g = 0; __builtin_expect(equal != 0, 0) && g < kGroup && begin + g < end; ++g) {
    const unsigned runs = equal >> (16 * g) & 0xFFFF;
    const std::int32_t kind = p.rankings[begin + g];
    if (kind == kRandom) {
      alignas(64) std::uint64_t words[8 * N];
      const std::uint64_t stream = instance_stream(stems[g], p.ids[B.index[j]]);
      for (int h = 0; h < N; ++h) _mm512_store_si512(words + 8 * h, random_keys(stream, 8 * h));
      repair_list(nullptr, words, runs, B.orders[j][g]);
    } else if (kind == kProduct) {
      double exact[8 * N];
      for (int i = 0; i < 8 * N; ++i) exact[i] = B.a[j][i] * B.gradient[j][i];
      repair_list(exact, nullptr, runs, B.orders[j][g]);
    } else {
      repair_list(kind == kAttention ? B.e[j] : B.gradient[j], nullptr, runs, B.orders[j][g]);
    }
  }
}

// Sums from the tail of the four orders of instance j on.
template <int Q, int N>
FAE_INLINE void scan_four(Block<Q, N>& B, int j) {
  D4 sum[kGroup][Q];
  std::uint64_t negative[kGroup];
#pragma GCC unroll 4
  for (int g = 0; g < kGroup; ++g) {
    negative[g] = 0;
#pragma GCC unroll 4
    for (int q = 0; q < Q; ++q) sum[g][q] = _mm256_setzero_pd();
  }
  const auto step = [&](std::int64_t k) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int g = 0; g < kGroup; ++g) {
      const std::uint64_t item = B.orders[j][g][k];
      D4 least = _mm256_setzero_pd();
#pragma GCC unroll 4
      for (int q = 0; q < Q; ++q) {
        sum[g][q] = _mm256_add_pd(sum[g][q], _mm256_load_pd(B.rows[j][q][item]));
        _mm256_store_pd(B.sums[j][g][q][k], sum[g][q]);
        least = q == 0 ? sum[g][q] : _mm256_min_pd(least, sum[g][q]);
      }
      negative[g] = negative[g] << 4 | static_cast<unsigned>(_mm256_movemask_pd(least));
    }
  };
  // Ranks beyond the items name rows of zeros.
  if (N == 1) {
#pragma GCC unroll 8
    for (int k = 7; k >= 0; --k) step(k);
  } else {
    for (std::int64_t k = (B.n[j] + 3) / 4 * 4 - 4; k >= 0; k -= 4) {
#pragma GCC unroll 4
      for (int l = 3; l >= 0; --l) step(k + l);
    }
  }
#pragma GCC unroll 4
  for (int g = 0; g < kGroup; ++g) B.negative[j][g] = negative[g];
}

FAE_INLINE void transpose4(D4 (&r)[4]) {
  const D4 a = _mm256_unpacklo_pd(r[0], r[1]), b = _mm256_unpackhi_pd(r[0], r[1]);
  const D4 c = _mm256_unpacklo_pd(r[2], r[3]), d = _mm256_unpackhi_pd(r[2], r[3]);
  r[0] = _mm256_permute2f128_pd(a, c, 0x20);
  r[1] = _mm256_permute2f128_pd(b, d, 0x20);
  r[2] = _mm256_permute2f128_pd(a, c, 0x31);
  r[3] = _mm256_permute2f128_pd(b, d, 0x31);
}

// The weights of instance j in the order of list g.
template <int Q, int N>
FAE_INLINE void ordered_weights(const Block<Q, N>& B, int j, const std::uint32_t* order,
                                D8 (&a)[N]) {
#pragma GCC unroll 2
  for (int h = 0; h < N; ++h) {
    const U16 index =
        _mm512_cvtepu32_epi64(_mm256_load_si256(reinterpret_cast<const __m256i*>(order + 8 * h)));
    a[h] = N == 1 ? _mm512_permutexvar_pd(index, _mm512_load_pd(B.a[j]))
                  : _mm512_permutex2var_pd(_mm512_load_pd(B.a[j]), index,
                                           _mm512_load_pd(B.a[j] + 8 * (N - 1)));
  }
}

// First flips of rankings [begin, end) of instance j, the rankings in the lanes.
template <int Q, int N>
FAE_INLINE void resolve_four(const SweepParams& p, Block<Q, N>& B, int j, std::int64_t begin,
                             std::int64_t end) {
  const std::int64_t label = B.label[j], bias_label = B.bias_label[j];
  const std::int64_t others = p.C - 1;
  alignas(32) std::int64_t first[kGroup], flip_label[kGroup];
  alignas(32) double mass[kGroup];
  std::int64_t at[kGroup];
  unsigned flipped = 0;
  D8 x[8];
#pragma GCC unroll 4
  for (int g = 0; g < kGroup; ++g) {
    const std::uint64_t negative = B.negative[j][g];
    const std::int64_t k = __builtin_ctzll(negative | 1ull << 63) / 4;
    std::int64_t last = B.n[j];
    if (__builtin_expect(B.massless[j] != 0, 0)) {
      while ((B.massless[j] >> B.orders[j][g][last - 1] & 1) != 0) --last;
    }
    flipped |= static_cast<unsigned>(negative != 0) << g;
    at[g] = negative != 0 ? k : 0;
    const std::int64_t cut = negative != 0 ? k : last;
    first[g] = negative != 0 || bias_label != label ? cut : -1;
    D8 a[N];
    ordered_weights(B, j, B.orders[j][g], a);
    const std::uint32_t erased = (1u << cut) - 1;
    x[g] = _mm512_maskz_mov_pd(static_cast<__mmask8>(erased), a[0]);
    x[4 + g] = _mm512_maskz_mov_pd(static_cast<__mmask8>(~erased), a[0]);
    if (N == 2) {
      const __mmask8 more = static_cast<__mmask8>(erased >> 8);
      x[g] = _mm512_mask_add_pd(x[g], more, x[g], a[N - 1]);
      x[4 + g] = _mm512_mask_add_pd(x[4 + g], static_cast<__mmask8>(~more), x[4 + g], a[N - 1]);
    }
  }
  const D8 both = across8(x, Sum());
  const D4 surviving = _mm512_extractf64x4_pd(both, 1);
  const D4 scaled = _mm256_mul_pd(surviving, _mm256_set1_pd(B.tolerance[j]));
  const D4 near = _mm256_mul_pd(scaled, _mm256_set1_pd(1 + 1e-9));
  D4 lowest = _mm256_setzero_pd();
  __m256i decision = _mm256_set1_epi64x(label);
  __mmask8 close = 0;
#pragma GCC unroll 4
  for (int q = 0; q < Q; ++q) {
    D4 sum[4];
#pragma GCC unroll 4
    for (int g = 0; g < kGroup; ++g) sum[g] = _mm256_load_pd(B.sums[j][g][q][at[g]]);
    transpose4(sum);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const int s = 4 * q + k;
      if (s >= others) continue;
      const D4 margin = _mm256_add_pd(sum[k], scaled);
      const D4 size = _mm256_andnot_pd(_mm256_set1_pd(-0.0), margin);
      close |= _mm256_cmp_pd_mask(size, near, _CMP_LT_OQ);
      const __mmask8 lower = _mm256_cmp_pd_mask(margin, lowest, _CMP_LT_OQ);
      lowest = _mm256_mask_mov_pd(lowest, lower, margin);
      decision = _mm256_mask_mov_epi64(decision, lower, _mm256_set1_epi64x(s + (s >= label)));
    }
  }
  const __mmask8 flips = static_cast<__mmask8>(flipped);
  const unsigned wanted_lanes = (1u << (end - begin)) - 1;  // the others repeat some ranking
  unsigned bad = flips & close;
#pragma GCC unroll 4
  for (int g = 0; g < kGroup; ++g) bad |= static_cast<unsigned>(first[g] == 0) << g;
  B.odd |= static_cast<unsigned>((bad & wanted_lanes) != 0) << j;
  const __m256i last_label = _mm256_set1_epi64x(bias_label != label ? bias_label : -1);
  _mm256_store_si256(reinterpret_cast<__m256i*>(flip_label),
                     _mm256_mask_mov_epi64(last_label, flips, decision));
  const __mmask8 never = static_cast<__mmask8>(bias_label != label ? 0 : ~flipped);
  _mm256_store_pd(mass,
                  _mm256_mask_mov_pd(_mm512_castpd512_pd256(both), never, _mm256_set1_pd(kNan)));
  for (std::int64_t r = begin; r < end; ++r) {
    const std::int64_t to = r * p.B + B.index[j];
    if (p.first_flip != nullptr) p.first_flip[to] = first[r - begin];
    if (p.flip_label != nullptr) p.flip_label[to] = flip_label[r - begin];
    if (p.removed_mass != nullptr) p.removed_mass[to] = mass[r - begin];
  }
}

// The order of list `order` as positions, to `to`.
template <int Q, int N>
FAE_INLINE void write_positions(const Block<Q, N>& B, int j, const std::uint32_t* order,
                                std::int64_t* to) {
#pragma GCC unroll 2
  for (int h = 0; h < N; ++h) {
    const __m256i positions = _mm256_load_si256(reinterpret_cast<const __m256i*>(order + 8 * h));
    _mm512_mask_storeu_epi64(to + B.first[j] + 8 * h, B.lanes(j, h),
                             _mm512_cvtepu32_epi64(positions));
  }
}

#include "cpu/avx512/short_extras.h"

// Eight instances; returns which of them are left to the general way, a bit each.
template <int Q, int N>
inline __attribute__((noinline)) unsigned sweep_block(const Context& ctx, Block<Q, N>& B) {
  const SweepParams& p = ctx.p;
  const bool single = wanted(p).single, minimal = wants_minimal(p), curves = wants_curves(p);
  B.odd = 0;
  const auto each = [](auto step) __attribute__((always_inline)) {
    for (int j = 0; j < kBlock; ++j) step(j);
  };
  weigh(p, B);
  judge_originals(ctx, B);
  each([&](int j) __attribute__((always_inline)) { lower_margins(p, B, j, single || minimal); });
  Extras<Q> extras;
  if (single || curves) prepare_distances(p, B, extras);
  for (std::int64_t begin = 0; begin < p.R; begin += kGroup) {
    const std::int64_t end = begin + kGroup < p.R ? begin + kGroup : p.R;
    std::uint64_t stems[kGroup] = {};
    for (std::int64_t r = begin; r < end; ++r) {
      stems[r - begin] = order_stem(p.seed, p.ranking_args[r]);
    }
    each([&](int j) __attribute__((always_inline)) { order_four(p, B, j, begin, end, stems); });
    each([&](int j) __attribute__((always_inline)) { scan_four(B, j); });
    each([&](int j) __attribute__((always_inline)) { resolve_four(p, B, j, begin, end); });
    if (curves) {
      for (int j = 0; j < kBlock; ++j) draw_curves(p, B, extras, j, begin, end);
    }
    for (std::int64_t r = begin; p.order != nullptr && r < end; ++r) {
      for (int j = 0; j < kBlock; ++j) {
        write_positions(B, j, B.orders[j][r - begin], p.order + r * p.T);
      }
    }
  }
  if (single) erase_each(p, B, extras);
  if (minimal) minimal_block(p, B);
  return B.odd;
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

// Projects the run of instances [b, end) that ends before a long one, after kRun items or instances
// or with the chunk; returns the run's end, b itself where instance b is to be projected alone.
inline std::int64_t project_run(const SweepParams& p, const float* packed_weights,
                                const RunMemory& run, std::int64_t b, std::int64_t end) {
  std::int64_t to = b;
  if (end - b > kRun) end = b + kRun;
  while (to < end && p.offsets[to + 1] - p.offsets[to] <= kRunItems &&
         p.offsets[to + 1] - p.offsets[b] <= kRun) {
    ++to;
  }
  if (to == b) return b;
  alignas(64) float converted[16 * kMaxSpan];
  memset(run.columns, 0, (kRun + 16) * sizeof *run.columns);  // class 0
  const Projection out{packed_weights, run.columns, kRun + 16, converted, run.norm2};
  project_columns_for(p.C)(p, out, p.offsets[b], p.offsets[to], 0);
  return to;
}

// Instances begin + list[0 … count) of a projected run; sets `general` where they are left to the
// general way. The last one fills up the last block.
template <int Q, int N>
inline __attribute__((noinline)) void sweep_list(const Context& ctx, const RunMemory& run,
                                                 std::int64_t begin, const std::int16_t* list,
                                                 std::int64_t count, unsigned char* general) {
  const SweepParams& p = ctx.p;
  Block<Q, N> B;
  for (std::int64_t k = 0; k < count; k += kBlock) {
    for (int j = 0; j < kBlock; ++j) {
      const std::int64_t b = begin + list[k + j < count ? k + j : count - 1];
      B.index[j] = b;
      B.first[j] = p.offsets[b];
      B.n[j] = p.offsets[b + 1] - p.offsets[b];
      B.columns[j] = run.columns + (B.first[j] - p.offsets[begin]);
      B.norm2[j] = run.norm2 + (B.first[j] - p.offsets[begin]);
    }
    const unsigned odd = sweep_block(ctx, B);
    for (int j = 0; odd != 0 && j < kBlock; ++j) general[B.index[j] - begin] |= odd >> j & 1;
  }
}

// The short instances of the projected run [begin, end); the others and those left are marked in
// `general`.
inline void sweep_short(const Context& ctx, const RunMemory& run, std::int64_t begin,
                        std::int64_t end, unsigned char* general) {
  const SweepParams& p = ctx.p;
  std::int16_t lists[2][kRun + 1];  // up to 8 items, up to 16
  std::int64_t count[2] = {0, 0};
  for (std::int64_t k = 0; k < end - begin; ++k) {
    const std::int64_t n = p.offsets[begin + k + 1] - p.offsets[begin + k];
    general[k] = n == 0 || n > kShort;
    lists[0][count[0]] = lists[1][count[1]] = static_cast<std::int16_t>(k);
    count[0] += n > 0 && n <= 8;
    count[1] += n > 8 && n <= kShort;
  }
  const auto sweep = [&](auto few, auto many) {
    few(ctx, run, begin, lists[0], count[0], general);
    many(ctx, run, begin, lists[1], count[1], general);
  };
  if (p.C <= 5) {
    sweep(sweep_list<1, 1>, sweep_list<1, 2>);
  } else if (p.C <= 9) {
    sweep(sweep_list<2, 1>, sweep_list<2, 2>);
  } else {
    sweep(sweep_list<4, 1>, sweep_list<4, 2>);
  }
}
