// Instances of at most 16 items, sixteen at a time.
//
// Their items are projected in runs of many instances (usual/runs.h), since one alone would waste
// most lanes of the projection. A run's short instances, sorted by length, form blocks of 16 that
// stay in the lanes from the scores to the results (block.h).
//
// Ladder, four rankings of 50,000 instances of about 7 items, C = 5 (one thread, ns an instance
// without the projection, AVX-512): one instance at a time, in registers, with reductions across
// lanes and loops over its items 260; in blocks of 8, instances in the lanes only of what is per
// instance, sorting networks, rows of 4 classes 155; all instances in the lanes, runs of 1,024
// items 115; runs of 4,096, which leave fewer lanes empty, 100.
#pragma once

#include "cpu/blocks/minimal.h"
#include "cpu/usual/runs.h"

namespace fae::cpu {
namespace {

// Whether instances of this call can be swept in blocks.
inline bool blocks_possible(const SweepParams& p) {
  if (!usual_possible(p)) return false;
  for (std::int64_t r = 0; r < p.R; ++r) {
    const std::int32_t kind = p.rankings[r];
    if (kind != kAttention && kind != kGradient && kind != kProduct && kind != kRandom)
      return false;
  }
  return true;
}

template <int S>
inline void sweep_block(const Context& ctx, const RunMemory& run, Block& B) {
  const SweepParams& p = ctx.p;
  const bool single = wants_single(p), minimal = wants_minimal(p), curves = wants_curves(p);
  B.odd = 0;
  p.is_scores ? weigh<true>(p, run.scores, B) : weigh<false>(p, run.scores, B);
  load_contributions<S>(p, run.columns, kRunPitch, B);
  judge_originals<S>(ctx, run.norm2, B);
  make_margins<S>(p, single || minimal || curves, B);
  Extras<S> extras;
  if (single || curves) prepare_distances<S>(p, B, extras);
  for (std::int64_t r = 0; r < p.R; ++r) {
    make_keys(p, B, r);
    scan_block<S>(p, B);
    resolve<S>(p, B, r);
    if (curves) draw_curves<S>(p, B, extras, r);
  }
  if (single) erase_each<S>(p, extras, B);
  if (minimal) minimal_block<S>(p, B);
}

// Instances begin + list[0 … count) of a projected run, the longest last; sets `general` where they
// are left to the general way.
template <int S>
inline void sweep_list(const Context& ctx, const RunMemory& run, std::int64_t begin,
                       const std::int16_t* list, std::int64_t count, unsigned char* general) {
  const SweepParams& p = ctx.p;
  Block B;
  for (std::int64_t k = 0; k < count; k += kInstances) {
    B.count = count - k < kInstances ? count - k : kInstances;
    std::int64_t longest = 0;
    for (int l = 0; l < kInstances; ++l) {
      const std::int64_t b = begin + list[l < B.count ? k + l : count - 1];
      B.index[l] = b;
      B.first[l] = p.offsets[b];
      B.offset[l] = B.first[l] - p.offsets[begin];
      longest = p.offsets[b + 1] - p.offsets[b];
      B.n[l] = static_cast<float>(longest);
    }
    B.items = (longest + 1) / 2 * 2;
    sweep_block<S>(ctx, run, B);
    for (std::int64_t l = 0; l < B.count; ++l) general[B.index[l] - begin] = B.odd >> l & 1;
  }
}

// The short instances of the projected run [begin, end); the others and those left are marked in
// `general`.
inline void sweep_short(const Context& ctx, const RunMemory& run, std::int64_t begin,
                        std::int64_t end, unsigned char* general) {
  const SweepParams& p = ctx.p;
  const auto length = [&](std::int64_t k) {
    return p.offsets[begin + k + 1] - p.offsets[begin + k];
  };
  std::int16_t list[kRun];
  std::int64_t at[kShort + 2] = {};  // where instances of n items begin
  for (std::int64_t k = 0; k < end - begin; ++k) {
    general[k] = length(k) == 0 || length(k) > kShort;
    if (general[k] == 0) ++at[length(k) + 1];
  }
  for (std::int64_t n = 1; n <= kShort + 1; ++n) at[n] += at[n - 1];
  const std::int64_t count = at[kShort + 1];
  for (std::int64_t k = 0; k < end - begin; ++k) {
    if (general[k] == 0) list[at[length(k)]++] = static_cast<std::int16_t>(k);
  }
  constexpr decltype(&sweep_list<0>) kTable[] = {sweep_list<1>, sweep_list<2>, sweep_list<3>,
                                                 sweep_list<4>, sweep_list<0>};
  kTable[p.C <= 5 ? p.C - 2 : 4](ctx, run, begin, list, count, general);
}

}  // namespace
}  // namespace fae::cpu
