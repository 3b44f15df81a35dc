// Host code of the sweep: sizes, workspace, grids. Compiled with the kernels of one real type.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>

#include "host.h"
#include "sweep.cuh"

#if defined(__CUDACC__)
#define FAE_LAUNCH(kernel, grid, block, shared_bytes, stream, argument)                            \
  ::fae::allow_shared(reinterpret_cast<const void*>(kernel), device.shared_per_block);             \
  kernel<<<static_cast<unsigned>(grid), block, shared_bytes, static_cast<cudaStream_t>(stream)>>>( \
      argument);                                                                                   \
  ::fae::check(cudaGetLastError(), #kernel)
#else
#define FAE_LAUNCH(kernel, grid, block, shared_bytes, stream, argument)                        \
  emu::launch(emu::Dim3{static_cast<unsigned>(grid)}, emu::Dim3{static_cast<unsigned>(block)}, \
              static_cast<std::size_t>(shared_bytes), [&] { kernel(argument); });              \
  static_cast<void>(stream)
#endif

namespace fae {

#if defined(__CUDACC__)
// Throws what the CUDA runtime says of a call.
inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
  }
}
// Lets a kernel have dynamic shared memory: always all that the device has, since a smaller limit
// could meet another thread's launch.
inline void allow_shared(const void* kernel, int bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "shared memory of a kernel");
}
#endif

// Finds the longest n such that every instance of up to n items fits `bytes` of a team of `size`
// threads (-1 where not even an empty one does), at most `most`.
inline int longest(const SweepParams& p, const Needs& needs, int size, std::int64_t bytes,
                   int real_bytes, int most) {
  const int R = static_cast<int>(std::min<std::int64_t>(p.R, kMaxRankings));
  const auto fits = [&](int n) {
    return layout_of(n, p.C, R, size, real_bytes, needs).total <= bytes;
  };
  if (!fits(0)) return -1;
  // Between two powers of two the layout grows with n.
  int best = 0;
  for (int P = 1; P <= size * kWordsAThread; P *= 2) {
    int low = best, high = P;
    if (fits(high)) {
      best = high;
      continue;
    }
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (fits(middle) ? low : high) = middle;
    }
    best = low;
    break;
  }
  return std::min(best, most);
}

// Finds what the wanted results and the R rankings from row0 on have to compute.
inline Needs find_needs(const SweepParams& p, std::int64_t row0, int R) {
  Needs needs{};
  const int bytes = p.values_dtype == kFloat32 ? 4 : 2;
  if (p.values_dtype != kFloat64 && p.D <= kFloatSpan && p.D * bytes % 16 == 0) {
    needs.stage = stage_bytes(p.C, bytes);
  }
  needs.minimal = wants_minimal(p);
  for (std::int64_t r = row0; r < row0 + R; ++r) {
    const std::int32_t kind = p.rankings[r];
    needs.renormalized |= kind == kRenormalizedGradient;
    needs.gradient |= kind == kGradient || kind == kProduct || kind == kRenormalizedGradient;
    needs.js |= kind == kLeaveOneOut;
    needs.drop |= kind == kLeaveOneOutDrop;
    needs.minimal |= kind == kMinimal;
  }
  needs.singles = wants_singles(p) || needs.js || needs.drop;
  needs.single_kl = p.single_kl != nullptr;
  needs.logits = p.curve_logits != nullptr;
  needs.curves = wants_any<kCurveOutputs>(p);
  // All other curves are of the distribution over the classes.
  constexpr std::uint64_t kOfSums =
      output_set(OutputPlace::curve_mass, OutputPlace::curve_decision, OutputPlace::curve_logits);
  needs.divergence = wants_any<kCurveOutputs & ~kOfSums>(p);
  return needs;
}

constexpr int kLongestOfWarp = 64;  // items

// Lays out packs for a warp of `bytes`; no rows where instances are not packed.
inline PackLayout plan_packs(const SweepParams& p, const Needs& needs, std::int64_t row0, int R,
                             std::int64_t bytes, int real_bytes) {
  const auto* const kinds = p.rankings + row0;
  if (needs.curves || p.C < 2 || p.C > kMostPackClasses ||
      std::find(kinds, kinds + R, kGreedy) != kinds + R) {
    return {};
  }
  PackLayout best{};
  for (int rows = kMostPacked; rows <= kMostPacked * kMostGrain; rows += 2) {
    const PackLayout l = pack_layout(rows, p.C, real_bytes, needs);
    if (l.total > bytes) break;
    best = l;
  }
  return best;
}

// Chooses how many instances a warp takes at a time. Where packs are likely, as many as fill one,
// yet so few that every warp gets some; else so few that a warp takes several times, and it matters
// little who gets the long ones.
inline int find_grain(const SweepParams& p, int pack_rows, std::int64_t warps) {
  const std::int64_t mean = std::max<std::int64_t>(p.T / std::max<std::int64_t>(p.B, 1), 1);
  const std::int64_t grain = pack_rows > 0 && mean <= kMostPacked
                                 ? std::min((p.B + warps - 1) / warps, pack_rows * 9 / (mean * 10))
                                 : p.B / (warps * 8);
  return static_cast<int>(std::clamp<std::int64_t>(grain, 1, kMostGrain));
}

// One launch on the host's side; make_plan writes it.
struct Plan {
  Launch launch{};
  std::int64_t bytes = 0;                                   // of workspace
  int small_shared = 0, mid_shared = 0, big_shared = 0;     // bytes a block in kWarps, kMid, kBig
  int small_grid = 0, big_grid = 0;                         // blocks resident on the device at once
  bool has_mid = false, has_big = false, has_long = false;  // whether such instances can exist
};

// Finds sizes and workspace addresses of one launch; with a null workspace only `bytes` means
// something.
template <typename S>
Plan make_plan(const SweepParams& p, const DeviceInfo& device, std::int64_t row0) {
  Plan plan;
  Launch& l = plan.launch;
  l.p = p;
  l.row0 = row0;
  l.R = static_cast<int>(std::min<std::int64_t>(p.R - row0, kMaxRankings));
  l.needs = find_needs(p, row0, l.R);
  const Needs& needs = l.needs;
  const int real = sizeof(S);
  const std::int64_t small = std::min<std::int64_t>(
      device.shared_per_multiprocessor / kSmallBlocks - device.reserved_per_block,
      device.shared_per_block);
  const std::int64_t warps = kSmallThreads / 32;
  const Layout longest_of_warp = layout_of(kLongestOfWarp, p.C, l.R, 32, real, needs);
  const std::int64_t short_bytes =
      std::max<std::int64_t>(longest_of_warp.total, longest_of_warp.stage + needs.stage);
  const std::int64_t most = (small - kWarpArena) / warps / 16 * 16;
  l.pack = plan_packs(p, needs, row0, l.R, most, real);
  l.warp_bytes =
      static_cast<int>(std::min(most, std::max<std::int64_t>(short_bytes, l.pack.total)));
  plan.small_shared = static_cast<int>(kWarpArena + l.warp_bytes * warps);
  plan.mid_shared = static_cast<int>(small / 16 * 16);
  plan.big_shared = device.shared_per_block / 16 * 16;
  l.limit_warp = longest(p, needs, 32, l.warp_bytes, real, kLongestOfWarp);
  if (l.limit_warp < kMostPacked) l.pack = {};
  const auto longest_of_block = [&](int threads, int shared) {
    return longest(p, needs, threads, shared - kBlockArena, real, 1 << 30);
  };
  l.limit_mid = std::max(l.limit_warp, longest_of_block(kSmallThreads, plan.mid_shared));
  l.limit_big = std::max(l.limit_mid, longest_of_block(kBigThreads, plan.big_shared));
  plan.has_mid = p.T > l.limit_warp && l.limit_mid > l.limit_warp;
  plan.has_big = p.T > l.limit_mid && l.limit_big > l.limit_mid;
  plan.has_long = p.T > l.limit_big;
  plan.small_grid = device.multiprocessors * kSmallBlocks;
  plan.big_grid = device.multiprocessors;
  l.grain = find_grain(p, l.pack.rows, plan.small_grid * warps);
  // Long instances are longer than limit_big, so that at most this many do not overlap.
  l.max_longs = !plan.has_long ? 0 : l.limit_big < 0 ? p.B : p.T / (l.limit_big + 1) + 1;

  std::int64_t at = 0;
  const auto take = [&](auto*& pointer, std::int64_t count) {
    using T = std::remove_reference_t<decltype(*pointer)>;
    pointer = reinterpret_cast<T*>(static_cast<unsigned char*>(p.workspace) + at);
    at += (count * static_cast<std::int64_t>(sizeof(T)) + 255) / 256 * 256;
  };
  take(l.counters, 1);
  take(l.class_norms, p.C);
  take(l.mid, p.B);
  take(l.big, p.B);
  if (plan.has_long) {
    take(l.longs, l.max_longs);
    take(l.facts, l.max_longs);
    take(l.long_classes, l.max_longs * 5 * p.C);
    unsigned char* s = nullptr;
    take(s, p.T * p.C * real);
    l.long_s = s;
    take(l.long_a, p.T);
    take(l.long_items, p.T * 2 * kLongLanes);
    take(l.long_singles, needs.js || needs.drop ? p.T * 2 : 0);
    take(l.long_keys, p.T * 2 * kLongLanes);
    take(l.long_orders, p.T * 3 * kLongLanes);
    take(l.long_bad, p.T * (1 + kLongLanes));
    l.long_sum_words = kLongThreads /
                       class_lanes(static_cast<int>(std::min<std::int64_t>(p.C, 64))) *
                       group_words(p.C);
    take(l.long_sums, plan.big_grid * l.long_sum_words);
  }
  plan.bytes = at;
  return plan;
}

// Finds how many elements a load of the values may have, from how addresses and rows are aligned.
inline int load_width(const SweepParams& p) {
  const auto aligned = [&](int elements, int bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(p.values);
    const auto head = reinterpret_cast<std::uintptr_t>(p.head_weight);
    return address % (elements * bytes) == 0 && head % 16 == 0 && p.D % elements == 0 &&
           p.values_stride_t % elements == 0;
  };
  if (p.values_dtype == kFloat32) return aligned(4, 4) ? 4 : 1;
  if (p.values_dtype == kFloat64) return aligned(2, 8) ? 2 : 1;
  return aligned(8, 2) ? 8 : aligned(4, 2) ? 4 : 1;
}

// Counts the bytes of workspace that a sweep needs.
template <typename S>
std::int64_t workspace_of(const SweepParams& p, const DeviceInfo& device) {
  std::int64_t most = 0;
  for (std::int64_t row0 = 0; row0 == 0 || row0 < p.R; row0 += kMaxRankings) {
    most = std::max(most, make_plan<S>(p, device, row0).bytes);
  }
  return most;
}

// Launches a sweep.
template <typename S>
void launch_of(const SweepParams& p, const DeviceInfo& device, void* stream) {
  if (p.B == 0) return;
  // More rankings than a kernel argument holds take several launches, each reading the values
  // again.
  for (std::int64_t row0 = 0; row0 == 0 || row0 < p.R; row0 += kMaxRankings) {
    Plan plan = make_plan<S>(p, device, row0);
    Launch& l = plan.launch;
    l.accumulate = row0 > 0;
    l.vector = load_width(p);
    for (int r = 0; r < l.R; ++r) {
      const std::int64_t arg = p.ranking_args[row0 + r];
      DeviceRanking& ranking = l.rankings[r];
      ranking.kind = p.rankings[row0 + r];
      if (ranking.kind == kRandom) {
        ranking.data = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(arg));
      } else if (ranking.kind == kGivenOrder) {
        ranking.data = p.orders[arg];
      } else if (ranking.kind == kGivenKeys) {
        ranking.data = p.keys[arg];
        ranking.dtype = p.keys_dtype[arg];
      }
    }
    const std::int64_t warps = (p.B + l.grain - 1) / l.grain;
    FAE_LAUNCH(prepare<S>, std::min<std::int64_t>(p.C, plan.big_grid), 256, kTeamScratchBytes,
               stream, l);
    l.stage = kWarps;
    FAE_LAUNCH(
        sweep_kernel<S>,
        std::min<std::int64_t>(plan.small_grid, (warps * 32 + kSmallThreads - 1) / kSmallThreads),
        kSmallThreads, plan.small_shared, stream, l);
    if (plan.has_mid) {
      l.stage = kMid;
      l.block_bytes = plan.mid_shared - kBlockArena;
      FAE_LAUNCH(sweep_kernel<S>, std::min<std::int64_t>(plan.small_grid, p.B), kSmallThreads,
                 plan.mid_shared, stream, l);
    }
    if (plan.has_big) {
      l.stage = kBig;
      l.block_bytes = plan.big_shared - kBlockArena;
      FAE_LAUNCH(sweep_kernel<S>, std::min<std::int64_t>(plan.big_grid, p.B), kBigThreads,
                 plan.big_shared, stream, l);
    }
    if (plan.has_long) {
      l.stage = kProjectLong;
      l.block_bytes = kStateBytes + kSmallThreads / 32 * l.needs.stage;
      constexpr int kState = kBlockArena + kStateBytes;
      FAE_LAUNCH(sweep_kernel<S>, plan.small_grid, kSmallThreads, kBlockArena + l.block_bytes,
                 stream, l);
      FAE_LAUNCH(long_facts<S>, plan.big_grid, kLongThreads, kState, stream, l);
      const auto share = [&](Stage what) {
        l.stage = what;
        FAE_LAUNCH(long_tasks<S>, plan.big_grid, kLongThreads, kState + kTileBytes, stream, l);
      };
      if (l.needs.singles) share(kLongSingles);
      // The minimal set is one more task than the rankings.
      const int tasks = l.R + (wants_minimal(p) ? 1 : 0);
      for (l.first_task = 0; l.first_task < tasks; l.first_task += kLongLanes) {
        share(kLongKeys);
        const auto* const kinds = l.rankings + l.first_task;
        const int count = std::min(kLongLanes, l.R - l.first_task);
        if (std::any_of(kinds, kinds + std::max(count, 0), sorts_keys)) {
          share(kLongSort);
          const int passes = merge_passes(p.T);
          for (l.merge_pass = 0; l.merge_pass < passes; ++l.merge_pass) share(kLongMerge);
        }
        share(kLongScan);
      }
    }
  }
  if (p.R > kMaxRankings && p.status != nullptr) {
    Plan plan = make_plan<S>(p, device, 0);
    Launch& l = plan.launch;
    l.R = static_cast<int>(p.R);
    l.stage = kInvalidRows;
    FAE_LAUNCH(sweep_kernel<S>, plan.small_grid, kSmallThreads, kTeamScratchBytes, stream, l);
  }
}

}  // namespace fae
