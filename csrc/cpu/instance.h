// One instance on its way through the sweep: its memory, its weights, its contributions.
//
//   a_i = exp(e_i - max e) / sum        s_{i,h,c} = W_{c,h} · v_{i,h}
//
// The values are read once, here. Contributions are kept as float64 rows [n, H, C]; partial sums
// of float32 values span at most 128 features.
#pragma once

#include "cpu/simd/lanes.h"
#include "cpu/sort.h"

namespace fae::cpu {
namespace {

constexpr std::int64_t kMaxSpan = 128;  // features in a float32 partial sum

struct Instance {
  std::int64_t index, first, n;  // instance `index` owns items [first, first + n)
  double* rows;                  // [n, H, C] contributions
  double* a;                     // [n, H] weights of the instance, their sum is 1
  double* e;                     // [n, H] scores, where they are given
  double* mass;                  // [n] mean weight over the heads
  double* gradient;              // [n] sum over heads of d d/d a, where a ranking needs it
  double* single_js;             // [n], where a ranking needs it
  double* single_drop;           // [n]
  double* logits;                // [C] at k = 0, where they are wanted
  unsigned char* bad;            // [n] what of the item is not finite
  unsigned char* massless;       // [n] no head gives the item weight
  double* bias;                  // [C]
  double* probability;           // [C] at k = 0
  double* log_probability;       // [C]
  double* norm2;                 // [num_slices] largest squared norm of an item, by slice of kSlice
  std::int64_t label;            // -1 where it is not defined
  std::int64_t bias_label;       // argmax(b)
  std::int64_t with_mass;        // number of items of positive weight
  double head_norm;              // max_c ||W_c||
  double tolerance;              // of near-ties, per unit of mass
  bool any_bad, bad_bias, underflow;  // any_bad: an item or the bias
  bool invalid;
  std::int64_t status;
};

constexpr std::int64_t kSlice = 4096;
constexpr unsigned char kBadAttention = 1;
constexpr unsigned char kBadContribution = 2;

// Hands out consecutive parts of a piece of memory; with a null base it only counts.
class Arena {
 public:
  explicit Arena(char* base) : base_(base) {}
  template <class T>
  T* take(std::int64_t count) {
    char* const at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (count * static_cast<std::int64_t>(sizeof(T)) + 63) / 64 * 64;
    return reinterpret_cast<T*>(at);
  }
  std::int64_t used() const { return used_; }

 private:
  char* base_;
  std::int64_t used_ = 0;
};

// Whether results of single erasures are wanted, as against keys of a ranking.
inline bool wants_single(const SweepParams& p) { return wants_any<kSingleOutputs>(p); }

struct Wanted {
  bool gradient, single;  // computed ahead of the rankings
};

inline Wanted wanted(const SweepParams& p) {
  Wanted w{false, wants_single(p)};
  for (std::int64_t r = 0; r < p.R; ++r) {
    const std::int32_t kind = p.rankings[r];
    w.gradient =
        w.gradient || kind == kGradient || kind == kProduct || kind == kRenormalizedGradient;
    w.single = w.single || kind == kLeaveOneOut || kind == kLeaveOneOutDrop;
  }
  return w;
}

inline bool wants_minimal(const SweepParams& p) { return wants_any<kMinimalOutputs>(p); }

// Memory of an instance of n items whose rows have `row` numbers.
inline void lay_out(const SweepParams& p, std::int64_t n, std::int64_t row, Arena& arena,
                    Instance& I) {
  const Wanted want = wanted(p);
  I.n = n;
  I.rows = arena.take<double>(n * row);
  I.a = arena.take<double>(n * p.H);
  I.e = arena.take<double>(p.is_scores ? n * p.H : 0);
  I.mass = p.H == 1 ? I.a : arena.take<double>(n);
  I.gradient = arena.take<double>(want.gradient ? n : 0);
  I.single_js = arena.take<double>(want.single ? n : 0);
  I.single_drop = arena.take<double>(want.single ? n : 0);
  I.logits = arena.take<double>(p.logits != nullptr ? p.C : 0);
  I.bad = arena.take<unsigned char>(n);
  I.massless = arena.take<unsigned char>(n);
  I.bias = arena.take<double>(p.C);
  I.probability = arena.take<double>(p.C);
  I.log_probability = arena.take<double>(p.C);
  I.norm2 = arena.take<double>((n + kSlice - 1) / kSlice);
}

// Weights of one head; returns what is wrong with them, if anything.
inline Error load_weights(const SweepParams& p, Instance& I, std::int64_t h) {
  const std::int64_t n = I.n;
  const std::int64_t H = p.H;
  for (std::int64_t i = 0; i < n; ++i) {
    const double w = I.a[i * H + h];
    if (w < 0) return {Fault::kNegativeWeight, I.index, i, -1, w};
    if (!is_finite(w)) I.bad[i] = kBadAttention;
  }
  double largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double w = I.a[i * H + h];
    if (is_finite(w) && w > largest) largest = w;
  }
  // A sum of huge float64 weights could overflow: scaled by a power of two it cannot.
  const double scale = largest > 1e250 ? 0x1p-512 : 1.0;
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    double& w = I.a[i * H + h];
    w *= scale;
    if (is_finite(w)) sum += w;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    double& w = I.a[i * H + h];
    w = is_finite(w) && sum > 0 ? w / sum : 0.0;
  }
  return {};
}

inline void load_scores(const SweepParams& p, Instance& I, std::int64_t h) {
  const std::int64_t n = I.n;
  const std::int64_t H = p.H;
  double high = -kInf;
  double low = kInf;
  for (std::int64_t i = 0; i < n; ++i) {
    const double e = I.e[i * H + h];
    if (e == -kInf) continue;
    if (!is_finite(e)) {
      I.bad[i] = kBadAttention;
      continue;
    }
    high = e > high ? e : high;
    low = e < low ? e : low;
  }
  if (high - low > kUnderflowSpan) I.underflow = true;
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double e = I.e[i * H + h];
    const double w = is_finite(e) ? exp(e - high) : 0.0;
    sum += w;
    I.a[i * H + h] = w;
  }
  for (std::int64_t i = 0; i < n; ++i) I.a[i * H + h] /= sum > 0 ? sum : 1.0;
}

// Whether a head gives an item weight; a finite score does, however small its exponential.
inline bool has_mass(const SweepParams& p, const Instance& I, std::int64_t i, std::int64_t h) {
  if (p.is_scores) return is_finite(I.e[i * p.H + h]);
  return I.a[i * p.H + h] > 0;
}

// What does not depend on the attention.
inline void load_frame(const SweepParams& p, std::int64_t index, Instance& I) {
  I.index = index;
  I.first = p.offsets[index];
  I.label = -1;
  I.any_bad = I.bad_bias = I.underflow = I.invalid = false;
  I.status = I.n == 0 ? kEmpty : I.n == 1 ? kSingle : StatusBit{};
  load_elements(p.head_bias, p.head_bias_dtype, index * p.head_bias_stride_b, 1, p.C, I.bias);
  I.bias_label = 0;
  for (std::int64_t k = 0; k < p.C; ++k) {
    if (!is_finite(I.bias[k])) I.bad_bias = true;
    if (I.bias[k] > I.bias[I.bias_label]) I.bias_label = k;
  }
  memset(I.bad, 0, I.n);
}

inline bool any_bad_item(const Instance& I) {
  bool bad = false;
  for (std::int64_t i = 0; i < I.n; ++i) bad = bad || I.bad[i] != 0;
  return bad;
}

inline Error load_attention(const SweepParams& p, Instance& I) {
  const std::int64_t H = p.H;
  for (std::int64_t h = 0; h < H; ++h) {
    const std::int64_t first = I.first * p.attention_stride_t + h * p.attention_stride_h;
    double* to = p.is_scores ? I.e : I.a;
    if (H == 1) {
      load_elements(p.attention, p.attention_dtype, first, p.attention_stride_t, I.n, to);
    } else {
      for (std::int64_t i = 0; i < I.n; ++i) {
        load_elements(p.attention, p.attention_dtype, first + i * p.attention_stride_t, 1, 1,
                      to + i * H + h);
      }
    }
    if (p.is_scores) {
      load_scores(p, I, h);
    } else {
      const Error error = load_weights(p, I, h);
      if (error.fault != Fault::kNone) return error;
    }
  }
  I.with_mass = 0;
  for (std::int64_t i = 0; i < I.n; ++i) {
    bool some = false;
    double sum = 0;
    for (std::int64_t h = 0; h < H; ++h) {
      some = some || has_mass(p, I, i, h);
      sum += I.a[i * H + h];
    }
    I.massless[i] = !some;
    I.with_mass += some;
    if (H > 1) I.mass[i] = sum / static_cast<double>(H);
  }
  return {};
}

// Adds W_c · x of G neighbouring classes, whose rows are `pitch` apart, to `sums`. At most kMaxSpan
// features, in the values' own precision: a part of a sum a lane, of 32 bytes of lanes whatever the
// registers, classes beside each other so that no addition waits for the one before.
//
// Ladder, sweep of 2,000 instances of n~300, C = 10 (1 thread, ms, AVX2 and plain): 16 sums in an
// array, class by class 271, 239; this 176, 190.
template <int G, class T>
inline void add_dots(const T* x, const T* w, std::int64_t pitch, std::int64_t span, double* sums) {
  constexpr int kLanes = 32 / sizeof(T), kHalf = kLanes / 2;
  using Whole = Vec<T, kLanes>;
  using Half = Vec<T, kHalf>;
  Whole sum[G];
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g) sum[g] = Zero<Whole>();
  std::int64_t d = 0;
  for (; d + kLanes <= span; d += kLanes) {
    const Whole a = Load<Whole>(x + d);
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) sum[g] = sum[g] + a * Load<Whole>(w + g * pitch + d);
  }
  // What is left is less than that: half of it, then single features.
  Half half[G];
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g) half[g] = LowerHalf(sum[g]) + UpperHalf(sum[g]);
  if (d + kHalf <= span) {
    const Half a = Load<Half>(x + d);
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) half[g] = half[g] + a * Load<Half>(w + g * pitch + d);
    d += kHalf;
  }
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g) {
    T total = 0;
    for (std::int64_t e = d; e < span; ++e) total += x[e] * w[g * pitch + e];
    T lane[kHalf];
    Store(half[g], lane);
    for (int l = 0; l < kHalf; ++l) total += lane[l];
    sums[g] += static_cast<double>(total);
  }
}

// Adds the contributions of x[0, span) to all classes; `pitch` elements between their rows.
template <class T>
inline void add_contributions(const T* x, const T* w, std::int64_t pitch, std::int64_t C,
                              std::int64_t span, double* sums) {
  for (std::int64_t d = 0; d < span; d += kMaxSpan) {
    const std::int64_t part = span - d < kMaxSpan ? span - d : kMaxSpan;
    std::int64_t c = 0;
    for (; c + 4 <= C; c += 4) add_dots<4>(x + d, w + c * pitch + d, pitch, part, sums + c);
    for (; c + 2 <= C; c += 2) add_dots<2>(x + d, w + c * pitch + d, pitch, part, sums + c);
    if (c < C) add_dots<1>(x + d, w + c * pitch + d, pitch, part, sums + c);
  }
}

inline double squared_norm(const float* x, std::int64_t D) {
  constexpr int kLanes = 4;
  using Part = Vec<double, kLanes>;
  Part sum[2] = {Zero<Part>(), Zero<Part>()};
  std::int64_t d = 0;
  for (; d + 2 * kLanes <= D; d += 2 * kLanes) {
#pragma GCC unroll 2
    for (int part = 0; part < 2; ++part) {
      const Part wide = PromoteTo(Load<Vec<float, kLanes>>(x + d + kLanes * part));
      sum[part] = sum[part] + wide * wide;
    }
  }
  double total = 0;
  for (; d < D; ++d) total += static_cast<double>(x[d]) * static_cast<double>(x[d]);
  double lane[kLanes];
  Store(sum[0] + sum[1], lane);
  for (int l = 0; l < kLanes; ++l) total += lane[l];
  return total;
}

inline double squared_norm(const double* x, std::int64_t D) {
  double sum = 0;
  for (std::int64_t d = 0; d < D; ++d) sum += x[d] * x[d];
  return sum;
}

// Projects items [begin, end) of the instance; `begin` is a multiple of kSlice.
template <class T>
inline void project_items(const SweepParams& p, Instance& I, std::int64_t begin, std::int64_t end,
                          const T* (*row)(const SweepParams&, std::int64_t, std::int64_t,
                                          std::int64_t, T*)) {
  const T* w = static_cast<const T*>(p.head_weight);
  constexpr std::int64_t kPart = 1024;  // features converted at a time; a multiple of kMaxSpan
  T converted[kPart];
  for (std::int64_t i = begin; i < end; ++i) {
    double norm2 = 0;
    bool finite = true;
    for (std::int64_t h = 0; h < p.H; ++h) {
      double* s = I.rows + (i * p.H + h) * p.C;
      for (std::int64_t c = 0; c < p.C; ++c) s[c] = 0;
      for (std::int64_t d = 0; d < p.D; d += kPart) {
        const std::int64_t span = kPart < p.D - d ? kPart : p.D - d;
        const std::int64_t at = (I.first + i) * p.values_stride_t + h * p.values_stride_h + d;
        const T* x = row(p, at, span, 0, converted);
        norm2 += squared_norm(x, span);
        add_contributions(x, w + h * p.D + d, p.H * p.D, p.C, span, s);
      }
      for (std::int64_t c = 0; c < p.C; ++c) finite = finite && is_finite(static_cast<T>(s[c]));
    }
    if (!finite) I.bad[i] |= kBadContribution;
    double& largest = I.norm2[i / kSlice];
    if (i % kSlice == 0 || norm2 > largest) largest = norm2;
  }
}

inline void project_rows(const SweepParams& p, Instance& I, std::int64_t begin, std::int64_t end) {
  if (p.values_dtype == kFloat64) {
    project_items<double>(p, I, begin, end,
                          [](const SweepParams& q, std::int64_t at, std::int64_t, std::int64_t,
                             double*) { return static_cast<const double*>(q.values) + at; });
  } else if (p.values_dtype == kFloat32) {
    project_items<float>(p, I, begin, end,
                         [](const SweepParams& q, std::int64_t at, std::int64_t, std::int64_t,
                            float*) { return static_cast<const float*>(q.values) + at; });
  } else {
    project_items<float>(p, I, begin, end,
                         [](const SweepParams& q, std::int64_t at, std::int64_t n, std::int64_t,
                            float* to) -> const float* {
                           load_elements(q.values, q.values_dtype, at, 1, n, to);
                           return to;
                         });
  }
}

// Sums a_i s_{i,0} over n items from `first` on, weight(i) = a_i, with one head and values that are
// not float64. The fast ways keep contributions less that to class 0, of which logits need the
// rest.
template <class Weight>
inline double first_class_sum(const SweepParams& p, std::int64_t first, std::int64_t n,
                              Weight weight) {
  const float* w = static_cast<const float*>(p.head_weight);
  float converted[kMaxSpan];
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (weight(i) == 0) continue;
    double contribution = 0;
    for (std::int64_t d = 0; d < p.D; d += kMaxSpan) {
      const std::int64_t span = p.D - d < kMaxSpan ? p.D - d : kMaxSpan;
      const std::int64_t at = (first + i) * p.values_stride_t + d;
      const float* x = converted;
      if (p.values_dtype == kFloat32) {
        x = static_cast<const float*>(p.values) + at;
      } else {
        load_elements(p.values, p.values_dtype, at, 1, span, converted);
      }
      add_dots<1>(x, w + d, p.D, span, &contribution);
    }
    sum += weight(i) * contribution;
  }
  return sum;
}

// The largest norm of an item, from the values.
inline double read_norm(const SweepParams& p, const Instance& I) {
  double norm2 = 0;
  float converted[kMaxSpan];
  for (std::int64_t i = 0; i < I.n; ++i) {
    double sum = 0;
    for (std::int64_t d = 0; d < p.D; d += kMaxSpan) {
      const std::int64_t span = p.D - d < kMaxSpan ? p.D - d : kMaxSpan;
      const std::int64_t at = (I.first + i) * p.values_stride_t + d;
      if (p.values_dtype == kFloat32) {
        sum += squared_norm(static_cast<const float*>(p.values) + at, span);
      } else {
        load_elements(p.values, p.values_dtype, at, 1, span, converted);
        sum += squared_norm(converted, span);
      }
    }
    norm2 = sum > norm2 ? sum : norm2;
  }
  return sqrt(norm2);
}

inline double largest_norm(const Instance& I) {
  double norm2 = 0;
  for (std::int64_t s = 0; s * kSlice < I.n; ++s) norm2 = I.norm2[s] > norm2 ? I.norm2[s] : norm2;
  return sqrt(norm2);
}

inline double tolerance_of(const SweepParams& p, const Instance& I, double norm) {
  double largest_bias = 0;
  for (std::int64_t c = 0; c < p.C; ++c) {
    const double size = I.bias[c] < 0 ? -I.bias[c] : I.bias[c];
    largest_bias = size > largest_bias ? size : largest_bias;
  }
  return kNearTieTolerance * (norm * I.head_norm + largest_bias);
}

}  // namespace
}  // namespace fae::cpu
