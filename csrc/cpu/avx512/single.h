// Every item erased alone: rows before it plus rows after it, 16 items' divergences at a time.
//
// The sums after an item come from a pass from the back with a checkpoint every 64 items, spread
// out again on the way forward; 3 row additions an item.

constexpr std::int64_t kSingleBlock = 64;

template <int V>
inline void single_narrow(const SweepParams& p, Instance& I, const NarrowWork& w) {
  constexpr std::int64_t kRow = 8 * V;
  const std::int64_t n = I.n;
  const std::int64_t blocks = (n + kSingleBlock - 1) / kSingleBlock;
  Original o{};
  load_original(p, I, o);
  D8 sum[V], before[V];
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) sum[v] = before[v] = _mm512_setzero_pd();
  for (std::int64_t b = blocks - 1; b >= 0; --b) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) _mm512_store_pd(w.blocks + b * kRow + 8 * v, sum[v]);
    const std::int64_t end = n < (b + 1) * kSingleBlock ? n : (b + 1) * kSingleBlock;
    for (std::int64_t i = end - 1; i >= b * kSingleBlock; --i) {
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        sum[v] = _mm512_add_pd(sum[v], _mm512_load_pd(I.rows + i * kRow + 8 * v));
      }
    }
  }
  const float own_probability = static_cast<float>(I.probability[I.label]);
  bool near = false;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t begin = b * kSingleBlock;
    const std::int64_t end = n < begin + kSingleBlock ? n : begin + kSingleBlock;
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) sum[v] = _mm512_load_pd(w.blocks + b * kRow + 8 * v);
    for (std::int64_t i = end - 1; i >= begin; --i) {
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        _mm512_store_pd(w.block + (i - begin) * kRow + 8 * v, sum[v]);
        sum[v] = _mm512_add_pd(sum[v], _mm512_load_pd(I.rows + i * kRow + 8 * v));
      }
    }
    std::uint64_t negative = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      D8 least = _mm512_setzero_pd();
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        double* at = w.block + (i - begin) * kRow + 8 * v;
        const D8 others = _mm512_add_pd(before[v], _mm512_load_pd(at));
        _mm512_store_pd(at, others);
        before[v] = _mm512_add_pd(before[v], _mm512_load_pd(I.rows + i * kRow + 8 * v));
        least = v == 0 ? others : _mm512_min_pd(least, others);
      }
      const std::uint64_t sign = _mm512_movepi64_mask(_mm512_castpd_si512(least)) != 0;
      negative |= sign << (i - begin);
    }
    for (std::int64_t i = begin; i < end; ++i) {
      const double* sums = w.block + (i - begin) * kRow;
      std::int64_t decision = I.label;
      if (sums[I.label] == 0) {
        decision = I.bias_label;
      } else if ((negative >> (i - begin) & 1) != 0 && !clear_decision(p, I, sums, &decision)) {
        decision = exact_decision(p, I, n, [&](std::int64_t k) { return k == i ? -1 : k; }, &near);
      }
      if (p.single_flip_label != nullptr) {
        p.single_flip_label[I.first + i] = decision == I.label ? -1 : decision;
      }
    }
    // Rows without an item must not sway the items that share their 16 lanes.
    const std::int64_t whole = begin + (end - begin + 15) / 16 * 16;
    memset(w.block + (end - begin) * kRow, 0, (whole - end) * kRow * sizeof(double));
    for (std::int64_t i = begin; i < end; i += 16) {
      const __mmask16 lanes = first_lanes16(end - i);
      const Divergences d = diverge_rows<V>(p, I, o, w.block + (i - begin) * kRow);
      const F16 drop = _mm512_sub_ps(_mm512_set1_ps(own_probability), d.label_probability);
      if (p.single_js != nullptr) {
        _mm512_mask_storeu_ps(static_cast<float*>(p.single_js) + I.first + i, lanes, d.js);
      }
      if (p.single_drop != nullptr) {
        _mm512_mask_storeu_ps(static_cast<float*>(p.single_drop) + I.first + i, lanes, drop);
      }
      const auto keep = [&](double* to, F16 x) {
        _mm512_mask_storeu_pd(to + i, static_cast<__mmask8>(lanes), low_half(x));
        _mm512_mask_storeu_pd(to + i + 8, static_cast<__mmask8>(lanes >> 8), high_half(x));
      };
      keep(I.single_js, d.js);
      keep(I.single_drop, drop);
    }
  }
  const bool outputs =
      p.single_flip_label != nullptr || p.single_js != nullptr || p.single_drop != nullptr;
  if (near && outputs) I.status |= kNearTie;
}
