// Every item erased alone: the sum of all rows less the item's, 16 items' divergences at a time.
//
// The difference is as good as the sum over the others while they hold half of the mass; the item
// that outweighs the others, if there is one, is left out of a sum of its own.
//
// Ladder, flip, JS and drop of 2,000 instances of n~300, C = 10 (1 thread, ns an item beyond the
// plain sweep): sums before and after each item, with checkpoints 16.8; differences 11.6.

template <int V>
inline void single_narrow(const SweepParams& p, Instance& I, const NarrowWork& w) {
  constexpr std::int64_t kRow = 8 * V;
  const std::int64_t n = I.n;
  Original o{};
  load_original(p, I, o);
  const auto add_row = [&](D8(&sum)[V], std::int64_t i) __attribute__((always_inline)) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      sum[v] = _mm512_add_pd(sum[v], _mm512_load_pd(I.rows + i * kRow + 8 * v));
    }
  };
  D8 total[V], odd[V];
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) total[v] = odd[v] = _mm512_setzero_pd();
  std::int64_t i = 0;
  for (; i + 2 <= n; i += 2) {
    add_row(total, i);
    add_row(odd, i + 1);
  }
  if (i < n) add_row(total, i);
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) total[v] = _mm512_add_pd(total[v], odd[v]);

  const float own_probability = static_cast<float>(I.probability[I.label]);
  bool near = false;
  for (std::int64_t begin = 0; begin < n; begin += 16) {
    const std::int64_t count = n - begin < 16 ? n - begin : 16;
    std::uint32_t doubtful = 0;
    for (std::int64_t j = 0; j < count; ++j) {
      const double* row = I.rows + (begin + j) * kRow;
      D8 others[V];
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) others[v] = _mm512_sub_pd(total[v], _mm512_load_pd(row + 8 * v));
      const bool heavy = row[I.label] > 0.5;
      if (__builtin_expect(heavy, 0)) {
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) others[v] = _mm512_setzero_pd();
        for (std::int64_t k = 0; k < n; ++k) {
          if (k != begin + j) add_row(others, k);
        }
      }
      D8 least = others[0];
      if (V == 2) least = _mm512_min_pd(least, others[V - 1]);
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) _mm512_store_pd(w.block + j * kRow + 8 * v, others[v]);
      // The heavy item may hold all of the mass, which no sign tells.
      const std::uint32_t look = heavy || _mm512_movepi64_mask(_mm512_castpd_si512(least)) != 0;
      doubtful |= look << j;
    }
    if (p.single_flip_label != nullptr) {
      for (std::int64_t j = 0; j < count; ++j) p.single_flip_label[I.first + begin + j] = -1;
    }
    for (std::uint32_t left = doubtful; left != 0; left &= left - 1) {
      const std::int64_t j = __builtin_ctz(left);
      const double* sums = w.block + j * kRow;
      std::int64_t decision = I.label;
      if (sums[I.label] <= 0) {
        decision = I.bias_label;
      } else if (!clear_decision(p, I, sums, &decision)) {
        decision =
            exact_decision(p, I, n, [&](std::int64_t k) { return k == begin + j ? -1 : k; }, &near);
      }
      if (p.single_flip_label != nullptr && decision != I.label) {
        p.single_flip_label[I.first + begin + j] = decision;
      }
    }
    // Rows without an item must not sway the items that share their 16 lanes.
    memset(w.block + count * kRow, 0, (16 - count) * kRow * sizeof(double));
    const __mmask16 lanes = first_lanes16(count);
    const Divergences d = diverge_rows<V, false>(p, I, o, w.block);
    const F16 drop = _mm512_sub_ps(_mm512_set1_ps(own_probability), d.label_probability);
    if (p.single_js != nullptr) {
      _mm512_mask_storeu_ps(static_cast<float*>(p.single_js) + I.first + begin, lanes, d.js);
    }
    if (p.single_drop != nullptr) {
      _mm512_mask_storeu_ps(static_cast<float*>(p.single_drop) + I.first + begin, lanes, drop);
    }
    const auto keep = [&](double* to, F16 x) {
      _mm512_mask_storeu_pd(to + begin, static_cast<__mmask8>(lanes), low_half(x));
      _mm512_mask_storeu_pd(to + begin + 8, static_cast<__mmask8>(lanes >> 8), high_half(x));
    };
    keep(I.single_js, d.js);
    keep(I.single_drop, drop);
  }
  const bool outputs =
      p.single_flip_label != nullptr || p.single_js != nullptr || p.single_drop != nullptr;
  if (near && outputs) I.status |= kNearTie;
}
