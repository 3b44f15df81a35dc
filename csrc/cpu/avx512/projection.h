// Contributions of many items to few classes, read once: s_{i,c} - s_{i,0} = (W_c - W_0) · v_i for
// 2 <= C <= 16. Everything that follows needs differences between classes only, and one class less
// is a tenth of the work at C = 10.
//
// Mapping: 16 items in the lanes of one vector, K = C - 1 accumulators, but three at least. Four
// features of 16 rows arrive as 128-bit pieces, are transposed inside the quarters of four vectors
// (8 shuffles), and meet weights that are broadcast from memory by the multiply-add itself: 4 K
// multiply-adds, plus 4 for the norms, or 1 for a bound of them. Traffic: the values once;
// contributions leave as K streams of 16 floats, class by class. Memory: the 16 interleaved row
// streams defeat the hardware's prefetcher, so that what follows is requested explicitly, three
// times, ever nearer.
//   1. Of every page, one word is loaded, kPages bytes ahead. Requests do not wait for a page's
//      translation but are dropped; a load waits, while the multiply-adds go on.
//   2. Lines into the second cache, in address order, kFar bytes ahead.
//   3. Lines into the first cache: of short rows in address order, a block ahead; of rows whose
//      block would fill that cache, two lines ahead in each row.
// A row's address is one of four running pointers plus 0, 1, 2 or 3 strides.
//
// Ladder, sweeps of the set `transformer` of benchmarks/run.py, D = 768, C = 2 (1 thread, ms):
// requests alone, in blocks of rows 20; pages loaded, requests by bytes 15.9; three accumulators
// instead of one 14.5. `flan_imdb`, D = 100, C = 10: 27 to 31 as the pages lie; pages loaded 26.8;
// relative to class 0 25.3; much later, at 22.3, bounds instead of norms 21.6.

// Where the norms do not keep contributions within this, one may overflow float32 though its
// difference from another's does not: the general way tells.
constexpr double kMostContribution = 1e37;

// Bounds pay where multiply-adds are what the loop waits for, and where the values are still in the
// cache when a sum near a tie wants the norms after all.
constexpr std::int64_t kFewestBounded = 8;        // accumulators
constexpr std::int64_t kMostBounded = 256 << 10;  // values of an instance

constexpr std::int64_t kFar = 20 << 10;
constexpr std::int64_t kPages = kFar + (16 << 10);
constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kShortRow = 512;  // bytes

// With fewer the loop has so little to do that its loads overtake the requests for their lines.
constexpr std::int64_t kFewest = 3;

inline std::int64_t accumulators(std::int64_t C) { return C - 1 < kFewest ? kFewest : C - 1; }

struct Rows {
  const char* first;    // row of the block's lane 0
  std::int64_t stride;  // bytes
  std::int64_t valid;   // lanes that are items; the others repeat the last one
  const char* ahead;    // as many bytes as the block's from here on are what follows in memory
  const char* end;      // of the values
};

// Loads a word of each page in [begin, end).
FAE_INLINE void touch_pages(const char* begin, const char* end) {
  const std::int64_t past = reinterpret_cast<std::intptr_t>(begin) & (kPage - 1);
  for (const char* page = past == 0 ? begin : begin + (kPage - past); page < end; page += kPage) {
    static_cast<void>(*reinterpret_cast<const volatile char*>(page));
  }
}

// Four features, `mask` of them, of 16 rows: column k of the result has feature k of every row.
// `quarter[l]` is where lane 4 l reads.
template <bool kFull>
FAE_INLINE void load_columns(const Rows& rows, const char* const (&quarter)[4], std::int64_t triple,
                             std::int64_t byte, __mmask8 mask, F16 (&x)[4]) {
  const auto piece = [&](int lane) __attribute__((always_inline)) {
    const char* at;
    if (kFull) {
      const std::int64_t offset = lane % 4 == 3 ? triple : lane % 4 * rows.stride;
      at = quarter[lane / 4] + offset;
    } else {
      at = rows.first + byte + (lane < rows.valid ? lane : rows.valid - 1) * rows.stride;
    }
    const float* from = reinterpret_cast<const float*>(at);
    return mask == 0xF ? _mm_loadu_ps(from) : _mm_maskz_loadu_ps(mask, from);
  };
  F16 r[4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    r[j] = _mm512_castps128_ps512(piece(j));
    r[j] = _mm512_mask_broadcast_f32x4(r[j], 0x00F0, piece(4 + j));
    r[j] = _mm512_mask_broadcast_f32x4(r[j], 0x0F00, piece(8 + j));
    r[j] = _mm512_mask_broadcast_f32x4(r[j], 0xF000, piece(12 + j));
  }
  transpose4(r, x);
}

// Adds `span` features, packed weights [span, K], to the accumulators, and to `norm2` squares of
// which four times are between the squared norm and four times as much. A step of four features
// uses 256 bytes of the block; as many are requested.
template <int K, bool kFull, bool kBound>
FAE_INLINE void accumulate(const Rows& rows, const float* weights, std::int64_t span, F16 (&s)[K],
                           F16& norm2) {
  const char* quarter[4];
#pragma GCC unroll 4
  for (int l = 0; l < 4; ++l) quarter[l] = rows.first + 4 * l * rows.stride;
  const std::int64_t triple = 3 * rows.stride;
  const bool short_rows = rows.stride <= kShortRow;
  const std::int64_t near_stride = short_rows ? 64 : rows.stride, near_triple = 3 * near_stride;
  const char* ahead = rows.ahead;
  if (rows.end - ahead > kPages) {
    const char* const to = ahead + kPages + 64 * span;
    touch_pages(ahead + kPages, to < rows.end ? to : rows.end);
  }
  std::int64_t d = 0;
  for (; d + 4 <= span; d += 4) {
    const char* const near = short_rows ? ahead : quarter[d / 4 % 4] + 128;
#pragma GCC unroll 4
    for (int line = 0; line < 4; ++line) {
      __builtin_prefetch(ahead + kFar + 64 * line, 0, 2);
      __builtin_prefetch(near + (line == 3 ? near_triple : line * near_stride), 0, 3);
    }
    ahead += 256;
    F16 x[4];
    load_columns<kFull>(rows, quarter, triple, d * 4, 0xF, x);
#pragma GCC unroll 4
    for (int l = 0; l < 4; ++l) quarter[l] += 16;
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
#pragma GCC unroll 16
      for (int c = 0; c < K; ++c) {
        s[c] = _mm512_fmadd_ps(x[k], _mm512_set1_ps(weights[k * K + c]), s[c]);
      }
      if (!kBound) norm2 = _mm512_fmadd_ps(x[k], x[k], norm2);
    }
    if (kBound) {
      constexpr int kLargerSize = 11;  // of two numbers the size of the larger
      const F16 a = _mm512_range_ps(x[0], x[1], kLargerSize);
      const F16 b = _mm512_range_ps(x[2], x[3], kLargerSize);
      const F16 largest = _mm512_range_ps(a, b, kLargerSize);
      norm2 = _mm512_fmadd_ps(largest, largest, norm2);
    }
    weights += 4 * K;
  }
  if (d < span) {
    F16 x[4];
    load_columns<kFull>(rows, quarter, triple, d * 4, static_cast<__mmask8>((1 << (span - d)) - 1),
                        x);
    for (int k = 0; k < span - d; ++k) {
#pragma GCC unroll 16
      for (int c = 0; c < K; ++c) {
        s[c] = _mm512_fmadd_ps(x[k], _mm512_set1_ps(weights[k * K + c]), s[c]);
      }
      norm2 = _mm512_fmadd_ps(x[k], x[k], norm2);
    }
  }
}

struct Projection {
  const float* weights;  // [D, K] packed, zeros beyond the classes
  float* contributions;  // [C, pitch], of which class 0 is left alone
  std::int64_t pitch;
  float* converted;  // [16, kMaxSpan], where values are not float32
  float* norm2;      // [pitch] squared norm of each item, or null
};

// One block of up to 16 items; returns their squared norms, or bounds of them.
template <int K, bool kFull, bool kBound>
FAE_INLINE F16 project_block(const SweepParams& p, const Projection& out, std::int64_t first,
                             std::int64_t valid, std::int64_t column) {
  const std::int64_t bytes = p.values_dtype == kFloat32 ? 4 : 2;
  const char* base = static_cast<const char*>(p.values) + first * p.values_stride_t * bytes;
  const std::int64_t stride = p.values_stride_t * bytes;
  const char* const end = static_cast<const char*>(p.values) + (p.T - 1) * stride + p.D * bytes;
  F16 s[K];
  D8 low[K], high[K];
#pragma GCC unroll 16
  for (int c = 0; c < K; ++c) low[c] = high[c] = _mm512_setzero_pd();
  F16 norm2 = _mm512_setzero_ps();
  for (std::int64_t d = 0; d < p.D; d += kMaxSpan) {
    const std::int64_t span = p.D - d < kMaxSpan ? p.D - d : kMaxSpan;
    const char* const ahead = base + 16 * stride + d * 16 * bytes;
    Rows rows{base + d * bytes, stride, valid, ahead, end};
    if (p.values_dtype != kFloat32) {
      for (std::int64_t lane = 0; lane < valid; ++lane) {
        load_elements(p.values, p.values_dtype, (first + lane) * p.values_stride_t + d, 1, span,
                      out.converted + lane * kMaxSpan);
      }
      rows = {reinterpret_cast<const char*>(out.converted), kMaxSpan * 4, valid, ahead, end};
    }
#pragma GCC unroll 16
    for (int c = 0; c < K; ++c) s[c] = _mm512_setzero_ps();
    accumulate<K, kFull, kBound>(rows, out.weights + d * K, span, s, norm2);
    if (p.D <= kMaxSpan) break;
#pragma GCC unroll 16
    for (int c = 0; c < K; ++c) {
      low[c] = _mm512_add_pd(low[c], low_half(s[c]));
      high[c] = _mm512_add_pd(high[c], high_half(s[c]));
    }
  }
#pragma GCC unroll 16
  for (int c = 0; c < K; ++c) {
    if (c >= p.C - 1) continue;
    if (p.D > kMaxSpan) s[c] = join(low[c], high[c]);
    _mm512_storeu_ps(out.contributions + (c + 1) * out.pitch + column, s[c]);
  }
  constexpr float kRounding = 1e-3f;  // D / 4 squares added: off by 6e-5 at D = 4,096
  if (kBound) norm2 = _mm512_mul_ps(norm2, _mm512_set1_ps(4 + kRounding));
  if (out.norm2 != nullptr) _mm512_storeu_ps(out.norm2 + column, norm2);
  return norm2;
}

// Items [begin, end) of the batch to columns `column` …; returns the largest squared norm, or a
// bound of it, at most four times as much. Whole blocks are written: the columns have room for 15
// more. Begins a page, since the same code was 7 % slower where other functions moved it.
template <int K, bool kBound>
inline __attribute__((aligned(kPage))) float project_columns(const SweepParams& p,
                                                             const Projection& out,
                                                             std::int64_t begin, std::int64_t end,
                                                             std::int64_t column) {
  F16 largest = _mm512_setzero_ps();
  std::int64_t i = begin;
  for (; i + 16 <= end; i += 16) {
    largest =
        _mm512_max_ps(largest, project_block<K, true, kBound>(p, out, i, 16, column + i - begin));
  }
  if (i < end) {
    largest = _mm512_max_ps(
        largest, project_block<K, false, kBound>(p, out, i, end - i, column + i - begin));
  }
  return _mm512_reduce_max_ps(largest);
}

using ProjectColumns = float (*)(const SweepParams&, const Projection&, std::int64_t, std::int64_t,
                                 std::int64_t);

inline ProjectColumns project_columns_for(std::int64_t C, bool bounded) {
  static constexpr ProjectColumns kTable[] = {
      project_columns<3, false>,  project_columns<4, false>,  project_columns<5, false>,
      project_columns<6, false>,  project_columns<7, false>,  project_columns<8, false>,
      project_columns<9, false>,  project_columns<10, false>, project_columns<11, false>,
      project_columns<12, false>, project_columns<13, false>, project_columns<14, false>,
      project_columns<15, false>};
  static constexpr ProjectColumns kBounded[] = {
      project_columns<8, true>,  project_columns<9, true>,  project_columns<10, true>,
      project_columns<11, true>, project_columns<12, true>, project_columns<13, true>,
      project_columns<14, true>, project_columns<15, true>};
  const std::int64_t K = accumulators(C);
  return bounded ? kBounded[K - kFewestBounded] : kTable[K - kFewest];
}

inline void pack_weights(const SweepParams& p, float* packed) {
  const float* w = static_cast<const float*>(p.head_weight);
  const std::int64_t K = accumulators(p.C);
  for (std::int64_t c = 0; c < K; ++c) {
    for (std::int64_t d = 0; d < p.D; ++d) {
      packed[d * K + c] = c < p.C - 1 ? w[(c + 1) * p.D + d] - w[d] : 0;
    }
  }
}
