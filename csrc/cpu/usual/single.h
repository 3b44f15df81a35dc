// Every item erased alone: the sum of all rows less the item's, 16 items' divergences at a time.
//
// The difference is as good as the sum over the others while they hold half of the mass; the item
// that outweighs the others, if there is one, is left out of a sum of its own.
//
// Ladder, flip, JS and drop of 2,000 instances of n~300, C = 10 (1 thread, ns an item beyond the
// plain sweep): sums before and after each item, with checkpoints 16.8; differences 11.6.

#pragma once

#include "cpu/usual/divergence.h"
#include "cpu/usual/minimal.h"

namespace fae::cpu {
namespace {

template <class Row>
inline void single_usual(const SweepParams& p, UsualInstance& I, const UsualWork& w) {
  constexpr int V = Row::kVectors;
  constexpr std::int64_t kRow = Row::kWidth;
  const std::int64_t n = I.n;
  Original o{};
  load_original(p, I, o);
  D8 total[V];
  load_sums(I.row_sum, p.C, total);
  const float own_probability = static_cast<float>(I.probability[I.label]);
  bool near = false;
  for (std::int64_t begin = 0; begin < n; begin += 16) {
    const std::int64_t count = n - begin < 16 ? n - begin : 16;
    std::uint32_t doubtful = 0;
    for (std::int64_t j = 0; j < count; ++j) {
      const auto* row = row_of<Row>(I, begin + j);
      D8 own[V], others[V];
      load_row<Row>(row, own);
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) others[v] = total[v] - own[v];
      const bool heavy = row[I.label] > 0.5;
      if (__builtin_expect(heavy, 0)) {
        clear_sums(others);
        for (std::int64_t k = 0; k < n; ++k) {
          if (k != begin + j) add_row<Row>(I, k, others);
        }
      }
      D8 least = others[0];
      if (V == 2) least = Min(least, others[V - 1]);
      store_sums(w.block + j * kRow, others);
      // The heavy item may hold all of the mass, which no sign tells.
      const std::uint32_t look = heavy || AnyNegative(least);
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
      } else if (!clear_decision(p, I, sums, I.slack, &decision)) {
        make_tolerance_exact(p, I);
        decision =
            exact_decision(p, I, n, [&](std::int64_t k) { return k == begin + j ? -1 : k; }, &near);
      }
      if (p.single_flip_label != nullptr && decision != I.label) {
        p.single_flip_label[I.first + begin + j] = decision;
      }
    }
    // Rows without an item must not sway the items that share their 16 lanes.
    memset(w.block + count * kRow, 0, (16 - count) * kRow * sizeof(double));
    F16 t[16];
    columns_of_sums<V>(w.block, p.C, t);
    const Divergences d = diverge_rows<V>(p, I, o, p.single_kl != nullptr, w.block, t);
    const F16 drop = Set<F16>(own_probability) - d.label_probability;
    if (p.single_js != nullptr) {
      StoreN(d.js, static_cast<float*>(p.single_js) + I.first + begin, count);
    }
    if (p.single_kl != nullptr) {
      StoreN(d.kl, static_cast<float*>(p.single_kl) + I.first + begin, count);
    }
    if (p.single_drop != nullptr) {
      StoreN(drop, static_cast<float*>(p.single_drop) + I.first + begin, count);
    }
  }
  if (near && wants_single(p)) I.status |= kNearTie;
}

}  // namespace
}  // namespace fae::cpu
