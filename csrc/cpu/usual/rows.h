// Instances of at most 16 classes, one head, float32 contributions, erased from the front: the
// common case, with classes in the lanes of a row of margins.
//
// An item's row holds, for c != y, the margin lowered by a multiple of the near-tie tolerance t, or
// of a bound of it that is at most twice as much,
//   m'_{i,c} = a_i [(s_{i,y} + b_y) - (s_{i,c} + b_c) - L],
// and a_i in column y. While every sum of m' is positive nothing flips and nothing is near a tie,
// so that the signs decide a prefix. At the first negative sum the margins are read back,
// sum m = sum m' + L A; if one of them is within the tolerance, the ranking is scanned again with
// the margins of the contract. Everything unusual (not finite, scores that span too much, no mass
// at all) takes the general way.
//
// Rows are doubles and L = t, or, for more than 8 classes, floats: half the memory, and sums in one
// vector instead of two. |m'_i| <= 2 a_i S with the scale S = t / 3e-6, so that with u = 2^-24
//   a row is off by at most 8 u a_i S                                     0.16 t a_i,
//   a sum of 16 rows by another 15 u (2 S A), its start by u (2 S A)      0.64 t A;
// L = 2 t keeps every sum above t A positive nevertheless. Sums are carried on from 16 to 16 ranks
// in double. Curves need better sums than that, and weights may be too small for floats.

#pragma once

#include "cpu/scan.h"
#include "cpu/simd/lanes.h"
#include "cpu/simd/math.h"
#include "cpu/simd/transpose.h"
#include "cpu/usual/projection.h"

namespace fae::cpu {
namespace {

constexpr std::int64_t kCheckpoint = 16;  // ranks between two checkpoints of the sums

template <int V>
struct DoubleRow {
  using Real = double;
  static constexpr bool kFloat = false;
  static constexpr int kVectors = V;
  static constexpr int kWidth = 8 * V;
  static constexpr double kLowering = 1.1, kSlack = 0, kFrontSlack = 1e-3;  // in tolerances
  static constexpr double kLeastMass = 1.0 / 1024;  // for sums from the front
};

struct FloatRow {
  using Real = float;
  static constexpr bool kFloat = true;
  static constexpr int kVectors = 2;
  static constexpr int kWidth = 16;
  static constexpr double kLowering = 2, kSlack = 0.2, kFrontSlack = 0.5;
  static constexpr double kLeastMass = 0.5;
};

// What `body` makes of the instance's kind of rows.
template <class Body>
FAE_INLINE auto with_rows(const SweepParams& p, const UsualInstance& I, Body body) {
  if (p.C <= 8) return body(DoubleRow<1>());
  if (I.compact) return body(FloatRow());
  return body(DoubleRow<2>());
}

template <class Row>
FAE_INLINE typename Row::Real* row_of(const UsualInstance& I, std::int64_t i) {
  return reinterpret_cast<typename Row::Real*>(I.rows) + i * Row::kWidth;
}

template <class Row>
FAE_INLINE void load_row(const typename Row::Real* row, D8 (&x)[Row::kVectors]) {
  if constexpr (Row::kFloat) {
    const F16 both = Load<F16>(row);
    x[0] = PromoteLowerTo(both);
    x[1] = PromoteUpperTo(both);
  } else {
#pragma GCC unroll 2
    for (int v = 0; v < Row::kVectors; ++v) x[v] = Load<D8>(row + 8 * v);
  }
}

template <class Row>
FAE_INLINE void add_row(const UsualInstance& I, std::int64_t i, D8 (&sum)[Row::kVectors]) {
  D8 x[Row::kVectors];
  load_row<Row>(row_of<Row>(I, i), x);
#pragma GCC unroll 2
  for (int v = 0; v < Row::kVectors; ++v) sum[v] = sum[v] + x[v];
}

template <int V>
FAE_INLINE void clear_sums(D8 (&sum)[V]) {
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) sum[v] = Zero<D8>();
}

template <int V>
FAE_INLINE void load_sums(const double* from, std::int64_t C, D8 (&sum)[V]) {
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) sum[v] = LoadN<D8>(from + 8 * v, C - 8 * v);
}

template <int V>
FAE_INLINE void store_sums(double* to, const D8 (&sum)[V]) {
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) Store(sum[v], to + 8 * v);
}

// Weights of scores or weights that are all usual; false where the general way is needed.
inline bool load_usual(const SweepParams& p, UsualInstance& I) {
  const std::int64_t n = I.n;
  double* e = p.is_scores ? I.e : I.a;
  load_elements(p.attention, p.attention_dtype, I.first * p.attention_stride_t,
                p.attention_stride_t, n, e);
  const D8 nothing = Set<D8>(p.is_scores ? -kInf : 0.0);
  D8 high = Set<D8>(-kInf), low = Set<D8>(kInf), sum = Zero<D8>();
  auto odd = FirstN<D8>(0);
  std::int64_t absent = 0;
  if (n <= 0) return false;
  memset(I.massless, 0, n);
  for (std::int64_t i = 0; i < n; i += 8) {
    const D8 x = LoadN<D8>(e + i, n - i);
    const auto lanes = FirstN<D8>(n - i);
    const auto none = lanes & (x == nothing);
    const auto some = lanes & Not(none);
    odd = odd | (some & Not(x - x == Zero<D8>()));
    high = IfThenElse(some, Max(high, x), high);
    low = IfThenElse(some, Min(low, x), low);
    const std::uint32_t bits = BitsFromMask(none);
    if (bits != 0) {
      absent += __builtin_popcount(bits);
      for (std::int64_t l = 0; l < 8 && i + l < n; ++l) I.massless[i + l] = bits >> l & 1;
    }
  }
  if (absent == n || AnyTrue(odd)) return false;
  const double largest = ReduceMax(high), least = ReduceMin(low);
  if (p.is_scores && largest - least > kUnderflowSpan) return false;
  if (!p.is_scores && (least < 0 || largest > 1e250 || largest < 1e-250)) return false;
  for (std::int64_t i = 0; i < n; i += 8) {
    D8 w = LoadN<D8>(e + i, n - i);
    if (p.is_scores) w = Exp(w - Set<D8>(largest));
    w = IfThenElseZero(FirstN<D8>(n - i), w);
    StoreN(w, I.a + i, n - i);
    sum = sum + w;
  }
  const double per_sum = 1 / ReduceSum(sum);
  for (std::int64_t i = 0; i < n; i += 8) {
    StoreN(LoadN<D8>(I.a + i, n - i) * Set<D8>(per_sum), I.a + i, n - i);
  }
  I.with_mass = n - absent;
  I.bounded = accumulators(p.C) >= kFewestBounded && n * p.D <= kMostBounded;
  I.least = (p.is_scores ? GetLane(Exp(Set<D8>(least - largest))) : least) * per_sum;
  return I.least > 1e-290;  // else what margins are lowered by may vanish beside it
}

inline void project_usual(const SweepParams& p, UsualInstance& I, std::int64_t begin,
                          std::int64_t end) {
  alignas(64) float converted[kItems * kMaxSpan];
  const Projection out{I.packed_weights, I.columns, I.pitch, converted, nullptr};
  const ProjectColumns project = project_columns_for(p.C, I.bounded);
  memset(I.columns + begin, 0, (end - begin) * sizeof *I.columns);  // class 0
  for (std::int64_t i = begin; i < end; i += kSlice) {
    const std::int64_t to = i + kSlice < end ? i + kSlice : end;
    I.norm2[i / kSlice] = project(p, out, I.first + i, I.first + to, i);
  }
}

// Sums of the weighted contributions to G classes, c and those that follow.
template <int G>
inline void weighted_sums(const UsualInstance& I, std::int64_t c, double* to) {
  D8 sum[G], more[G];
  clear_sums(sum);
  clear_sums(more);
  for (std::int64_t i = 0; i < I.n; i += 16) {
    const D8 a = LoadN<D8>(I.a + i, I.n - i);
    const D8 b = LoadN<D8>(I.a + i + 8, I.n - i - 8);
    const bool full = i + 16 <= I.n;
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) {
      const float* s = I.columns + (c + g) * I.pitch + i;
      D8 x = LoadPromoted(s), y = LoadPromoted(s + 8);
      if (!full) {  // whatever is behind the items may be no number
        x = IfThenElseZero(FirstN<D8>(I.n - i), x);
        y = IfThenElseZero(FirstN<D8>(I.n - i - 8), y);
      }
      sum[g] = MulAdd(a, x, sum[g]);
      more[g] = MulAdd(b, y, more[g]);
    }
  }
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g) to[g] = ReduceSum(sum[g] + more[g]);
}

// Puts the tolerance itself in the place of a bound of it. What is clear by the bound is clear;
// sums within it are judged anew. Rows stay lowered by multiples of the bound, as their slack does.
inline __attribute__((noinline)) void make_tolerance_exact(const SweepParams& p, UsualInstance& I) {
  if (!I.bounded) return;
  I.bounded = false;
  I.tolerance = tolerance_of(p, I, read_norm(p, I));
}

// Label, probabilities, tolerance; false where the general way is needed.
inline bool originate_label(const SweepParams& p, UsualInstance& I) {
  const std::int64_t C = p.C;
  if (I.bad_bias) return false;
  alignas(64) double z[16];
  D8 mass = Zero<D8>();
  for (std::int64_t i = 0; i < I.n; i += 8) {
    mass = mass + LoadN<D8>(I.a + i, I.n - i);
  }
  const double total = ReduceSum(mass);
  z[0] = 0;
  std::int64_t c = 1;
  for (; c + 4 <= C; c += 4) weighted_sums<4>(I, c, z + c);
  for (; c + 2 <= C; c += 2) weighted_sums<2>(I, c, z + c);
  if (c < C) weighted_sums<1>(I, c, z + c);
  for (c = 0; c < C; ++c) {
    z[c] = z[c] / total + I.bias[c];
    if (!is_finite(z[c])) return false;
  }
  I.label = 0;
  for (std::int64_t c = 0; c < C; ++c) {
    if (z[c] > z[I.label]) I.label = c;
  }
  const double top = z[I.label];
  if (p.logits != nullptr) {
    const auto weight = [&](std::int64_t i) { return I.a[i]; };
    const double first = first_class_sum(p, I.first, I.n, weight) / total;
    for (c = 0; c < C; ++c) I.logits[c] = z[c] + first;
  }
  const double norm = largest_usual_norm(p, I);
  if (!(norm * I.head_norm < kMostContribution)) return false;
  I.tolerance = tolerance_of(p, I, norm);
  for (std::int64_t c = C; c < 16; ++c) z[c] = -kInf;
  D8 q[2], relative[2];
  for (int k = 0; k < 2; ++k) {
    relative[k] = Load<D8>(z + 8 * k) - Set<D8>(top);
    q[k] = Exp(relative[k]);
  }
  const double sum = ReduceSum(q[0] + q[1]);
  const double log_sum = log(sum);
  for (int k = 0; k < 2; ++k) {
    StoreN(q[k] / Set<D8>(sum), I.probability + 8 * k, C - 8 * k);
    StoreN(relative[k] - Set<D8>(log_sum), I.log_probability + 8 * k, C - 8 * k);
  }
  double least = kInf;
  for (std::int64_t c = 0; c < C; ++c) {
    I.row_sum[c] = (top - z[c]) * total;  // yet to be lowered
    if (c != I.label && I.row_sum[c] < least) least = I.row_sum[c];
  }
  I.row_sum[I.label] = total;
  const double above = total * (1 + 1e-9);
  if (least < I.tolerance * above) {
    make_tolerance_exact(p, I);
    if (least < I.tolerance * above) I.status |= kNearTie;
  }
  return true;
}

// Rows of doubles, from columns of contributions: two transposes of 8 by 8.
template <int V>
inline void margin_rows(const SweepParams& p, const UsualInstance& I, DoubleRow<V>) {
  const std::int64_t n = I.n;
  const float* own_column = I.columns + I.label * I.pitch;
  const double own_bias = I.bias[I.label];
  const D8 lower = Set<D8>(I.lowering);
  for (std::int64_t i = 0; i < n; i += 8) {
    const std::int64_t count = n - i < 8 ? n - i : 8;
    const D8 a = LoadN<D8>(I.a + i, count);
    const D8 own = LoadPromoted(own_column + i) + Set<D8>(own_bias);
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      D8 r[8];
#pragma GCC unroll 8
      for (int k = 0; k < 8; ++k) {
        const std::int64_t c = 8 * v + k;
        r[k] = Zero<D8>();
        if (c < p.C) {
          const D8 other = LoadPromoted(I.columns + c * I.pitch + i) + Set<D8>(I.bias[c]);
          r[k] = a * (own - other - lower);
          if (c == I.label) r[k] = a;
        }
      }
      Transpose8(r);
      double* to = I.rows + i * 8 * V + 8 * v;
#pragma GCC unroll 8
      for (int k = 0; k < 8; ++k) {
        if (k < count) Store(r[k], to + k * 8 * V);
      }
    }
  }
}

// The gradient of the weights, up to a factor that is the same for all items,
//   sum_c p_c (s_{i,y} - s_{i,c}) / max_{c != y} p_c,
// in float: contributions are no better, and the factor keeps every p_c that counts a normal
// number.
struct GradientWeights {
  float of_class[16];

  GradientWeights(const SweepParams& p, const UsualInstance& I) {
    double largest = 0;
    for (std::int64_t c = 0; c < p.C; ++c) {
      if (c != I.label && I.probability[c] > largest) largest = I.probability[c];
    }
    for (std::int64_t c = 0; c < 16; ++c) {
      const bool other = c < p.C && c != I.label && largest > 0;
      of_class[c] = other ? static_cast<float>(I.probability[c] / largest) : 0.0f;
    }
  }
};

inline void store_gradient(const UsualInstance& I, std::int64_t i, F16 gradient) {
  StoreN(PromoteLowerTo(gradient), I.gradient + i, I.n - i);
  StoreN(PromoteUpperTo(gradient), I.gradient + i + 8, I.n - i - 8);
}

inline void gradient_usual(const SweepParams& p, UsualInstance& I) {
  const GradientWeights weights(p, I);
  const float* own_column = I.columns + I.label * I.pitch;
  for (std::int64_t i = 0; i < I.n; i += 16) {
    const F16 own = Load<F16>(own_column + i);
    F16 sum = Zero<F16>();
    for (std::int64_t c = 0; c < p.C; ++c) {
      const F16 difference = own - Load<F16>(I.columns + c * I.pitch + i);
      sum = MulAdd(Set<F16>(weights.of_class[c]), difference, sum);
    }
    store_gradient(I, i, sum);
  }
}

// Rows of floats: a transpose of 16 by 16. The gradient, which needs the same differences, comes
// with them.
template <bool kGradient>
inline void margin_rows(const SweepParams& p, const UsualInstance& I, FloatRow) {
  const std::int64_t n = I.n;
  const float* own_column = I.columns + I.label * I.pitch;
  const GradientWeights weights(p, I);
  float apart[16];  // of the biases, lowered
#pragma GCC unroll 16
  for (int c = 0; c < 16; ++c) {
    const double other = c < p.C ? I.bias[c] : 0;
    apart[c] = static_cast<float>(I.bias[I.label] - other - I.lowering);
  }
  for (std::int64_t i = 0; i < n; i += 16) {
    const D8 low = LoadN<D8>(I.a + i, n - i);
    const D8 high = LoadN<D8>(I.a + i + 8, n - i - 8);
    const F16 a = OrderedDemote2To(low, high);
    const F16 own = Load<F16>(own_column + i);
    F16 r[16];
    F16 gradient = Zero<F16>();
#pragma GCC unroll 16
    for (int c = 0; c < 16; ++c) {
      r[c] = Zero<F16>();
      if (c < p.C) {
        const F16 difference = own - Load<F16>(I.columns + c * I.pitch + i);
        if (kGradient) gradient = MulAdd(Set<F16>(weights.of_class[c]), difference, gradient);
        r[c] = a * (difference + Set<F16>(apart[c]));
        if (c == I.label) r[c] = a;
      }
    }
    if (kGradient) store_gradient(I, i, gradient);
    Transpose16(r);
    float* to = row_of<FloatRow>(I, i);
#pragma GCC unroll 16
    for (int k = 0; k < 16; ++k) {
      if (i + k < n) Store(r[k], to + 16 * k);
    }
  }
}

// The contract's own sums over survivors, with margins computed on the way.
struct ExactSums {
  double sum[16] = {};
  double mass = 0;

  void add(const SweepParams& p, const UsualInstance& I, std::int64_t i) {
    const double a = I.a[i];
    const double own = static_cast<double>(I.columns[I.label * I.pitch + i]) + I.bias[I.label];
    for (std::int64_t c = 0; c < p.C; ++c) {
      sum[c] += a * (own - (static_cast<double>(I.columns[c * I.pitch + i]) + I.bias[c]));
    }
    mass += a;
  }

  std::int64_t decide(const SweepParams& p, const UsualInstance& I, bool* near) const {
    if (mass == 0) return I.bias_label;
    std::int64_t decision = I.label;
    double least = 0;
    for (std::int64_t c = 0; c < p.C; ++c) {
      if (c == I.label) continue;
      if (sum[c] < least || (sum[c] == least && c < decision)) {
        least = sum[c];
        decision = c;
      }
      if (sum[c] < I.tolerance * mass && -sum[c] < I.tolerance * mass) *near = true;
    }
    return decision;
  }
};

// Walks from rank `from` down to rank `to` and keeps the first flip and the first near-tie met.
inline void exact_walk(const SweepParams& p, const UsualInstance& I, const std::uint32_t* order,
                       std::int64_t from, std::int64_t to, ExactSums& sums, Flip* flip,
                       std::int64_t* nearest) {
  for (std::int64_t k = from - 1; k >= to; --k) {
    sums.add(p, I, order[k]);
    bool near = false;
    const std::int64_t decision = sums.decide(p, I, &near);
    if (near) *nearest = k;
    if (k > 0 && decision != I.label) {
      flip->first = k;
      flip->label = decision;
    }
  }
}

// All ranks, for rankings near a tie.
inline __attribute__((noinline)) Flip exact_scan(const SweepParams& p, const UsualInstance& I,
                                                 const std::uint32_t* order) {
  Flip flip;
  std::int64_t nearest = -1;
  if (I.bias_label != I.label) {
    flip.first = I.n;
    flip.label = I.bias_label;
  }
  ExactSums sums;
  exact_walk(p, I, order, I.n, 0, sums, &flip, &nearest);
  flip.near = nearest >= 0 && (flip.first < 0 || nearest <= flip.first);
  return flip;
}

// Reads a row of lowered sums, each off by at most `slack`: whether every margin is clear of the
// tolerance and the least of negative ones clear of the others, and the decision.
inline bool clear_decision(const SweepParams& p, const UsualInstance& I, const double* sums,
                           double slack, std::int64_t* decision) {
  const double mass = sums[I.label];
  const double lowered = I.lowering * mass;
  const double near = I.tolerance * mass * (1 + 1e-9) + slack;
  double least = 0, next = kInf;
  *decision = I.label;
  for (std::int64_t c = 0; c < p.C; ++c) {
    if (c == I.label) continue;
    const double margin = sums[c] + lowered;
    if (margin < near && -margin < near) return false;
    if (margin < least) {
      next = *decision == I.label ? kInf : least;
      least = margin;
      *decision = c;
    } else if (margin < next) {
      next = margin;
    }
  }
  return *decision == I.label || slack == 0 || next > least + 2 * slack;
}

}  // namespace
}  // namespace fae::cpu
