// Contributions of many items to few classes, read once: s_{i,c} - s_{i,0} = (W_c - W_0) · v_i for
// 2 <= C <= 16. Everything that follows needs differences between classes only, and one class less
// is a tenth of the work at C = 10.
//
// Mapping: kItems items in the lanes of one vector, K = C - 1 accumulators, but three at least.
// Four features of these rows arrive as 128-bit pieces, are transposed inside the quarters of four
// vectors (8 shuffles a register), and meet weights that are broadcast from memory: 4 K
// multiply-adds, plus 4 for the norms, or 1 for a bound of them. Where K accumulators do not fit
// the registers, the block is read again for the others, from the first cache. Every sum adds its
// features one by one, so that it is the same on every target. Traffic: the values once;
// contributions leave as K streams of kItems floats, class by class. Memory: the interleaved row
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
// AVX2 on the same Zen 4 (projection alone, ms, `flan_imdb` and `bilstm`, D = 256, C = 2): no
// requests 37.5, 45.4; requests alone 20.4, 21.2; pages loaded 16.4, 15.0, and as much with
// requests 8 KiB ahead. From the first cache 26 ns a row of `flan_imdb` (nine sums of 8 items and a
// bound are ten of 16 registers).
//
// With 128 bits and no fused multiply-add (SSE2) a multiply-add is three instructions, and a weight
// is spread by more of them unless memory has it in every lane. There a block is two registers of
// items that share each loaded weight, and its features pass through memory once they are
// transposed, for five accumulators at a time beside two of norms. Lines are requested far ahead
// as above; of short rows not once more, since what reads them does nothing else meanwhile. From
// the first cache 47 ns a row of `flan_imdb` instead of 57 with a register of items, at six
// instructions a cycle; from memory (ns a row) 50.7 instead of 59.3, `han` 28.7 (31.3), `bilstm` 57
// (67.6), `transformer` 160 (202). Sweeps (ms, with masks of doubles in forms of their own):
// `flan_imdb` 53.7 (61.9), `bilstm` 35.7 (39.8), `transformer` 26.0 (33.5).

#pragma once

#include "cpu/simd/lanes.h"
#include "cpu/simd/transpose.h"
#include "cpu/usual/instance.h"

namespace fae::cpu {
namespace {

// Where the norms do not keep contributions within this, the general way tells: one may overflow
// float32 though its difference from another's does not, and a probability that divergences take as
// 2^-110 instead of 0 weighs something beside such logits.
constexpr double kMostContribution = 1e20;

// Whether a weight that is to meet a register of items must fill one in memory.
constexpr bool kStaged = !Target::kBroadcastsLoads;

// Bounds pay where multiply-adds are what the loop waits for, and where the values are still in the
// cache when a sum near a tie wants the norms after all.
constexpr std::int64_t kFewestBounded = kStaged ? 16 : 8;  // accumulators
constexpr std::int64_t kMostBounded = 256 << 10;           // values of an instance

constexpr std::int64_t kFar = 20 << 10;
constexpr std::int64_t kPages = kFar + (16 << 10);
constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kShortRow = 512;  // bytes

// With fewer the loop has so little to do that its loads overtake the requests for their lines.
constexpr std::int64_t kFewest = kStaged ? 1 : 3;

inline std::int64_t accumulators(std::int64_t C) { return C - 1 < kFewest ? kFewest : C - 1; }

struct Rows {
  const char* first;    // row of the block's lane 0
  std::int64_t stride;  // bytes
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

// Items of a block: a register of them, or two of four.
constexpr int kItems = Target::kFloats == 4 ? 8 : Target::kFloats;
constexpr int kQuarters = kItems / 4;
using Items = Vec<float, kItems>;
// Accumulators at once, beside four features or a staged one, the norms and a weight.
constexpr int kMostAtOnce = Target::kRegisters / Items::kParts - (kStaged ? 3 : 6);

// Four features of a block's rows: column k of the result has feature k of every row. `quarter[l]`
// is where lane 4 l reads.
FAE_INLINE void load_columns(const char* const (&quarter)[kQuarters], std::int64_t stride,
                             std::int64_t triple, Items (&x)[4]) {
  Items r[4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const std::int64_t offset = j == 3 ? triple : j * stride;
    r[j] = LoadQuarters<Items>(
        [&](int q) { return reinterpret_cast<const float*>(quarter[q] + offset); });
  }
  TransposeQuarters(r, x);
}
// The same of the last `count` features, fewer than four, and zeros.
inline __attribute__((noinline)) void load_last_columns(const char* const (&quarter)[kQuarters],
                                                        std::int64_t stride, std::int64_t count,
                                                        Items (&x)[4]) {
  alignas(64) float feature[4][kItems] = {};
  for (int lane = 0; lane < kItems; ++lane) {
    const float* from = reinterpret_cast<const float*>(quarter[lane / 4] + lane % 4 * stride);
    for (std::int64_t k = 0; k < count; ++k) feature[k][lane] = from[k];
  }
  for (int k = 0; k < 4; ++k) x[k] = Load<Items>(feature[k]);
}

enum class Norms { kNone, kExact, kBound };

// Adds `span` features, packed weights [span, kPitch], to S accumulators, and to `norm2` squares,
// or some of which four times are between the squared norm and four times as much. A step of four
// features uses 16 kItems bytes of the block; as many are requested, by the pass that has the
// norms.
template <int S, int kPitch, Norms kNorms>
FAE_INLINE void accumulate(const Rows& rows, const float* weights, std::int64_t span, Items (&s)[S],
                           Items& norm2) {
  constexpr bool kFirst = kNorms != Norms::kNone;
  const char* quarter[kQuarters];
#pragma GCC unroll 4
  for (int l = 0; l < kQuarters; ++l) quarter[l] = rows.first + 4 * l * rows.stride;
  const std::int64_t triple = 3 * rows.stride;
  const bool short_rows = rows.stride <= kShortRow;
  const std::int64_t near_stride = short_rows ? 64 : rows.stride, near_triple = 3 * near_stride;
  const char* ahead = rows.ahead;
  if (kFirst && rows.end - ahead > kPages) {
    const char* const to = ahead + kPages + 4 * kItems * span;
    touch_pages(ahead + kPages, to < rows.end ? to : rows.end);
  }
  const auto add = [&](const Items(&x)[4]) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
#pragma GCC unroll 16
      for (int c = 0; c < S; ++c) {
        s[c] = MulAdd(x[k], Set<Items>(weights[k * kPitch + c]), s[c]);
      }
      if (kNorms == Norms::kExact) norm2 = MulAdd(x[k], x[k], norm2);
    }
    if (kNorms == Norms::kBound) {
      const Items largest = MaxMagnitude(MaxMagnitude(x[0], x[1]), MaxMagnitude(x[2], x[3]));
      norm2 = MulAdd(largest, largest, norm2);
    }
    weights += 4 * kPitch;
  };
  Items x[4];
  std::int64_t d = 0;
  for (; d + 4 <= span; d += 4) {
    if (kFirst) {
      const char* const near = short_rows ? ahead : quarter[d / 4 % kQuarters] + 128;
#pragma GCC unroll 4
      for (int line = 0; line < kQuarters; ++line) {
        __builtin_prefetch(ahead + kFar + 64 * line, 0, 2);
        __builtin_prefetch(near + (line == 3 ? near_triple : line * near_stride), 0, 3);
      }
      ahead += 64 * kQuarters;
    }
    load_columns(quarter, rows.stride, triple, x);
#pragma GCC unroll 4
    for (int l = 0; l < kQuarters; ++l) quarter[l] += 16;
    add(x);
  }
  if (d < span) {
    load_last_columns(quarter, rows.stride, span - d, x);
    add(x);
  }
}

struct Projection {
  const float* weights;  // [D, K, kWeightCopies] packed, zeros beyond the classes
  float* contributions;  // [C, pitch], of which class 0 is left alone
  std::int64_t pitch;
  float* converted;  // [kItems, kMaxSpan], where values are not float32
  float* norm2;      // [pitch] squared norm of each item, or null
};

// A block's rows as floats; zeros in the rows that a block with fewer items lacks.
inline __attribute__((noinline)) void convert_rows(const SweepParams& p, std::int64_t first,
                                                   std::int64_t valid, std::int64_t d,
                                                   std::int64_t span, float* converted) {
  for (std::int64_t lane = 0; lane < valid; ++lane) {
    const std::int64_t at = (first + lane) * p.values_stride_t + d;
    float* const to = converted + lane * kMaxSpan;
    if (p.values_dtype == kFloat32) {
      memcpy(to, static_cast<const float*>(p.values) + at, span * sizeof *to);
    } else {
      load_elements(p.values, p.values_dtype, at, 1, span, to);
    }
  }
  const std::int64_t lacking = (kItems - valid) * kMaxSpan;
  memset(converted + valid * kMaxSpan, 0, lacking * sizeof *converted);
}

// Contributions to S classes from `c` on of K, of one block of up to kItems items.
template <int K, int kFrom, int S, Norms kNorms>
FAE_INLINE void project_some(const SweepParams& p, const Projection& out, std::int64_t first,
                             std::int64_t valid, std::int64_t column, Items& norm2) {
  const std::int64_t bytes = p.values_dtype == kFloat32 ? 4 : 2;
  const char* base = static_cast<const char*>(p.values) + first * p.values_stride_t * bytes;
  const std::int64_t stride = p.values_stride_t * bytes;
  const char* const end = static_cast<const char*>(p.values) + (p.T - 1) * stride + p.D * bytes;
  Items s[S];
  Vec<double, kItems> wide[S];
#pragma GCC unroll 16
  for (int c = 0; c < S; ++c) {
    s[c] = Zero<Items>();
    wide[c] = Zero<Vec<double, kItems>>();
  }
  for (std::int64_t d = 0; d < p.D; d += kMaxSpan) {
    const std::int64_t span = p.D - d < kMaxSpan ? p.D - d : kMaxSpan;
    const char* const ahead = base + kItems * stride + d * kItems * bytes;
    Rows rows{base + d * bytes, stride, ahead, end};
    if (p.values_dtype != kFloat32 || valid < kItems) {
      convert_rows(p, first, valid, d, span, out.converted);
      rows.first = reinterpret_cast<const char*>(out.converted);
      rows.stride = kMaxSpan * 4;
    }
    accumulate<S, K, kNorms>(rows, out.weights + d * K + kFrom, span, s, norm2);
    if (p.D <= kMaxSpan) break;
#pragma GCC unroll 16
    for (int c = 0; c < S; ++c) {
      wide[c] = wide[c] + PromoteTo(s[c]);
      s[c] = Zero<Items>();
    }
  }
#pragma GCC unroll 16
  for (int c = 0; c < S; ++c) {
    if (kFrom + c >= p.C - 1) continue;
    if (p.D > kMaxSpan) s[c] = DemoteTo(wide[c]);
    Store(s[c], out.contributions + (kFrom + c + 1) * out.pitch + column);
  }
}

// Up to kMaxSpan features of a block, transposed to memory.
struct Staged {
  alignas(64) float features[kMaxSpan * kItems];  // [span, kItems]
  std::int64_t begin, span;                       // of these; span is a multiple of four
};

// Transposes features [d, d + span) of a block and requests what follows them.
FAE_INLINE void stage(const SweepParams& p, const Projection& out, std::int64_t first,
                      std::int64_t valid, std::int64_t d, Staged& staged) {
  const std::int64_t bytes = p.values_dtype == kFloat32 ? 4 : 2;
  const std::int64_t span = p.D - d < kMaxSpan ? p.D - d : kMaxSpan;
  std::int64_t stride = p.values_stride_t * bytes;
  const char* base = static_cast<const char*>(p.values) + first * stride;
  const char* const end = static_cast<const char*>(p.values) + (p.T - 1) * stride + p.D * bytes;
  const char* ahead = base + kItems * (stride + d * bytes);
  base += d * bytes;
  if (p.values_dtype != kFloat32 || valid < kItems) {
    convert_rows(p, first, valid, d, span, out.converted);
    base = reinterpret_cast<const char*>(out.converted);
    stride = kMaxSpan * 4;
  }
  if (end - ahead > kPages) {
    const char* const to = ahead + kPages + 4 * kItems * span;
    touch_pages(ahead + kPages, to < end ? to : end);
  }
  const char* quarter[kQuarters];
#pragma GCC unroll 2
  for (int l = 0; l < kQuarters; ++l) quarter[l] = base + 4 * l * stride;
  const std::int64_t triple = 3 * stride;
  const bool short_rows = stride <= kShortRow;
  std::int64_t row = 0;  // of each quarter, in bytes
  float* to = staged.features;
  Items x[4];
  std::int64_t k = 0;
  for (; k + 4 <= span; k += 4) {
#pragma GCC unroll 2
    for (int l = 0; l < kQuarters; ++l) {
      __builtin_prefetch(ahead + kFar + 64 * l, 0, 2);
      if (!short_rows) __builtin_prefetch(quarter[l] + row + 128, 0, 3);
    }
    ahead += 64 * kQuarters;
    row = row == triple ? 0 : row + stride;
    load_columns(quarter, stride, triple, x);
#pragma GCC unroll 2
    for (int l = 0; l < kQuarters; ++l) quarter[l] += 16;
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) Store(x[j], to + j * kItems);
    to += 4 * kItems;
  }
  if (k < span) {
    load_last_columns(quarter, stride, span - k, x);
    for (int j = 0; j < 4; ++j) Store(x[j], to + j * kItems);
  }
  staged.begin = d;
  staged.span = (span + 3) / 4 * 4;
}

// Contributions to S classes from kFrom on of K, from staged features; `wide` has the sums of those
// before them, where there are more than kMaxSpan in all.
template <int K, int kFrom, int S, bool kNorms>
FAE_INLINE void project_staged(const SweepParams& p, const Projection& out, const Staged& staged,
                               std::int64_t column, Vec<double, kItems> (&wide)[K], Items& norm2) {
  Items s[S];
#pragma GCC unroll 16
  for (int c = 0; c < S; ++c) s[c] = Zero<Items>();
  const float* const weights = out.weights + (staged.begin * K + kFrom) * kWeightCopies;
#pragma GCC unroll 4
  for (std::int64_t d = 0; d < staged.span; ++d) {
    const Items x = Load<Items>(staged.features + d * kItems);
#pragma GCC unroll 16
    for (int c = 0; c < S; ++c) {
      auto weight = Load<Vec<float, kWeightCopies>>(weights + (d * K + c) * kWeightCopies);
      in_register(weight);
      s[c] = MulAdd(Combine(weight, weight), x, s[c]);
    }
    if (kNorms) norm2 = MulAdd(x, x, norm2);
  }
#pragma GCC unroll 16
  for (int c = 0; c < S; ++c) {
    if (p.D > kMaxSpan) {
      auto& sum = wide[kFrom + c];
      sum = staged.begin == 0 ? PromoteTo(s[c]) : sum + PromoteTo(s[c]);
      s[c] = DemoteTo(sum);
    }
    Store(s[c], out.contributions + (kFrom + c + 1) * out.pitch + column);
  }
}

// One block; returns its squared norms, or bounds of them.
template <int K, bool kBound>
FAE_INLINE Items project_block(const SweepParams& p, const Projection& out, std::int64_t first,
                               std::int64_t valid, std::int64_t column) {
  constexpr Norms kNorms = kBound ? Norms::kBound : Norms::kExact;
  constexpr int kPasses = (K + kMostAtOnce - 1) / kMostAtOnce;
  constexpr int kEach = (K + kPasses - 1) / kPasses;
  constexpr int kSecond = kPasses > 2 ? kEach : K - kEach;
  Items norm2 = Zero<Items>();
  if constexpr (kStaged) {
    Staged staged;
    Vec<double, kItems> wide[K];
    for (std::int64_t d = 0; d < p.D; d += kMaxSpan) {
      stage(p, out, first, valid, d, staged);
      project_staged<K, 0, kEach, kPasses == 1>(p, out, staged, column, wide, norm2);
      if constexpr (kPasses > 1) {
        project_staged<K, kEach, kSecond, kPasses == 2>(p, out, staged, column, wide, norm2);
      }
      if constexpr (kPasses > 2) {
        project_staged<K, 2 * kEach, K - 2 * kEach, true>(p, out, staged, column, wide, norm2);
      }
    }
  } else {
    project_some<K, 0, kEach, kNorms>(p, out, first, valid, column, norm2);
    if constexpr (kPasses > 1) {
      project_some<K, kEach, kSecond, Norms::kNone>(p, out, first, valid, column, norm2);
    }
    if constexpr (kPasses > 2) {
      project_some<K, 2 * kEach, K - 2 * kEach, Norms::kNone>(p, out, first, valid, column, norm2);
    }
  }
  static_assert(kPasses <= 3);
  constexpr float kRounding = 1e-3f;  // D / 4 squares added: off by 6e-5 at D = 4,096
  if (kBound) norm2 = norm2 * Set<Items>(4 + kRounding);
  if (out.norm2 != nullptr) Store(norm2, out.norm2 + column);
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
  Items largest = Zero<Items>();
  for (std::int64_t i = begin; i < end; i += kItems) {
    const std::int64_t valid = end - i < kItems ? end - i : kItems;
    largest = Max(largest, project_block<K, kBound>(p, out, i, valid, column + i - begin));
  }
  return ReduceMax(largest);
}

using ProjectColumns = float (*)(const SweepParams&, const Projection&, std::int64_t, std::int64_t,
                                 std::int64_t);

template <int kFirst, bool kBound, int... kIndex>
inline ProjectColumns project_columns_from(std::int64_t K, Indices<kIndex...>) {
  static constexpr ProjectColumns kTable[] = {project_columns<kFirst + kIndex, kBound>...};
  return kTable[K - kFirst];
}

template <int kFewestOf = kFewestBounded>
inline ProjectColumns project_columns_for(std::int64_t C, bool bounded) {
  const std::int64_t K = accumulators(C);
  if constexpr (kFewestOf < 16) {
    if (bounded) return project_columns_from<kFewestOf, true>(K, UpTo<16 - kFewestOf>());
  }
  return project_columns_from<kFewest, false>(K, UpTo<16 - kFewest>());
}

inline void pack_weights(const SweepParams& p, float* packed) {
  const float* w = static_cast<const float*>(p.head_weight);
  const std::int64_t K = accumulators(p.C);
  for (std::int64_t c = 0; c < K; ++c) {
    for (std::int64_t d = 0; d < (p.D + 3) / 4 * 4; ++d) {
      const float weight = c < p.C - 1 && d < p.D ? w[(c + 1) * p.D + d] - w[d] : 0;
      for (int copy = 0; copy < kWeightCopies; ++copy) {
        packed[(d * K + c) * kWeightCopies + copy] = weight;
      }
    }
  }
}

}  // namespace
}  // namespace fae::cpu
