// The usual way put together: what sweep.h calls for instances that take this way.

#pragma once

#include "cpu/usual/single.h"

namespace fae::cpu {
namespace {

// From weights and columns to everything the rankings share; false where the general way is needed.
inline bool originate_usual(const SweepParams& p, UsualInstance& I, char* work_memory) {
  if (!originate_label(p, I)) return false;
  // The smallest weight, and it times what matters beside it, must be a normal float by far.
  I.compact = p.C > 8 && !wants_curves(p) && I.least > 1e-36 && I.least * I.tolerance > 1e-36 &&
              I.tolerance < 1e30;
  const Wanted want = wanted(p);
  with_rows(p, I, [&](auto row) {
    I.lowering = row.kLowering * I.tolerance;
    I.slack = row.kSlack * I.tolerance;
    const double mass = I.row_sum[I.label];
    for (std::int64_t k = 0; k < p.C; ++k) {
      if (k != I.label) I.row_sum[k] -= I.lowering * mass;
    }
    if constexpr (decltype(row)::kFloat) {
      want.gradient ? margin_rows<true>(p, I, row) : margin_rows<false>(p, I, row);
    } else {
      margin_rows(p, I, row);
      if (want.gradient) gradient_usual(p, I);
    }
  });
  if (want.single) {
    Arena arena(work_memory);
    lay_out_work(p, I.n, arena);
    const UsualWork w = lay_out_usual_work(p, I.n, arena);
    with_rows(p, I, [&](auto row) { single_usual<decltype(row)>(p, I, w); });
  }
  return true;
}

// Leaves the order of ranking r in `order`.
inline Error rank_usual(const SweepParams& p, const UsualInstance& I, std::int64_t r, Work& general,
                        const UsualWork& w, std::uint32_t* order) {
  const std::int64_t n = I.n;
  const std::int64_t row = p.ranking_args[r];
  const double* keys = w.keys;
  switch (p.rankings[r]) {
    case kAttention:
      if (p.is_scores) {
        keys = I.e;
      } else {
        attention_keys(p, I, w.keys);
      }
      break;
    case kGradient:
      keys = I.gradient;
      break;
    case kProduct:
      for (std::int64_t i = 0; i < n; ++i) w.keys[i] = I.a[i] * I.gradient[i];
      break;
    case kRandom: {
      const std::uint64_t stream = random_stream(p.seed, row, p.ids[I.index]);
      for (std::int64_t i = 0; i < n; ++i) w.words[i] = random_key(stream, i);
      const KeyRange range = approximate_words(w.words, n, w.approximate);
      sort_items({nullptr, w.words, w.approximate, range, w.packed, general.sort}, n, order);
      return {};
    }
    case kMinimal:
      with_rows(p, I, [&](auto row) {
        minimal_usual<decltype(row)>(p, I, w, general.sort, true, order);
      });
      return {};
    case kRenormalizedGradient:
      renormalized_keys(p, I, general);
      keys = general.keys;
      break;
    default: {  // what the caller gives
      const Error error = given_keys(p, I, r, general);
      if (error.fault != Fault::kNone) return error;
      if (p.rankings[r] == kGivenOrder) {
        memcpy(order, general.order, n * sizeof *order);
        return {};
      }
      keys = general.keys;
    }
  }
  const KeyRange range = approximate_keys(keys, n, w.approximate);
  sort_items({keys, nullptr, w.approximate, range, w.packed, general.sort}, n, order);
  return {};
}

template <class Row>
inline void scan_rankings(const SweepParams& p, const UsualInstance& I, const UsualWork& w,
                          std::int64_t begin, std::int64_t end, std::int64_t* status) {
  const std::int64_t b = I.index;
  Original o{};
  if constexpr (!Row::kFloat) {
    if (wants_curves(p)) load_original(p, I, o);
  }
  for (std::int64_t r = begin; r < end; ++r) {
    const int g = static_cast<int>(r - begin);
    Front front{false, 0, {}};
    if (!wants_curves(p)) {
      front = scan_front<Row>(p, I, w.orders[g]);
      if (!front.found) scan_tail<Row>(I, w, g, front.block);
    } else if constexpr (!Row::kFloat) {
      scan_curves<Row::kVectors>(p, I, w, g, r, o);
    }
    const Flip flip = front.found ? front.flip : resolve<Row>(p, I, w, g, front.block);
    if (flip.near) *status |= kNearTie;
    if (p.first_flip != nullptr) p.first_flip[r * p.B + b] = flip.first;
    if (p.flip_label != nullptr) p.flip_label[r * p.B + b] = flip.label;
    if (p.removed_mass != nullptr) {
      p.removed_mass[r * p.B + b] = flip.first < 0 ? kNan : mass_of_top(I, w.orders[g], flip.first);
    }
    if (p.order != nullptr) write_order(I, w.orders[g], p.order + r * p.T);
  }
}

// Rankings [begin, end), at most kGroup of them.
inline Error rank_group(const SweepParams& p, const UsualInstance& I, char* work_memory,
                        std::int64_t begin, std::int64_t end, std::int64_t* status) {
  Arena arena(work_memory);
  Work general = lay_out_work(p, I.n, arena);
  const UsualWork w = lay_out_usual_work(p, I.n, arena);
  for (std::int64_t r = begin; r < end; ++r) {
    const Error error = rank_usual(p, I, r, general, w, w.orders[r - begin]);
    if (error.fault != Fault::kNone) return error;
  }
  with_rows(p, I, [&](auto row) { scan_rankings<decltype(row)>(p, I, w, begin, end, status); });
  return {};
}

inline Minimal minimal_of_usual(const SweepParams& p, const UsualInstance& I, char* work_memory,
                                std::uint32_t** order) {
  Arena arena(work_memory);
  Work general = lay_out_work(p, I.n, arena);
  const UsualWork w = lay_out_usual_work(p, I.n, arena);
  *order = general.order;
  const bool with_order = p.minimal_order != nullptr;
  return with_rows(p, I, [&](auto row) {
    return minimal_usual<decltype(row)>(p, I, w, general.sort, with_order, general.order);
  });
}

}  // namespace
}  // namespace fae::cpu
