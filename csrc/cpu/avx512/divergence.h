// Divergences of 16 distributions at a time from the original one, from their rows of lowered sums.
//
// Each row gives z_c - z_y = -(sum m'_c / A + t) in float64; in float32 the rows become columns (a
// transpose of 16 by 16), and with q = softmax, m = (p + q) / 2
//   JS = sum_c [p_c log p_c / 2 + q_c log q_c / 2 - m_c log m_c],   KL = sum_c q_c (log q_c - log
//   p_c).
// The terms of JS are never negative before rounding; log q_c costs no logarithm a class, log m_c
// one. Where some z_c exceeds z_y by more than 8, float32 differences would be too coarse, and the
// rows are taken relative to their largest.

struct Divergences {
  F16 js, kl, label_probability;
};

struct Original {
  alignas(64) float p[16], half_entropy[16], log_p[16];  // p, p log p / 2, log p
};

inline void load_original(const SweepParams& p, const Instance& I, Original& o) {
  for (std::int64_t c = 0; c < p.C; ++c) {
    o.p[c] = static_cast<float>(I.probability[c]);
    o.half_entropy[c] = static_cast<float>(0.5 * I.probability[c] * I.log_probability[c]);
    o.log_p[c] = static_cast<float>(I.log_probability[c]);
  }
}

template <int V>
inline void relative_columns(const SweepParams& p, const Instance& I, const double* rows,
                             bool to_largest, F16 (&t)[16]) {
  const __mmask8 label[2] = {static_cast<__mmask8>(I.label < 8 ? 1 << I.label : 0),
                             static_cast<__mmask8>(I.label >= 8 ? 1 << (I.label - 8) : 0)};
  const D8 lower = _mm512_set1_pd(-I.tolerance);
  for (int r = 0; r < 16; ++r) {
    const double* row = rows + r * 8 * V;
    const double mass = row[I.label];
    D8 z[2] = {_mm512_setzero_pd(), _mm512_setzero_pd()};
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      if (mass > 0) {
        z[v] = _mm512_fmadd_pd(_mm512_load_pd(row + 8 * v), _mm512_set1_pd(-1 / mass), lower);
      } else {  // no mass survives: the bias alone
        z[v] = _mm512_sub_pd(_mm512_maskz_loadu_pd(first_lanes8(p.C - 8 * v), I.bias + 8 * v),
                             _mm512_set1_pd(I.bias[I.label]));
      }
      z[v] = _mm512_mask_mov_pd(z[v], label[v], _mm512_setzero_pd());
    }
    if (to_largest) {
      D8 largest = _mm512_mask_mov_pd(_mm512_setzero_pd(), first_lanes8(p.C), z[0]);
      if (V == 2) largest = _mm512_mask_max_pd(largest, first_lanes8(p.C - 8), largest, z[1]);
      const D8 high = _mm512_set1_pd(_mm512_reduce_max_pd(largest));
      z[0] = _mm512_sub_pd(z[0], high);
      z[1] = _mm512_sub_pd(z[1], high);
    }
    t[r] = join(z[0], z[1]);
  }
  transpose16(t);
}

template <int V>
inline Divergences diverge_rows(const SweepParams& p, const Instance& I, const Original& o,
                                const double* rows) {
  F16 t[16];
  relative_columns<V>(p, I, rows, false, t);
  F16 high = _mm512_setzero_ps();
  for (std::int64_t c = 0; c < p.C; ++c) high = _mm512_max_ps(high, t[c]);
  if (_mm512_cmp_ps_mask(high, _mm512_set1_ps(8.0f), _CMP_NLE_UQ) != 0) {
    relative_columns<V>(p, I, rows, true, t);
    high = _mm512_setzero_ps();
  }
  F16 q[16];
  F16 sum = _mm512_setzero_ps();
  for (std::int64_t c = 0; c < p.C; ++c) {
    t[c] = _mm512_sub_ps(t[c], high);
    q[c] = exp_float(t[c]);
    sum = _mm512_add_ps(sum, q[c]);
  }
  const F16 scale = _mm512_div_ps(_mm512_set1_ps(1.0f), sum);
  const F16 log_sum = log_float(sum);
  const F16 half = _mm512_set1_ps(0.5f);
  F16 js = _mm512_setzero_ps(), kl = _mm512_setzero_ps();
  for (std::int64_t c = 0; c < p.C; ++c) {
    const F16 qc = _mm512_mul_ps(q[c], scale);
    const F16 log_q = _mm512_sub_ps(t[c], log_sum);
    const F16 m = _mm512_mul_ps(half, _mm512_add_ps(qc, _mm512_set1_ps(o.p[c])));
    const F16 log_m = log_float(_mm512_max_ps(m, _mm512_set1_ps(1e-37f)));
    F16 term = _mm512_fmadd_ps(_mm512_mul_ps(half, qc), log_q, _mm512_set1_ps(o.half_entropy[c]));
    term = _mm512_fnmadd_ps(m, log_m, term);
    js = _mm512_add_ps(js, term);
    kl = _mm512_fmadd_ps(qc, _mm512_sub_ps(log_q, _mm512_set1_ps(o.log_p[c])), kl);
  }
  js = _mm512_min_ps(_mm512_max_ps(js, _mm512_setzero_ps()), _mm512_set1_ps(kLog2Below));
  return {js, _mm512_max_ps(kl, _mm512_setzero_ps()), _mm512_mul_ps(q[I.label], scale)};
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
  alignas(64) double rows[16 * 8 * V];
  D8 sum[V];
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) sum[v] = _mm512_setzero_pd();
  for (std::int64_t k0 = n / 16 * 16; k0 >= 0; k0 -= 16) {
    const std::int64_t count = n + 1 - k0 < 16 ? n + 1 - k0 : 16;
    for (std::int64_t j = 15; j >= 0; --j) {
      const std::int64_t k = k0 + j;
      if (k < n) {
        const double* row = I.rows + static_cast<std::int64_t>(w.orders[g][k]) * (8 * V);
        D8 least = _mm512_setzero_pd();
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) {
          sum[v] = _mm512_add_pd(sum[v], _mm512_load_pd(row + 8 * v));
          least = v == 0 ? sum[v] : _mm512_min_pd(least, sum[v]);
        }
        w.signs[g][k] =
            static_cast<unsigned char>(_mm512_movepi64_mask(_mm512_castpd_si512(least)));
        if (k % kCheckpoint == 0) {
#pragma GCC unroll 2
          for (int v = 0; v < V; ++v) {
            _mm512_store_pd(w.checkpoints[g] + (k / kCheckpoint * V + v) * 8, sum[v]);
          }
        }
      }
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) _mm512_store_pd(rows + j * 8 * V + 8 * v, sum[v]);
      if (p.curve_mass != nullptr && k <= n) p.curve_mass[at + k] = rows[j * 8 * V + I.label];
    }
    if (!distances) continue;
    Divergences d = diverge_rows<V>(p, I, o, rows);
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
