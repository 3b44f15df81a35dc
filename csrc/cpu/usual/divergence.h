// Divergences of 16 distributions at a time from the original one, from their rows of lowered sums.
//
// Each row gives z_c - z_y = -(sum m'_c / A + L). Rows are rounded to float32 and become columns.
// All logarithms are to base 2 until the end. With e_c = 2^(z_c - z_y), S their sum, q = e / S,
// m = (p + q) / 2 and H the entropy,
//   2 JS = 2 H(m) - H(p) - H(q),   KL = sum_c q_c (log q_c - log p_c),
//   H(q) = log S - sum_c e_c (z_c - z_y) / S:
// an exponential and a logarithm a class, and none of them for e_y = 1.
//
// What is off, with u = 2^-24:
//   - z_c - z_y by 4 u of itself, for which JS moves by less than a tenth of the difference between
//     two classes: 1e-7 up to kCoarse. Beyond that, and where the survivors' mass is very small,
//     rows are divided in float64 and taken relative to their largest.
//   - e by 2e-7 of itself, of which q keeps what differs between classes: less than 1e-7 of JS.
//   - log m by 4e-8 and, as it is seldom below -4 where m counts, twice 2 u: JS by 1e-7.
//   - The sums for H(q) and H(m), of at most 16 terms and within [-4, 4], by up to 2 u a term: 2e-6
//     to base 2 at the worst, of which JS takes a third. Terms of H(q) would be larger where S is:
//     above kLopsided rows are taken relative to about log S.
//   - KL by the terms of the change of log q, so that small changes give small terms.
// The largest errors seen are 6e-7 (JS) and 6e-7 (1 + KL) (KL), of 16 classes and 240,000 prefixes.
//
// The processor looks ahead by about 150 vector operations, fewer than a block of 16 prefixes
// takes: exponentials of a block, columns of the next and logarithms of the block, among which the
// rows of the next but one are summed, follow each other so that none waits for the one before.
//
// Ladder, JS of every prefix of four rankings on 2,000 instances of n~300, C = 10 (1 thread, ns a
// prefix beyond the plain sweep): differences in float64, natural logarithms by a division 12.2;
// differences in float32 after the transpose, base 2, table for the logarithm 9.2; this 6.4.

#pragma once

#include "cpu/usual/scan.h"

namespace fae::cpu {
namespace {

struct Divergences {
  F16 js, kl, label_probability;
};

constexpr float kLightMass = 1e-30f;
constexpr float kLog2E = 1.44269504f;
constexpr double kLog2EDouble = 1.44269504088896340736;
constexpr float kLn2 = 0.693147181f;
constexpr float kFarthest = 110;  // z_c - z_y either way, for exp2_near
constexpr float kCoarse = 3000;   // S
constexpr float kLopsided = 20;   // S, above the 16 of 16 equal classes

// To base 2, in slots: a slot is a class, but the label's and the last class are exchanged.
struct Original {
  alignas(64) float p[16];
  alignas(64) float z[16];        // z_c - z_y where everything survives
  alignas(64) float nothing[16];  // -(z_c - z_y + L) where nothing survives
  float p_log_p;                  // the sum over the classes
  float own_log_p;                // log p_y
  float lowered;                  // -L
  bool light;  // some weight is so small that a sum of weights may round to nothing
  bool steep;  // some z_c - z_y may be beyond kFarthest
};

inline void load_original(const SweepParams& p, const UsualInstance& I, Original& o) {
  const double own_log_p = I.log_probability[I.label] * kLog2EDouble;
  double p_log_p = 0;
  for (std::int64_t c = 0; c < p.C; ++c) {
    const std::int64_t slot = c == I.label ? p.C - 1 : c == p.C - 1 ? I.label : c;
    const double log_p = I.log_probability[c] * kLog2EDouble;
    const float probability = static_cast<float>(I.probability[c]);
    o.p[slot] = probability > 1e-37f ? probability : 1e-37f;  // so that log m is finite
    o.z[slot] = static_cast<float>(log_p - own_log_p);
    o.nothing[slot] = static_cast<float>((I.bias[I.label] - I.bias[c] - I.lowering) * kLog2EDouble);
    p_log_p += I.probability[c] * log_p;
  }
  o.p_log_p = static_cast<float>(p_log_p);
  o.own_log_p = static_cast<float>(own_log_p);
  o.lowered = static_cast<float>(-I.lowering * kLog2EDouble);
  D8 least = Set<D8>(1);
  for (std::int64_t i = 0; i < I.n; i += 8) {
    const D8 a = LoadN<D8>(I.a + i, I.n - i);
    least = IfThenElse(a > Zero<D8>(), Min(least, a), least);
  }
  o.light = ReduceMin(least) < kLightMass;
  // A mean of margins is at most twice the scale that the tolerance is a multiple of.
  o.steep = !(I.tolerance * (2 * kLog2EDouble / kNearTieTolerance) < kFarthest);
}

// Sixteen rows of sums, rounded, as columns.
template <int V>
FAE_INLINE void columns_of_sums(const double* rows, std::int64_t C, F16 (&t)[16]) {
  if constexpr (V == 2) {
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
      t[r] = OrderedDemote2To(Load<D8>(rows + 16 * r), Load<D8>(rows + 16 * r + 8));
    }
    Transpose16(t);
  } else {
    alignas(64) float rounded[16][8];
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) Store(DemoteTo(Load<D8>(rows + 8 * r)), rounded[r]);
    for (int quarter = 0; 4 * quarter < C; ++quarter) {  // classes
      F16 x[4];                                          // in quarter L of x[k], row 4 L + k
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        x[k] = LoadQuarters<F16>([&](int L) { return rounded[4 * L + k] + 4 * quarter; });
      }
      TransposeQuarters(x, t + 4 * quarter);
    }
  }
}

// z_c - z_largest to base 2, divided in float64; not below -kFarthest.
template <int V>
inline __attribute__((noinline)) void fine_columns(const SweepParams& p, const UsualInstance& I,
                                                   const double* rows, F16 (&t)[16]) {
  const D8 lower = Set<D8>(-I.lowering);
  const D8 to_base2 = Set<D8>(kLog2EDouble);
  for (int r = 0; r < 16; ++r) {
    const double* row = rows + r * 8 * V;
    const double mass = row[I.label];
    D8 z[2] = {Zero<D8>(), Zero<D8>()};
    D8 largest = Set<D8>(-kInf);
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      const auto classes = FirstN<D8>(p.C - 8 * v);
      const auto label = MaskFromBits<D8>(I.label / 8 == v ? 1u << I.label % 8 : 0);
      if (mass > 0) {
        z[v] = MulAdd(Load<D8>(row + 8 * v), Set<D8>(-1 / mass), lower);
      } else {  // no mass survives: the bias alone
        z[v] = LoadN<D8>(I.bias + 8 * v, p.C - 8 * v) - Set<D8>(I.bias[I.label]);
      }
      z[v] = IfThenElse(label, Zero<D8>(), z[v]);
      largest = IfThenElse(classes, Max(largest, z[v]), largest);
    }
    const D8 high = Set<D8>(ReduceMax(largest));
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      z[v] = Max((z[v] - high) * to_base2, Set<D8>(-kFarthest));
    }
    t[r] = OrderedDemote2To(z[0], z[1]);
  }
  Transpose16(t);
}

// The divergences of 16 rows by steps, between which the caller may do something else. Arrays are
// the caller's: among them members would not stay in registers.
class Diverging {
 public:
  FAE_INLINE Diverging(const SweepParams& p, const UsualInstance& I, const Original& o,
                       bool with_kl)
      : o_(o), label_(I.label), last_(p.C - 1), with_kl_(with_kl) {}

  // Columns by class, which become columns by slot.
  FAE_INLINE void take(F16 (&t)[16]) {
    const F16 mass = t[label_];
    const auto none = mass == Zero<F16>();
    t[label_] = t[last_];
    per_mass_ = Set<F16>(kLog2E) / mass;
    from_ = Set<F16>(o_.lowered);
    fine_ = o_.light && AnyTrue(Not(mass >= Set<F16>(kLightMass)));
    if (AnyTrue(none)) {
      per_mass_ = IfThenElse(none, Set<F16>(1.0f), per_mass_);
      for (std::int64_t c = 0; c < last_; ++c) {
        t[c] = IfThenElse(none, Set<F16>(o_.nothing[c]), t[c]);
      }
    }
    if (o_.steep) {
      F16 farthest = Zero<F16>();
      for (std::int64_t c = 0; c < last_; ++c) {
        const F16 z = NegMulAdd(t[c], per_mass_, from_);
        farthest = Max(farthest, Abs(z));
      }
      fine_ = fine_ || AnyTrue(Not(farthest <= Set<F16>(kFarthest)));
    }
  }

  // e by slot, and what its sums give; fine(t) puts fine columns in t.
  template <class Fine>
  FAE_INLINE void weigh(F16 (&t)[16], F16 (&e)[16], Fine fine) {
    const F16 one = Set<F16>(1.0f);
    own_ = Zero<F16>();
    own_e_ = one;
    if (__builtin_expect(fine_, 0)) take_fine(t, fine);
    F16 sum, dot;
    for (bool again = false;; again = true) {
      sum = own_e_;
      dot = own_e_ * own_;
      if (with_kl_) change_ = dot;  // of the label z_y - z_y was 0 before
      for (std::int64_t c = 0; c < last_; ++c) {
        const F16 z = NegMulAdd(t[c], per_mass_, from_);
        e[c] = Exp2Near(z);
        sum = sum + e[c];
        dot = MulAdd(e[c], z, dot);
        if (with_kl_) {
          change_ = MulAdd(e[c], z - Set<F16>(o_.z[c]), change_);
        }
      }
      const auto above = [&](float limit) __attribute__((always_inline)) {
        return AnyTrue(Not(sum <= Set<F16>(limit)));
      };
      if (__builtin_expect(again || !above(kLopsided), 1)) break;
      if (above(kCoarse)) {
        take_fine(t, fine);
      } else {
        const F16 high = Exponent(sum);
        from_ = from_ - high;
        own_ = own_ - high;
        own_e_ = Exp2Near(own_);
      }
    }
    e[last_] = own_e_;
    per_sum_ = one / sum;
    const F16 log_sum = log2_of_half_(sum) + one;
    q_log_q_ = MulSub(dot, per_sum_, log_sum);
    if (with_kl_) log_growth_ = log_sum + Set<F16>(o_.own_log_p);
  }

  // The divergences; calls between() once a class.
  template <class Between>
  FAE_INLINE Divergences finish(const F16 (&e)[16], Between between) const {
    const F16 zero = Zero<F16>();
    F16 js = Set<F16>(o_.p_log_p);  // twice JS, yet without H(q)
    for (std::int64_t c = 0; c <= last_; ++c) {
      const F16 both = MulAdd(e[c], per_sum_, Set<F16>(o_.p[c]));
      js = NegMulAdd(both, log2_of_half_(both), js);
      between();
    }
    js = Max(js + q_log_q_, zero);
    js = js * Set<F16>(kLn2 / 2);
    F16 kl = zero;
    if (with_kl_) {
      kl = Max(MulSub(change_, per_sum_, log_growth_), zero);
      kl = kl * Set<F16>(kLn2);
    }
    return {Min(js, Set<F16>(kLog2Below)), kl, own_e_ * per_sum_};
  }

 private:
  template <class Fine>
  FAE_INLINE void take_fine(F16 (&t)[16], Fine fine) {
    fine(t);
    own_ = t[label_];
    own_e_ = Exp2Near(own_);
    t[label_] = t[last_];
    per_mass_ = Set<F16>(-1.0f);
    from_ = Zero<F16>();
  }

  const Original& o_;
  const std::int64_t label_, last_;  // slot of the label
  const bool with_kl_;
  bool fine_;  // whether to divide in float64 from the start
  Log2OfHalf log2_of_half_;
  F16 per_mass_, from_;           // z_c - z_y = from - t_c per_mass
  F16 own_, own_e_;               // of the label
  F16 per_sum_, q_log_q_;         // q_log_q: the sum over the classes, -H(q)
  F16 change_ = Zero<F16>();      // sum of e_c times what z_c - z_y has changed by
  F16 log_growth_ = Zero<F16>();  // log S less what it was where everything survives
};

// Divergences from the rows and their columns; these are destroyed.
template <int V>
inline Divergences diverge_rows(const SweepParams& p, const UsualInstance& I, const Original& o,
                                bool with_kl, const double* rows, F16 (&t)[16]) {
  F16 e[16];
  Diverging d(p, I, o, with_kl);
  d.take(t);
  d.weigh(t, e, [&](F16(&columns)[16]) { fine_columns<V>(p, I, rows, columns); });
  return d.finish(e, [] {});
}

inline bool wants_distances(const SweepParams& p) {
  return p.curve_js != nullptr || p.curve_kl != nullptr || p.curve_label_prob != nullptr;
}

// Sums of rows of at most 4 Q classes; where Q is odd, of kLast in the last four.
template <int Q, int kLast>
struct QuadSums {
  using Last = Vec<double, kLast>;
  D8 full[2];
  Last last;

  FAE_INLINE void clear() {
    full[0] = full[1] = Zero<D8>();
    last = Zero<Last>();
  }
  FAE_INLINE void add(const double* row) {
#pragma GCC unroll 2
    for (int v = 0; v < Q / 2; ++v) full[v] = full[v] + Load<D8>(row + 8 * v);
    if constexpr (Q % 2 == 1) last = last + Load<Last>(row + 4 * (Q - 1));
  }
  FAE_INLINE void round(float* to) const {
#pragma GCC unroll 2
    for (int v = 0; v < Q / 2; ++v) Store(DemoteTo(full[v]), to + 8 * v);
    if constexpr (Q % 2 == 1) Store(DemoteTo(last), to + 4 * (Q - 1));
  }
  // As a row, with zeros up to its end.
  FAE_INLINE void store(double* row) const {
#pragma GCC unroll 2
    for (int v = 0; v < Q / 2; ++v) Store(full[v], row + 8 * v);
    if constexpr (Q % 2 == 1) {
      Store(Zero<D8>(), row + 4 * (Q - 1));
      Store(last, row + 4 * (Q - 1));
    }
  }
};

// Sums of one ranking from its tail on, by blocks of 16 prefixes; rounded into `rows`, the
// caller's.
template <int V, int Q, int kLast>
struct CurveSums {
  const UsualInstance& I;
  const UsualWork& w;
  const int g;
  std::int64_t block, left;  // the block being summed, and how many of its prefixes are left
  QuadSums<Q, kLast> sum;

  // The last block, beginning with the prefix that leaves nothing.
  FAE_INLINE void begin(float (&rows)[16][16]) {
    sum.clear();
    block = I.n / 16;
    left = 16;
    for (; 16 * block + left > I.n; --left) sum.round(rows[left - 1]);
    complete(rows);
  }
  FAE_INLINE void next_block() {
    --block, left = block >= 0 ? 16 : 0;
    if (I.n > kBeyondCache && block >= 1) {
      request_rows<DoubleRow<V>>(I, w.orders[g], 16 * (block - 1), 16 * block);
    }
  }
  FAE_INLINE void step(float (&rows)[16][16]) {
    --left;
    sum.add(row_of<DoubleRow<V>>(I, w.orders[g][16 * block + left]));
    sum.round(rows[left]);
  }
  FAE_INLINE void complete(float (&rows)[16][16]) {
    if (block < 0) return;
    while (left > 0) step(rows);
    sum.store(w.checkpoints[g] + block * 8 * V);
  }
};

template <int Q>
FAE_INLINE void columns_of_rows(const float (&rows)[16][16], F16 (&t)[16]) {
#pragma GCC unroll 4
  for (int q = 0; q < Q; ++q) {
    F16 x[4];  // in quarter L of x[k], row 4 L + k
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      x[k] = LoadQuarters<F16>([&](int L) { return rows[4 * L + k] + 4 * q; });
    }
    TransposeQuarters(x, t + 4 * q);
  }
}

// Fine columns of a block that has been summed before.
template <int V>
inline void sum_again(const SweepParams& p, const UsualInstance& I, const UsualWork& w, int g,
                      std::int64_t block, F16 (&columns)[16]) {
  constexpr std::int64_t kRow = 8 * V;
  alignas(64) double rows[16 * kRow];
  D8 sum[V];
  clear_sums(sum);
  const std::int64_t begin = 16 * block, end = begin + 16;
  if (end < I.n) load_row<DoubleRow<V>>(w.checkpoints[g] + (block + 1) * kRow, sum);
  for (std::int64_t k = end - 1; k >= begin; --k) {
    if (k < I.n) add_row<DoubleRow<V>>(I, w.orders[g][k], sum);
    store_sums(rows + (k - begin) * kRow, sum);
  }
  fine_columns<V>(p, I, rows, columns);
}

// One ranking: its distances from the original, its signs and checkpoints.
template <int V, int Q, int kLast>
inline void draw_distances(const SweepParams& p, const UsualInstance& I, const UsualWork& w, int g,
                           std::int64_t r, const Original& o) {
  static_assert(kCheckpoint == 16, "a checkpoint and its sign for each block of prefixes");
  const std::int64_t at = r * (p.T + p.B) + I.first + I.index;
  const std::int64_t rows_a_class = (15 + p.C) / p.C;
  alignas(64) float rows[16][16];  // the last two of a row stay unset where kLast is 2: no classes
  F16 t[16], e[16];
  Diverging d(p, I, o, p.curve_kl != nullptr);
  CurveSums<V, Q, kLast> sums{I, w, g, 0, 0, {}};
  const auto take = [&]() __attribute__((always_inline)) {
    columns_of_rows<Q>(rows, t);
    F16 any = t[0];
    for (std::int64_t c = 1; c < p.C; ++c) any = any | t[c];
    w.signs[g][sums.block] = AnyNegative(any);
    d.take(t);
    sums.next_block();
  };
  sums.begin(rows);
  take();
  sums.complete(rows);
  for (std::int64_t block = I.n / 16; block >= 0; --block) {
    d.weigh(t, e, [&](F16(&columns)[16]) { sum_again<V>(p, I, w, g, block, columns); });
    if (block > 0) take();
    Divergences result = d.finish(e, [&]() __attribute__((always_inline)) {
      for (std::int64_t k = 0; k < rows_a_class && sums.left > 0; ++k) sums.step(rows);
    });
    sums.complete(rows);
    if (block == 0) {  // nothing is erased: the original distribution itself
      const auto first = FirstN<F16>(1);
      result.js = IfThenZeroElse(first, result.js);
      result.kl = IfThenZeroElse(first, result.kl);
      result.label_probability =
          IfThenElse(first, Set<F16>(o.p[p.C - 1]), result.label_probability);
    }
    const std::int64_t count = I.n + 1 - 16 * block;
    const auto write = [&](void* to, F16 x) __attribute__((always_inline)) {
      if (to != nullptr) StoreN(x, static_cast<float*>(to) + at + 16 * block, count);
    };
    write(p.curve_js, result.js);
    write(p.curve_kl, result.kl);
    write(p.curve_label_prob, result.label_probability);
  }
}

// One ranking with its curves, its signs and checkpoints.
template <int V>
inline void scan_curves(const SweepParams& p, const UsualInstance& I, const UsualWork& w, int g,
                        std::int64_t r, const Original& o) {
  if (p.curve_mass != nullptr) {
    double* to = p.curve_mass + r * (p.T + p.B) + I.first + I.index;
    double mass = 0;
    for (std::int64_t k = I.n; k >= 0; --k) {
      if (k < I.n) mass += I.a[w.orders[g][k]];
      to[k] = mass;
    }
  }
  const auto draw = [&]<int Q, int kLast>() { draw_distances<V, Q, kLast>(p, I, w, g, r, o); };
  constexpr int kPair = Target::kBytes == 16 ? 2 : 4;  // two classes more are a register more
  if (p.C > 8 * V - 4) {
    draw.template operator()<2 * V, 4>();
  } else if (p.C > 8 * V - 6) {
    draw.template operator()<2 * V - 1, 4>();
  } else {
    draw.template operator()<2 * V - 1, kPair>();
  }
}

}  // namespace
}  // namespace fae::cpu
