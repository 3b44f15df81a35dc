// Instances of at most 16 items, sixteen at a time.
//
// Their items are projected in runs of many instances, since one alone would waste most lanes of a
// block. A run's short instances, sorted by length, form blocks of 16 that stay in the lanes from
// the scores to the results: floats in one vector, doubles in two. Nothing is reduced across lanes,
// next to no branch depends on the data, and a block costs what its longest instance does.
//   - Loads: four items of 16 instances are 16 pieces of a column, transposed inside the quarters
//     of four vectors, as in the projection.
//   - Ranks without a sort: an item's rank is the number of items before it, so that all pairs are
//     compared, by keys that are exact (words that ascend with the float64 key) and with ties by
//     position. The same comparison adds the margins of what ranks behind: an item's sums, and with
//     them the decision of the prefix that ends before it, need no order. This grows with the
//     square of the items; with 7 of them it is cheaper than a network and a scan in its order.
//   - Sums of lowered margins are floats (FloatRow in narrow.h: L = 2 t). Where some are negative,
//     the sums over the survivors are taken again.
// With u = 2^-24, t the near-tie tolerance and A the survivors' mass a sum of at most 16 lowered
// margins is off by at most 0.16 t A + 15 u (2 S A) < 0.8 t A. No negative sum: every margin is
// above (2 - 0.8) t A. A negative one: some margin is below 2.8 t A, thus below -3.2 t A where all
// margins read back are 4 t A from zero, and the class of the least is the decision where the next
// is 4 t A away. Everything else is left to the general way, which writes all of the instance's
// results again, like an instance that is not usual.
//
// Ladder, four rankings of 50,000 instances of about 7 items, C = 5 (one thread, ns an instance
// without the projection): one instance at a time, in registers, with reductions across lanes and
// loops over its items 260; in blocks of 8, instances in the lanes only of what is per instance,
// sorting networks, rows of 4 classes 155; all instances in the lanes, runs of 1,024 items 115;
// runs of 4,096, which leave fewer lanes empty, 100.

constexpr std::int64_t kShort = 16;  // items
constexpr int kLanes = 16;           // instances

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

// Sixteen instances. The slot s of class c is c, or c - 1 beyond the label.
struct Block {
  std::int64_t count;  // instances; the lanes beyond repeat the last one
  std::int64_t items;  // of the longest, made even
  std::int64_t index[kLanes], first[kLanes];
  std::int64_t offset[kLanes];  // of the first item in the run
  alignas(64) std::int32_t n[kLanes];
  __mmask16 present[kShort];   // instances that have item i
  __mmask16 massless[kShort];  // whose item i has no weight
  bool any_massless;
  __mmask16 odd;  // instances for the general way
  // By item.
  alignas(64) double e[kShort][kLanes];  // scores or weights as given
  alignas(64) double a[kShort][kLanes];
  alignas(64) float weight[kShort][kLanes];  // a rounded
  alignas(64) double gradient[kShort][kLanes];
  alignas(64) float contributions[15][kShort][kLanes];  // to class c + 1, less that to class 0
  alignas(64) float lowered[kShort][kShort][kLanes];    // margins by slot
  alignas(64) double margins[kShort][kShort][kLanes];   // the contract's, beside first flips
  // Of the ranking at hand.
  alignas(64) std::int64_t keys[kShort][kLanes];
  alignas(64) std::int32_t ranks[kShort][kLanes];
  alignas(64) float least[kShort][kLanes];  // of an item's sums
  // By instance.
  alignas(64) double smallest[kLanes];  // weight that is not zero
  alignas(64) double tolerance[kLanes];
  alignas(64) std::int32_t label[kLanes], bias_label[kLanes];
  alignas(64) double own_probability[kLanes], own_bias[kLanes];
  alignas(64) double probability[15][kLanes], bias[15][kLanes];  // of the slots
  alignas(64) double relative[15][kLanes];                       // z_c - z_y
};

FAE_INLINE __mmask16 both(__mmask8 low, __mmask8 high) { return _mm512_kunpackb(high, low); }
FAE_INLINE __mmask8 half_lanes(__mmask16 lanes, int h) {
  return static_cast<__mmask8>(lanes >> (8 * h));
}
FAE_INLINE __mmask16 inverse(__mmask16 lanes) { return static_cast<__mmask16>(~lanes); }
FAE_INLINE D8 wide_half(F16 x, int h) { return h == 0 ? low_half(x) : high_half(x); }
FAE_INLINE D8 load_half(const double (&x)[kLanes], int h) { return _mm512_load_pd(x + 8 * h); }
FAE_INLINE F16 load_rounded(const double (&x)[kLanes]) {
  return join(load_half(x, 0), load_half(x, 1));
}

// Keeps the compiler from loading x again for each use.
template <class T>
FAE_INLINE void loaded(T& x) {
  asm("" : "+v"(x));
}

// Slots; S where that is known, else 0.
template <int S>
FAE_INLINE std::int64_t slots(const SweepParams& p) {
  return S > 0 ? S : p.C - 1;
}

// Four items of each instance, item after item.
FAE_INLINE void gather_items(const Block& B, const float* column, std::int64_t item, F16 (&x)[4]) {
  const float* from = column + item;
  F16 r[4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    r[j] = _mm512_castps128_ps512(_mm_loadu_ps(from + B.offset[j]));
    r[j] = _mm512_mask_broadcast_f32x4(r[j], 0x00F0, _mm_loadu_ps(from + B.offset[4 + j]));
    r[j] = _mm512_mask_broadcast_f32x4(r[j], 0x0F00, _mm_loadu_ps(from + B.offset[8 + j]));
    r[j] = _mm512_mask_broadcast_f32x4(r[j], 0xF000, _mm_loadu_ps(from + B.offset[12 + j]));
  }
  transpose4(r, x);
}

// Scores or weights as given; returns the largest of each instance.
inline void load_block(const SweepParams& p, const float* scores, Block& B, D8 (&largest)[2]) {
  const D8 absent = _mm512_set1_pd(p.is_scores ? -kInf : 0.0);
  largest[0] = largest[1] = absent;
  const auto keep = [&](std::int64_t i, int h, D8 e) __attribute__((always_inline)) {
    e = _mm512_mask_mov_pd(absent, half_lanes(B.present[i], h), e);
    _mm512_store_pd(B.e[i] + 8 * h, e);
    largest[h] = _mm512_max_pd(largest[h], e);
  };
  if (p.attention_dtype == kFloat64) {
    for (std::int64_t i = 0; i < B.items; ++i) {
      alignas(64) double e[kLanes] = {};
      for (int l = 0; l < kLanes; ++l) {
        if (i >= B.n[l]) continue;
        load_elements(p.attention, p.attention_dtype, (B.first[l] + i) * p.attention_stride_t, 1, 1,
                      e + l);
      }
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) keep(i, h, load_half(e, h));
    }
    return;
  }
  for (std::int64_t i = 0; i < B.items; i += 4) {
    F16 x[4];
    gather_items(B, scores, i, x);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) keep(i + k, h, wide_half(x[k], h));
    }
  }
}

// Weights, and which instances are odd in them.
inline __attribute__((noinline)) void weigh(const SweepParams& p, const float* scores, Block& B) {
  D8 largest[2];
  load_block(p, scores, B, largest);
  const auto usual = [&](D8 e, int h) __attribute__((always_inline)) {
    return p.is_scores ? _mm512_cmp_pd_mask(_mm512_sub_pd(e, largest[h]),
                                            _mm512_set1_pd(-kUnderflowSpan), _CMP_GE_OQ)
                       : _mm512_cmp_pd_mask(e, _mm512_mul_pd(largest[h], _mm512_set1_pd(1e-280)),
                                            _CMP_GE_OQ);
  };
  D8 sum[2] = {_mm512_setzero_pd(), _mm512_setzero_pd()};
  __mmask16 suspects = 0;
  for (std::int64_t i = 0; i < B.items; ++i) {
    __mmask8 good[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const D8 e = load_half(B.e[i], h);
      good[h] = usual(e, h);
      const D8 w = p.is_scores ? exp_double(_mm512_sub_pd(e, largest[h])) : e;
      _mm512_store_pd(B.a[i] + 8 * h, w);
      sum[h] = _mm512_add_pd(sum[h], w);
    }
    suspects |= B.present[i] & inverse(both(good[0], good[1]));
  }
  D8 smallest[2];
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    sum[h] = _mm512_div_pd(_mm512_set1_pd(1), sum[h]);
    smallest[h] = _mm512_set1_pd(1);
  }
  for (std::int64_t i = 0; i < B.items; ++i) {
    D8 a[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      a[h] = _mm512_mul_pd(load_half(B.a[i], h), sum[h]);
      _mm512_store_pd(B.a[i] + 8 * h, a[h]);
      const __mmask8 some = _mm512_cmp_pd_mask(a[h], _mm512_setzero_pd(), _CMP_GT_OQ);
      smallest[h] = _mm512_mask_min_pd(smallest[h], some, smallest[h], a[h]);
    }
    _mm512_store_ps(B.weight[i], join(a[0], a[1]));
  }
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) _mm512_store_pd(B.smallest + 8 * h, smallest[h]);
  if (!p.is_scores) {
    __mmask8 fine[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      fine[h] = _mm512_cmp_pd_mask(largest[h], _mm512_set1_pd(1e250), _CMP_LE_OQ) &
                _mm512_cmp_pd_mask(largest[h], _mm512_set1_pd(1e-250), _CMP_GE_OQ);
    }
    B.odd |= inverse(both(fine[0], fine[1]));
  }
  B.any_massless = suspects != 0;
  if (suspects == 0) return;
  const D8 nothing = _mm512_set1_pd(p.is_scores ? -kInf : 0.0);
  __mmask16 massless = 0xFFFF;
  for (std::int64_t i = 0; i < B.items; ++i) {
    __mmask8 none[2], good[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const D8 e = load_half(B.e[i], h);
      none[h] = _mm512_cmp_pd_mask(e, nothing, _CMP_EQ_OQ);
      good[h] = none[h] | usual(e, h);
    }
    B.massless[i] = both(none[0], none[1]);
    massless &= B.massless[i];
    B.odd |= B.present[i] & inverse(both(good[0], good[1]));
  }
  B.odd |= massless;
}

// Contributions, sixteen instances in the lanes.
template <int S>
inline void load_contributions(const SweepParams& p, const float* columns, Block& B) {
  const std::int64_t others = slots<S>(p);
  for (std::int64_t i = 0; i < B.items; i += 4) {
    for (std::int64_t s = 0; s < others; ++s) {
      F16 x[4];
      gather_items(B, columns + (s + 1) * kRunPitch, i, x);
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) _mm512_store_ps(B.contributions[s][i + k], x[k]);
    }
  }
}

// Logits, label, probabilities, tolerance, status; results of theirs.
template <int S>
inline __attribute__((noinline)) void judge_originals(const Context& ctx, const float* norms,
                                                      Block& B) {
  const SweepParams& p = ctx.p;
  const std::int64_t C = slots<S>(p) + 1;
  F16 norm2 = _mm512_setzero_ps();
  for (std::int64_t i = 0; i < B.items; i += 4) {
    F16 x[4];
    gather_items(B, norms, i, x);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      norm2 = _mm512_mask_max_ps(norm2, B.present[i + k], norm2, x[k]);
      // The maximum of a number and NaN may be the number.
      B.odd |= _mm512_mask_cmp_ps_mask(B.present[i + k], x[k], x[k], _CMP_UNORD_Q);
    }
  }
  __mmask16 near = 0;
  alignas(64) float probabilities[16][kLanes];
  alignas(64) double logits[16][kLanes];  // less the contributions to class 0
  for (int h = 0; h < 2; ++h) {
    D8 z[16], bias[16], q[16];
    D8 largest_bias = _mm512_setzero_pd();
#pragma GCC unroll 5
    for (std::int64_t c = 0; c < C; ++c) {
      alignas(64) double b[8];
      if (p.head_bias_stride_b == 0) {
        load_elements(p.head_bias, p.head_bias_dtype, c, 1, 1, b);
        bias[c] = _mm512_set1_pd(b[0]);
      } else {
        for (int l = 0; l < 8; ++l) {
          load_elements(p.head_bias, p.head_bias_dtype,
                        B.index[8 * h + l] * p.head_bias_stride_b + c, 1, 1, b + l);
        }
        bias[c] = _mm512_load_pd(b);
      }
      z[c] = _mm512_setzero_pd();
      largest_bias = _mm512_max_pd(largest_bias, _mm512_abs_pd(bias[c]));
    }
    for (std::int64_t i = 0; i < B.items; ++i) {
      const D8 a = load_half(B.a[i], h);
      const __mmask8 lanes = half_lanes(B.present[i], h);
#pragma GCC unroll 5
      for (std::int64_t c = 1; c < C; ++c) {
        const D8 s = _mm512_cvtps_pd(_mm256_load_ps(B.contributions[c - 1][i] + 8 * h));
        z[c] = _mm512_mask3_fmadd_pd(a, s, z[c], lanes);
      }
    }
#pragma GCC unroll 5
    for (std::int64_t c = 0; c < C; ++c) z[c] = _mm512_add_pd(z[c], bias[c]);
    const D8 n2 = wide_half(norm2, h);
    const D8 size = _mm512_mul_pd(_mm512_sqrt_pd(n2), _mm512_set1_pd(ctx.max_head_norm));
    const D8 tolerance =
        _mm512_mul_pd(_mm512_set1_pd(kNearTieTolerance), _mm512_add_pd(size, largest_bias));
    // The smallest weight times what matters beside it must be a normal float by far.
    const D8 smallest = _mm512_mul_pd(load_half(B.smallest, h), tolerance);
    __mmask8 usual = _mm512_cmp_pd_mask(n2, _mm512_set1_pd(1e-30), _CMP_GT_OQ) &
                     _mm512_cmp_pd_mask(n2, _mm512_set1_pd(1e37), _CMP_LT_OQ) &
                     _mm512_cmp_pd_mask(size, _mm512_set1_pd(kMostContribution), _CMP_LT_OQ) &
                     _mm512_cmp_pd_mask(smallest, _mm512_set1_pd(1e-36), _CMP_GT_OQ) &
                     _mm512_cmp_pd_mask(tolerance, _mm512_set1_pd(1e30), _CMP_LT_OQ);
    D8 top = z[0], bias_top = bias[0];
#pragma GCC unroll 5
    for (std::int64_t c = 0; c < C; ++c) {
      usual &= _mm512_cmp_pd_mask(_mm512_sub_pd(z[c], z[c]), _mm512_setzero_pd(), _CMP_EQ_OQ);
      top = _mm512_max_pd(top, z[c]);
      bias_top = _mm512_max_pd(bias_top, bias[c]);
    }
    B.odd |= static_cast<__mmask16>(static_cast<__mmask8>(~usual) << (8 * h));
    U16 label = _mm512_setzero_si512(), bias_label = label;
    D8 own_bias = bias[0];
    D8 sum = _mm512_setzero_pd();
#pragma GCC unroll 5
    for (std::int64_t c = C - 1; c >= 0; --c) {
      const __mmask8 here = _mm512_cmp_pd_mask(z[c], top, _CMP_EQ_OQ);
      label = _mm512_mask_mov_epi64(label, here, _mm512_set1_epi64(c));
      own_bias = _mm512_mask_mov_pd(own_bias, here, bias[c]);
      bias_label = _mm512_mask_mov_epi64(
          bias_label, _mm512_cmp_pd_mask(bias[c], bias_top, _CMP_EQ_OQ), _mm512_set1_epi64(c));
      if (p.logits != nullptr) _mm512_store_pd(logits[c] + 8 * h, z[c]);
      z[c] = _mm512_sub_pd(z[c], top);
      q[c] = exp_double(z[c]);
    }
#pragma GCC unroll 5
    for (std::int64_t c = 0; c < C; ++c) sum = _mm512_add_pd(sum, q[c]);
    const D8 per_sum = _mm512_div_pd(_mm512_set1_pd(1), sum);
    _mm512_store_pd(B.tolerance + 8 * h, tolerance);
    _mm512_store_pd(B.own_bias + 8 * h, own_bias);
    _mm512_store_pd(B.own_probability + 8 * h, per_sum);
    _mm256_store_si256(reinterpret_cast<__m256i*>(B.label + 8 * h), _mm512_cvtepi64_epi32(label));
    _mm256_store_si256(reinterpret_cast<__m256i*>(B.bias_label + 8 * h),
                       _mm512_cvtepi64_epi32(bias_label));
#pragma GCC unroll 5
    for (std::int64_t c = 0; c < C; ++c) {
      q[c] = _mm512_mul_pd(q[c], per_sum);
      _mm256_store_ps(probabilities[c] + 8 * h, _mm512_cvtpd_ps(q[c]));
    }
    const D8 clear = _mm512_mul_pd(tolerance, _mm512_set1_pd(-(1 + 1e-9)));
    __mmask8 close = 0;
#pragma GCC unroll 5
    for (std::int64_t s = 0; s < C - 1; ++s) {
      const __mmask8 beyond = _mm512_cmple_epi64_mask(label, _mm512_set1_epi64(s));
      const D8 relative = _mm512_mask_mov_pd(z[s], beyond, z[s + 1]);
      close |= _mm512_cmp_pd_mask(relative, clear, _CMP_GT_OQ);
      _mm512_store_pd(B.relative[s] + 8 * h, relative);
      _mm512_store_pd(B.probability[s] + 8 * h, _mm512_mask_mov_pd(q[s], beyond, q[s + 1]));
      _mm512_store_pd(B.bias[s] + 8 * h, _mm512_mask_mov_pd(bias[s], beyond, bias[s + 1]));
    }
    near |= static_cast<__mmask16>(close << (8 * h));
  }
  for (std::int64_t l = 0; l < B.count; ++l) {
    const std::int64_t b = B.index[l];
    if (p.label != nullptr) p.label[b] = B.label[l];
    if (p.status != nullptr) {
      std::int64_t status = B.n[l] == 1 ? kSingle : StatusBit{};
      if ((near >> l & 1) != 0) status |= kNearTie;
      p.status[b] = status;
    }
    if (p.probabilities != nullptr) {
      float* to = static_cast<float*>(p.probabilities) + b * C;
#pragma GCC unroll 5
      for (std::int64_t c = 0; c < C; ++c) to[c] = probabilities[c][l];
    }
    if (p.logits != nullptr) {
      const auto weight = [&](std::int64_t i) { return B.a[i][l]; };
      const double first = first_class_sum(p, B.first[l], B.n[l], weight);
      float* to = static_cast<float*>(p.logits) + b * C;
      for (std::int64_t c = 0; c < C; ++c) to[c] = static_cast<float>(logits[c][l] + first);
    }
    for (std::int64_t i = 0; p.weights != nullptr && i < B.n[l]; ++i) {
      p.weights[B.first[l] + i] = B.a[i][l];
    }
  }
}

// Margins, lowered and, where they are wanted, as the contract has them; gradients. Slots up to a
// multiple of 4 are filled with zeros where their number is not known.
template <int S>
inline __attribute__((noinline)) void make_margins(const SweepParams& p, bool exact, Block& B) {
  const std::int64_t others = slots<S>(p);
  const U16 label = _mm512_load_si512(B.label);
  F16 apart[S > 0 ? S : 15];  // of the biases, lowered
  __mmask16 beyond[S > 0 ? S : 15], own_class[S > 0 ? S : 15];
#pragma GCC unroll 5
  for (std::int64_t s = 0; s < others; ++s) {
    beyond[s] = _mm512_cmple_epi32_mask(label, _mm512_set1_epi32(static_cast<int>(s)));
    own_class[s] = _mm512_cmpeq_epi32_mask(label, _mm512_set1_epi32(static_cast<int>(s + 1)));
    D8 difference[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      difference[h] =
          _mm512_fnmadd_pd(_mm512_set1_pd(2), load_half(B.tolerance, h),
                           _mm512_sub_pd(load_half(B.own_bias, h), load_half(B.bias[s], h)));
    }
    apart[s] = join(difference[0], difference[1]);
  }
  for (std::int64_t i = 0; i < B.items; ++i) {
    F16 own = _mm512_setzero_ps();
#pragma GCC unroll 5
    for (std::int64_t s = 0; s < others; ++s) {
      own = _mm512_mask_load_ps(own, own_class[s], B.contributions[s][i]);
    }
    const F16 a = _mm512_load_ps(B.weight[i]);
    D8 gradient[2] = {_mm512_setzero_pd(), _mm512_setzero_pd()};
    F16 below = _mm512_setzero_ps();  // the contribution to class s
#pragma GCC unroll 5
    for (std::int64_t s = 0; s < others; ++s) {
      const F16 above = _mm512_load_ps(B.contributions[s][i]);
      const F16 other = _mm512_mask_mov_ps(below, beyond[s], above);
      below = above;
      _mm512_store_ps(
          B.lowered[s][i],
          _mm512_maskz_mul_ps(B.present[i], a, _mm512_add_ps(_mm512_sub_ps(own, other), apart[s])));
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        const D8 mine = wide_half(own, h), its = wide_half(other, h);
        gradient[h] =
            _mm512_fmadd_pd(load_half(B.probability[s], h), _mm512_sub_pd(mine, its), gradient[h]);
        if (!exact) continue;
        const D8 difference = _mm512_sub_pd(_mm512_add_pd(mine, load_half(B.own_bias, h)),
                                            _mm512_add_pd(its, load_half(B.bias[s], h)));
        _mm512_store_pd(
            B.margins[s][i] + 8 * h,
            _mm512_maskz_mul_pd(half_lanes(B.present[i], h), load_half(B.a[i], h), difference));
      }
    }
    for (std::int64_t s = others; S == 0 && s % 4 != 0; ++s) {
      _mm512_store_ps(B.lowered[s][i], _mm512_setzero_ps());
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) _mm512_store_pd(B.margins[s][i] + 8 * h, _mm512_setzero_pd());
    }
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      _mm512_store_pd(B.gradient[i] + 8 * h,
                      _mm512_mul_pd(load_half(B.own_probability, h), gradient[h]));
    }
  }
}

FAE_INLINE U16 mix64_vector(U16 x) {
  x = _mm512_mullo_epi64(_mm512_xor_si512(x, _mm512_srli_epi64(x, 30)),
                         _mm512_set1_epi64(static_cast<long long>(0xBF58476D1CE4E5B9ull)));
  x = _mm512_mullo_epi64(_mm512_xor_si512(x, _mm512_srli_epi64(x, 27)),
                         _mm512_set1_epi64(static_cast<long long>(0x94D049BB133111EBull)));
  return _mm512_xor_si512(x, _mm512_srli_epi64(x, 31));
}

// The random stream of an instance (math.h) is mix64 of this and its id.
inline std::uint64_t order_stem(std::uint64_t seed, std::int64_t order) {
  constexpr std::uint64_t kGamma = 0x9E3779B97F4A7C15ull;
  return mix64(mix64(seed + kGamma) + static_cast<std::uint64_t>(order) + kGamma) + kGamma;
}
// Signed words that ascend with x, -0 equal to +0.
FAE_INLINE U16 ordered_words(D8 x) {
  const U16 bits = _mm512_castpd_si512(_mm512_add_pd(x, _mm512_setzero_pd()));
  return _mm512_xor_si512(bits, _mm512_srli_epi64(_mm512_srai_epi64(bits, 63), 1));
}

// Keys of all items, as words; those of absent items are below all others.
template <class Key>
FAE_INLINE void keep_keys(Block& B, Key key) {
  const std::int64_t items = B.items;
  const U16 least = _mm512_set1_epi64(static_cast<long long>(1ull << 63));
  for (std::int64_t i = 0; i < items; ++i) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      _mm512_store_si512(B.keys[i] + 8 * h,
                         _mm512_mask_mov_epi64(least, half_lanes(B.present[i], h), key(i, h)));
    }
  }
}

// The keys of ranking r.
inline __attribute__((noinline)) void make_keys(const SweepParams& p, Block& B, std::int64_t r) {
  switch (p.rankings[r]) {
    case kAttention:
      keep_keys(B, [&](std::int64_t i, int h) { return ordered_words(load_half(B.e[i], h)); });
      break;
    case kGradient:
      keep_keys(B,
                [&](std::int64_t i, int h) { return ordered_words(load_half(B.gradient[i], h)); });
      break;
    case kProduct:
      keep_keys(B, [&](std::int64_t i, int h) {
        return ordered_words(_mm512_mul_pd(load_half(B.a[i], h), load_half(B.gradient[i], h)));
      });
      break;
    default: {  // random, unsigned
      const U16 gamma = _mm512_set1_epi64(static_cast<long long>(0x9E3779B97F4A7C15ull));
      const U16 sign = _mm512_set1_epi64(static_cast<long long>(1ull << 63));
      const U16 stem =
          _mm512_set1_epi64(static_cast<long long>(order_stem(p.seed, p.ranking_args[r])));
      alignas(64) std::int64_t ids[kLanes];
      for (int l = 0; l < kLanes; ++l) ids[l] = p.ids[B.index[l]];
      U16 stream[2];
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        stream[h] = mix64_vector(_mm512_add_epi64(stem, _mm512_load_si512(ids + 8 * h)));
      }
      keep_keys(B, [&](std::int64_t, int h) {
        stream[h] = _mm512_add_epi64(stream[h], gamma);
        return _mm512_xor_si512(mix64_vector(stream[h]), sign);
      });
    }
  }
}

// Ranks of all items and the least of the sums over each and all that rank behind it, of G slots.
// Every second addition is a multiply-add, which other pipes do.
template <int G, bool kFirst>
inline __attribute__((noinline)) void scan_slots(Block& B, std::int64_t slot) {
  const std::int64_t items = B.items;
  const U16 one = _mm512_set1_epi32(1);
  F16 unit = _mm512_set1_ps(1.0f);
  loaded(unit);
  for (std::int64_t i = 0; i < items; i += 2) {
    U16 key[2][2], behind[2];
    F16 own[2][G], sum[2][G];
#pragma GCC unroll 2
    for (int u = 0; u < 2; ++u) {
      behind[u] = _mm512_setzero_si512();
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) key[u][h] = _mm512_load_si512(B.keys[i + u] + 8 * h);
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g)
        sum[u][g] = own[u][g] = _mm512_load_ps(B.lowered[slot + g][i + u]);
    }
    const auto add = [&](int u, __mmask16 lanes, const F16(&x)[G]) __attribute__((always_inline)) {
      if (kFirst) behind[u] = _mm512_mask_add_epi32(behind[u], lanes, behind[u], one);
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) {
        sum[u][g] = g % 2 == 0 ? _mm512_mask_add_ps(sum[u][g], lanes, sum[u][g], x[g])
                               : _mm512_mask3_fmadd_ps(x[g], unit, sum[u][g], lanes);
      }
    };
    // Adds item j to those that `behind` tells it is behind of.
    const auto compare = [&](std::int64_t j, auto behind_of) __attribute__((always_inline)) {
      U16 low = _mm512_load_si512(B.keys[j]), high = _mm512_load_si512(B.keys[j] + 8);
      loaded(low);
      loaded(high);
      F16 x[G];
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) {
        x[g] = _mm512_load_ps(B.lowered[slot + g][j]);
        loaded(x[g]);
      }
#pragma GCC unroll 2
      for (int u = 0; u < 2; ++u)
        add(u, both(behind_of(low, key[u][0]), behind_of(high, key[u][1])), x);
    };
    const __mmask16 in_order = both(_mm512_cmple_epi64_mask(key[1][0], key[0][0]),
                                    _mm512_cmple_epi64_mask(key[1][1], key[0][1]));
    add(0, in_order, own[1]);
    add(1, inverse(in_order), own[0]);
    for (std::int64_t j = 0; j < i; ++j) {
      compare(j, [](U16 a, U16 b) { return _mm512_cmplt_epi64_mask(a, b); });
    }
    for (std::int64_t j = i + 2; j < items; ++j) {
      compare(j, [](U16 a, U16 b) { return _mm512_cmple_epi64_mask(a, b); });
    }
#pragma GCC unroll 2
    for (int u = 0; u < 2; ++u) {
      F16 least = sum[u][0];
#pragma GCC unroll 4
      for (int g = 1; g < G; ++g) least = _mm512_min_ps(least, sum[u][g]);
      if (!kFirst) least = _mm512_min_ps(least, _mm512_load_ps(B.least[i + u]));
      _mm512_store_ps(B.least[i + u], least);
      if (!kFirst) continue;
      const U16 others = _mm512_set1_epi32(static_cast<int>(items - 1));
      _mm512_store_si512(B.ranks[i + u], _mm512_sub_epi32(others, behind[u]));
    }
  }
}

template <int S>
FAE_INLINE void scan_block(const SweepParams& p, Block& B) {
  if constexpr (S > 0) {
    scan_slots<S, true>(B, 0);
  } else {
    scan_slots<4, true>(B, 0);
    for (std::int64_t s = 4; s < slots<S>(p); s += 4) scan_slots<4, false>(B, s);
  }
}

// The items' positions in the order of their ranks.
inline void write_positions(const Block& B, std::int64_t* to) {
  for (std::int64_t l = 0; l < B.count; ++l) {
    for (std::int64_t i = 0; i < B.n[l]; ++i) to[B.first[l] + B.ranks[i][l]] = i;
  }
}

// First flips of ranking r.
template <int S>
inline __attribute__((noinline)) void resolve(const SweepParams& p, Block& B, std::int64_t r) {
  const std::int64_t items = B.items;
  const std::int64_t others = slots<S>(p);
  const F16 zero = _mm512_setzero_ps();
  const U16 label = _mm512_load_si512(B.label), bias_label = _mm512_load_si512(B.bias_label);
  const U16 never = _mm512_set1_epi32(-1);
  U16 first = _mm512_set1_epi32(kShort + 1);
  for (std::int64_t i = 0; i < items; ++i) {
    const __mmask16 negative = _mm512_cmp_ps_mask(_mm512_load_ps(B.least[i]), zero, _CMP_LT_OQ);
    first = _mm512_mask_min_epi32(first, negative, first, _mm512_load_si512(B.ranks[i]));
  }
  const __mmask16 flips = _mm512_cmple_epi32_mask(first, _mm512_set1_epi32(kShort));
  U16 last = _mm512_load_si512(B.n);
  if (B.any_massless) {
    last = _mm512_setzero_si512();
    for (std::int64_t i = 0; i < items; ++i) {
      const __mmask16 some = B.present[i] & inverse(B.massless[i]);
      last = _mm512_mask_max_epi32(
          last, some, last, _mm512_add_epi32(_mm512_load_si512(B.ranks[i]), _mm512_set1_epi32(1)));
    }
  }
  const U16 cut = _mm512_mask_mov_epi32(last, flips, first);
  D8 mass[2] = {_mm512_setzero_pd(), _mm512_setzero_pd()};
  F16 surviving = zero;
  F16 sums[S > 0 ? S : 15];
#pragma GCC unroll 4
  for (std::int64_t s = 0; s < others; ++s) sums[s] = zero;
  for (std::int64_t i = 0; i < items; ++i) {
    const __mmask16 erased = _mm512_cmplt_epi32_mask(_mm512_load_si512(B.ranks[i]), cut);
    const __mmask16 survive = inverse(erased);
    surviving = _mm512_mask_add_ps(surviving, survive, surviving, _mm512_load_ps(B.weight[i]));
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      mass[h] = _mm512_mask_add_pd(mass[h], half_lanes(erased, h), mass[h], load_half(B.a[i], h));
    }
#pragma GCC unroll 4
    for (std::int64_t s = 0; s < others; ++s) {
      sums[s] = _mm512_mask_add_ps(sums[s], survive, sums[s], _mm512_load_ps(B.lowered[s][i]));
    }
  }
  const F16 tolerance = load_rounded(B.tolerance);
  const F16 scaled = _mm512_mul_ps(surviving, tolerance);
  const F16 lowered = _mm512_add_ps(scaled, scaled);
  const F16 clear = _mm512_add_ps(lowered, lowered);
  F16 lowest = zero, second = zero;
  U16 decision = label;
  __mmask16 close = 0;
#pragma GCC unroll 5
  for (std::int64_t s = 0; s < others; ++s) {
    const F16 margin = _mm512_add_ps(sums[s], lowered);
    close |= _mm512_cmp_ps_mask(_mm512_abs_ps(margin), clear, _CMP_LT_OQ);
    const __mmask16 lower = _mm512_cmp_ps_mask(margin, lowest, _CMP_LT_OQ);
    second = _mm512_min_ps(second, _mm512_max_ps(margin, lowest));
    lowest = _mm512_min_ps(margin, lowest);
    const U16 slot = _mm512_set1_epi32(static_cast<int>(s));
    const U16 that = _mm512_mask_add_epi32(slot, _mm512_cmple_epi32_mask(label, slot), slot,
                                           _mm512_set1_epi32(1));
    decision = _mm512_mask_mov_epi32(decision, lower, that);
  }
  close |= _mm512_cmp_ps_mask(_mm512_sub_ps(second, lowest), clear, _CMP_LT_OQ);
  close |= _mm512_testn_epi32_mask(first, first);
  B.odd |= flips & close;
  const __mmask16 stays = _mm512_cmpeq_epi32_mask(label, bias_label);
  const __mmask16 ever = flips | inverse(stays);
  alignas(64) std::int32_t firsts[kLanes], labels[kLanes];
  alignas(64) double masses[kLanes];
  _mm512_store_si512(firsts, _mm512_mask_mov_epi32(never, ever, cut));
  _mm512_store_si512(labels, _mm512_mask_mov_epi32(_mm512_mask_mov_epi32(bias_label, stays, never),
                                                   flips, decision));
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    _mm512_store_pd(masses + 8 * h,
                    _mm512_mask_mov_pd(_mm512_set1_pd(kNan), half_lanes(ever, h), mass[h]));
  }
  for (std::int64_t l = 0; l < B.count; ++l) {
    const std::int64_t to = r * p.B + B.index[l];
    if (p.first_flip != nullptr) p.first_flip[to] = firsts[l];
    if (p.flip_label != nullptr) p.flip_label[to] = labels[l];
    if (p.removed_mass != nullptr) p.removed_mass[to] = masses[l];
  }
  if (p.order != nullptr) write_positions(B, p.order + r * p.T);
}

#include "cpu/avx512/short_extras.h"

// Sixteen instances.
template <int S>
inline void sweep_block(const Context& ctx, const RunMemory& run, Block& B) {
  const SweepParams& p = ctx.p;
  const bool single = wanted(p).single, minimal = wants_minimal(p), curves = wants_curves(p);
  const U16 n = _mm512_load_si512(B.n);
  for (int i = 0; i < kShort; ++i) {
    B.present[i] = _mm512_cmpgt_epi32_mask(n, _mm512_set1_epi32(i));
  }
  B.odd = 0;
  weigh(p, run.scores, B);
  load_contributions<S>(p, run.columns, B);
  judge_originals<S>(ctx, run.norm2, B);
  make_margins<S>(p, single || minimal || curves, B);
  Extras<S> extras;
  if (single || curves) prepare_distances<S>(p, B, extras);
  for (std::int64_t r = 0; r < p.R; ++r) {
    make_keys(p, B, r);
    scan_block<S>(p, B);
    resolve<S>(p, B, r);
    if (curves) draw_curves<S>(p, B, extras, r);
  }
  if (single) erase_each<S>(p, extras, B);
  if (minimal) minimal_block<S>(p, B);
}

// Instances begin + list[0 … count) of a projected run, the longest last; sets `general` where they
// are left to the general way.
template <int S>
inline void sweep_list(const Context& ctx, const RunMemory& run, std::int64_t begin,
                       const std::int16_t* list, std::int64_t count, unsigned char* general) {
  const SweepParams& p = ctx.p;
  Block B;
  for (std::int64_t k = 0; k < count; k += kLanes) {
    B.count = count - k < kLanes ? count - k : kLanes;
    for (int l = 0; l < kLanes; ++l) {
      const std::int64_t b = begin + list[l < B.count ? k + l : count - 1];
      B.index[l] = b;
      B.first[l] = p.offsets[b];
      B.offset[l] = B.first[l] - p.offsets[begin];
      B.n[l] = static_cast<std::int32_t>(p.offsets[b + 1] - p.offsets[b]);
    }
    B.items = (B.n[kLanes - 1] + 1) / 2 * 2;
    sweep_block<S>(ctx, run, B);
    for (std::int64_t l = 0; l < B.count; ++l) general[B.index[l] - begin] = B.odd >> l & 1;
  }
}

// The short instances of the projected run [begin, end); the others and those left are marked in
// `general`.
inline void sweep_short(const Context& ctx, const RunMemory& run, std::int64_t begin,
                        std::int64_t end, unsigned char* general) {
  const SweepParams& p = ctx.p;
  const auto length = [&](std::int64_t k) {
    return p.offsets[begin + k + 1] - p.offsets[begin + k];
  };
  std::int16_t list[kRun];
  std::int64_t at[kShort + 2] = {};  // where instances of n items begin
  for (std::int64_t k = 0; k < end - begin; ++k) {
    general[k] = length(k) == 0 || length(k) > kShort;
    if (general[k] == 0) ++at[length(k) + 1];
  }
  for (std::int64_t n = 1; n <= kShort + 1; ++n) at[n] += at[n - 1];
  const std::int64_t count = at[kShort + 1];
  for (std::int64_t k = 0; k < end - begin; ++k) {
    if (general[k] == 0) list[at[length(k)]++] = static_cast<std::int16_t>(k);
  }
  constexpr decltype(&sweep_list<0>) kTable[] = {sweep_list<1>, sweep_list<2>, sweep_list<3>,
                                                 sweep_list<4>, sweep_list<0>};
  kTable[p.C <= 5 ? p.C - 2 : 4](ctx, run, begin, list, count, general);
}
