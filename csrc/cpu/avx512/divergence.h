// Divergences of 16 distributions at a time from the original one, from their rows of lowered sums.
//
// Each row gives z_c - z_y = -(sum m'_c / A + L). Rows are rounded to float32 and become columns (a
// transpose of 16 by 16, or of 16 by 8), and with q = softmax, m = (p + q) / 2
//   JS = sum_c [p_c log p_c / 2 + q_c log q_c / 2 - m_c log m_c],   KL = sum_c q_c (log q_c - log
//   p_c).
// The terms of JS are never negative before rounding; log q_c costs no logarithm a class, log m_c
// one. All logarithms are to base 2 until the end. Where some z_c exceeds z_y by more than 8, or
// the survivors' mass is very small, float32 would be too coarse, and the rows are divided in
// float64 and taken relative to their largest.
//
// Ladder, JS of every prefix of four rankings on 2,000 instances of n~300, C = 10 (1 thread, ns a
// prefix beyond the plain sweep): differences in float64, natural logarithms by a division 12.2;
// differences in float32 after the transpose, base 2, table for the logarithm 9.2.

struct Divergences {
  F16 js, kl, label_probability;
};

constexpr float kLightMass = 1e-30f;
constexpr float kLog2E = 1.44269504f;
constexpr float kLn2 = 0.693147181f;

// To base 2: p, p log p, log p, z_c - z_y where nothing survives; and what margins are lowered by.
struct Original {
  alignas(64) float p[16], p_log_p[16], log_p[16], bias[16];
  float lowered;
  bool light;  // some weight is so small that a sum of weights may round to nothing
};

inline void load_original(const SweepParams& p, const Instance& I, Original& o) {
  constexpr double kToBase2 = 1.44269504088896340736;
  for (std::int64_t c = 0; c < p.C; ++c) {
    const double log_p = I.log_probability[c] * kToBase2;
    const float probability = static_cast<float>(I.probability[c]);
    o.p[c] = probability > 1e-37f ? probability : 1e-37f;  // so that log m is finite
    o.p_log_p[c] = static_cast<float>(I.probability[c] * log_p);
    o.log_p[c] = static_cast<float>(log_p);
    o.bias[c] = static_cast<float>((I.bias[c] - I.bias[I.label]) * kToBase2);
  }
  o.lowered = static_cast<float>(-I.lowering * kToBase2);
  D8 least = _mm512_set1_pd(1);
  for (std::int64_t i = 0; i < I.n; i += 8) {
    const D8 a = _mm512_maskz_loadu_pd(first_lanes8(I.n - i), I.a + i);
    least =
        _mm512_mask_min_pd(least, _mm512_cmp_pd_mask(a, _mm512_setzero_pd(), _CMP_GT_OQ), least, a);
  }
  o.light = _mm512_reduce_min_pd(least) < kLightMass;
}

// Sixteen rows of sums, rounded, as columns.
template <int V>
FAE_INLINE void columns_of_sums(const double* rows, std::int64_t C, F16 (&t)[16]) {
  if constexpr (V == 2) {
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
      t[r] = join(_mm512_load_pd(rows + 16 * r), _mm512_load_pd(rows + 16 * r + 8));
    }
    transpose16(t);
  } else {
    F16 low[4], high[4];  // classes 0 … 3 and 4 … 7 of rows j, j + 4, j + 8, j + 12
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const F16 a = join(_mm512_load_pd(rows + 8 * j), _mm512_load_pd(rows + 8 * (j + 4)));
      const F16 b = join(_mm512_load_pd(rows + 8 * (j + 8)), _mm512_load_pd(rows + 8 * (j + 12)));
      low[j] = _mm512_shuffle_f32x4(a, b, 0x88);
      high[j] = _mm512_shuffle_f32x4(a, b, 0xDD);
    }
    transpose4(low, t);
    if (C > 4) transpose4(high, t + 4);
  }
}

// z_c - z_largest to base 2, divided in float64.
template <int V>
inline __attribute__((noinline)) void fine_columns(const SweepParams& p, const Instance& I,
                                                   const double* rows, F16 (&t)[16]) {
  const __mmask8 label[2] = {static_cast<__mmask8>(I.label < 8 ? 1 << I.label : 0),
                             static_cast<__mmask8>(I.label >= 8 ? 1 << (I.label - 8) : 0)};
  const D8 lower = _mm512_set1_pd(-I.lowering);
  const D8 to_base2 = _mm512_set1_pd(1.44269504088896340736);
  for (int r = 0; r < 16; ++r) {
    const double* row = rows + r * 8 * V;
    const double mass = row[I.label];
    D8 z[2] = {_mm512_setzero_pd(), _mm512_setzero_pd()};
    D8 largest = _mm512_set1_pd(-kInf);
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      const __mmask8 classes = first_lanes8(p.C - 8 * v);
      if (mass > 0) {
        z[v] = _mm512_fmadd_pd(_mm512_load_pd(row + 8 * v), _mm512_set1_pd(-1 / mass), lower);
      } else {  // no mass survives: the bias alone
        z[v] = _mm512_sub_pd(_mm512_maskz_loadu_pd(classes, I.bias + 8 * v),
                             _mm512_set1_pd(I.bias[I.label]));
      }
      z[v] = _mm512_mask_mov_pd(z[v], label[v], _mm512_setzero_pd());
      largest = _mm512_mask_max_pd(largest, classes, largest, z[v]);
    }
    const D8 high = _mm512_set1_pd(_mm512_reduce_max_pd(largest));
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) z[v] = _mm512_mul_pd(_mm512_sub_pd(z[v], high), to_base2);
    t[r] = join(z[0], z[1]);
  }
  transpose16(t);
}

// Divergences from the rows and their columns; these are destroyed.
template <int V, bool kWithKl>
inline Divergences diverge_rows(const SweepParams& p, const Instance& I, const Original& o,
                                const double* rows, F16 (&t)[16]) {
  const F16 zero = _mm512_setzero_ps();
  const F16 mass = t[I.label];
  const __mmask16 none = _mm512_cmp_ps_mask(mass, zero, _CMP_EQ_OQ);
  const __mmask16 little = _mm512_cmp_ps_mask(mass, _mm512_set1_ps(kLightMass), _CMP_NGE_UQ);
  const F16 per_mass =
      _mm512_maskz_div_ps(static_cast<__mmask16>(~none), _mm512_set1_ps(kLog2E), mass);
  F16 high = zero;
  for (std::int64_t c = 0; c < p.C; ++c) {
    const F16 from = _mm512_mask_mov_ps(_mm512_set1_ps(o.lowered), none, _mm512_set1_ps(o.bias[c]));
    t[c] = _mm512_fnmadd_ps(t[c], per_mass, from);
    high = _mm512_max_ps(high, t[c]);
  }
  t[I.label] = zero;
  if ((little != 0 && o.light) ||
      _mm512_cmp_ps_mask(high, _mm512_set1_ps(8 * kLog2E), _CMP_NLE_UQ) != 0) {
    fine_columns<V>(p, I, rows, t);
    high = zero;
  }
  F16 q[16];
  F16 sum = zero;
  for (std::int64_t c = 0; c < p.C; ++c) {
    t[c] = _mm512_sub_ps(t[c], high);
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
  for (std::int64_t c = 0; c < p.C; ++c) {
    const F16 qc = _mm512_mul_ps(q[c], scale);
    const F16 log_q = _mm512_sub_ps(t[c], log_sum);
    const F16 both = _mm512_add_ps(qc, _mm512_set1_ps(o.p[c]));
    const F16 term = _mm512_fmadd_ps(qc, log_q, _mm512_set1_ps(o.p_log_p[c]));
    const F16 log_m = log2_of_half(both, reciprocals, logarithms);
    js = _mm512_add_ps(js, _mm512_fnmadd_ps(both, log_m, term));
    if constexpr (kWithKl) {
      kl = _mm512_fmadd_ps(qc, _mm512_sub_ps(log_q, _mm512_set1_ps(o.log_p[c])), kl);
    }
  }
  js = _mm512_mul_ps(_mm512_max_ps(js, zero), _mm512_set1_ps(kLn2 / 2));
  kl = _mm512_mul_ps(_mm512_max_ps(kl, zero), _mm512_set1_ps(kLn2));
  return {_mm512_min_ps(js, _mm512_set1_ps(kLog2Below)), kl, _mm512_mul_ps(q[I.label], scale)};
}

inline bool wants_distances(const SweepParams& p) {
  return p.curve_js != nullptr || p.curve_kl != nullptr || p.curve_label_prob != nullptr;
}

// One ranking with its curves: 16 prefixes are summed into rows, then diverge together.
template <int V>
inline void scan_curves(const SweepParams& p, const Instance& I, const NarrowWork& w, int g,
                        std::int64_t r, const Original& o) {
  const std::int64_t n = I.n;
  const std::int64_t at = r * (p.T + p.B) + I.first + I.index;
  const bool distances = wants_distances(p);
  using Row = DoubleRow<V>;
  static_assert(kCheckpoint == 16, "a checkpoint and its sign for each block of prefixes");
  alignas(64) double rows[16 * 8 * V];
  D8 sum[V];
  clear_sums(sum);
  for (std::int64_t k0 = n / 16 * 16; k0 >= 0; k0 -= 16) {
    const std::int64_t count = n + 1 - k0 < 16 ? n + 1 - k0 : 16;
    for (std::int64_t j = 15; j >= 0; --j) {
      if (k0 + j < n) add_row<Row>(I, w.orders[g][k0 + j], sum);
      store_sums(rows + j * 8 * V, sum);
    }
    store_sums(w.checkpoints[g] + k0 / 16 * 8 * V, sum);
    F16 t[16];
    columns_of_sums<V>(rows, p.C, t);
    F16 any = t[0];
    for (std::int64_t c = 1; c < p.C; ++c) any = _mm512_or_ps(any, t[c]);
    w.signs[g][k0 / 16] = _mm512_movepi32_mask(_mm512_castps_si512(any)) != 0;
    if (p.curve_mass != nullptr) {
      for (std::int64_t j = 0; j < count; ++j) {
        p.curve_mass[at + k0 + j] = rows[j * 8 * V + I.label];
      }
    }
    if (!distances) continue;
    Divergences d = p.curve_kl != nullptr ? diverge_rows<V, true>(p, I, o, rows, t)
                                          : diverge_rows<V, false>(p, I, o, rows, t);
    if (k0 == 0) {  // nothing is erased: the original distribution itself
      d.js = _mm512_maskz_mov_ps(0xFFFE, d.js);
      d.kl = _mm512_maskz_mov_ps(0xFFFE, d.kl);
      d.label_probability =
          _mm512_mask_mov_ps(d.label_probability, 1, _mm512_set1_ps(o.p[I.label]));
    }
    const __mmask16 lanes = first_lanes16(count);
    const auto write = [&](void* to, F16 x) {
      if (to != nullptr) _mm512_mask_storeu_ps(static_cast<float*>(to) + at + k0, lanes, x);
    };
    write(p.curve_js, d.js);
    write(p.curve_kl, d.kl);
    write(p.curve_label_prob, d.label_probability);
  }
}
