// The curve of one ranking: sums over the survivors of every prefix, from the tail on.
//
//   S_k = S_{k+1} + (row of the item at rank k)      erase: survivors are ranks k … n - 1
//   S_k = S_{k-1} + (row of the item at rank k - 1)  keep:  survivors are ranks 0 … k - 1
//
// One random row read an item and ranking. The decision of a prefix is read off the signs of the
// margin sums; divisions and exponentials happen only for curves.
#pragma once

#include "cpu/divergence.h"
#include "cpu/state.h"

namespace fae::cpu {
namespace {

// What a thread needs to judge one state.
struct Judging {
  double* state;     // [state]
  double* logits;    // [C]
  double* relative;  // [C]
  double* q;         // [C]
  double* log_q;     // [C]
};

inline Judging lay_out_judging(const SweepParams& p, Arena& arena) {
  Judging j{};
  j.state = arena.take<double>(p.H * (p.C + 3));
  j.logits = arena.take<double>(p.C);
  j.relative = arena.take<double>(p.C);
  j.q = arena.take<double>(p.C);
  j.log_q = arena.take<double>(p.C);
  return j;
}

inline bool wants_curves(const SweepParams& p) { return wants_any<kCurveOutputs>(p); }

// One point of the curves. `valid`: no bad item is among the survivors; `original`: nothing is
// erased, so that the distribution is the original one by definition.
inline void write_point(const SweepParams& p, const Instance& I, const StateShape& shape,
                        std::int64_t r, std::int64_t k, const double* state, Judging& j,
                        double mass, std::int64_t decision, bool valid, bool original) {
  const bool wide = p.values_dtype == kFloat64;
  const std::int64_t at = r * (p.T + p.B) + I.first + I.index + k;
  if (p.curve_mass != nullptr) p.curve_mass[at] = mass;
  if (p.curve_decision != nullptr) p.curve_decision[at] = valid ? decision : -1;
  const bool distances =
      p.curve_js != nullptr || p.curve_kl != nullptr || p.curve_label_prob != nullptr;
  if (!distances && p.curve_logits == nullptr) return;
  if (valid) state_logits(shape, I, state, j.logits, j.relative);
  if (p.curve_logits != nullptr) {
    for (std::int64_t c = 0; c < p.C; ++c) {
      store_real(p.curve_logits, wide, at * p.C + c, valid ? j.logits[c] : kNan);
    }
  }
  if (!distances) return;
  Divergence d{kNan, kNan, kNan};
  if (I.label >= 0) {
    const bool constant = original || (I.status & (kEmpty | kZeroMass)) != 0;
    d = constant ? Divergence{0, 0, I.probability[I.label]}
                 : diverge(I, p.C, j.relative, j.q, j.log_q);
  }
  if (p.curve_js != nullptr) store_js(p.curve_js, wide, at, d.js);
  if (p.curve_kl != nullptr) store_real(p.curve_kl, wide, at, d.kl);
  if (p.curve_label_prob != nullptr) store_real(p.curve_label_prob, wide, at, d.label_probability);
}

struct Flip {
  std::int64_t first = -1, label = -1;
  bool near = false;
};

// Erase and keep walk the same way: point `step` has `step` survivors, taken from the end of the
// ranking or from its beginning.
inline Flip scan(const SweepParams& p, const Instance& I, const std::uint32_t* order,
                 std::int64_t r, Judging& j) {
  const StateShape shape = state_shape(p, I);
  const std::int64_t n = I.n;
  const bool curves = wants_curves(p);
  const bool keep = p.keep != 0;
  const bool decided = I.label >= 0 && (I.status & (kEmpty | kZeroMass)) == 0;
  Flip flip;
  double mass = 0;
  bool valid = !I.bad_bias;
  std::int64_t nearest = -1;  // the point of a near-tie that counts first
  clear(shape, j.state);
  for (std::int64_t step = 0; step <= n; ++step) {
    const std::int64_t k = keep ? step : n - step;
    if (step > 0) {
      const std::int64_t i = order[keep ? step - 1 : n - step];
      mass += I.mass[i];
      if (I.bad[i]) valid = false;
      if (valid) add(shape, I, i, j.state);
    }
    const bool original = step == n && n > 0;
    Verdict v{I.label, true, false};
    if (valid) v = judge(shape, I, j.state, j.logits);
    if (original && I.label >= 0) v.decision = I.label;
    if (decided) {
      if (keep) {
        if (v.near && flip.first < 0) nearest = k;
        if (k > 0 && flip.first < 0 && v.decision == I.label) {
          flip.first = k;
          flip.label = I.label;
          flip.near = nearest >= 0;
          if (!curves) return flip;
        }
      } else {
        if (v.near) nearest = k;
        if (k > 0 && v.decision != I.label) {
          flip.first = k;
          flip.label = v.decision;
        }
      }
    }
    if (curves) write_point(p, I, shape, r, k, j.state, j, mass, v.decision, valid, original);
  }
  if (!keep && nearest >= 0) flip.near = flip.first < 0 || nearest <= flip.first;
  return flip;
}

// The weight of what is erased at the first flip.
inline double erased_mass(const Instance& I, const std::uint32_t* order, std::int64_t begin,
                          std::int64_t end) {
  double sum = 0;
  for (std::int64_t j = begin; j < end; ++j) sum += I.mass[order[j]];
  return sum;
}

}  // namespace
}  // namespace fae::cpu
