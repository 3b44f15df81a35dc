// The fused sweep: everything of engine contract sections 2 to 7 from one read of the values.
//
// Launches, in one stream, nothing read back by the host, nothing allocated:
//   prepare                     zeroes the counters, finds ‖W_c‖
//   sweep_kernel, kWarps        a warp an instance for short ones; lists the longer ones on the way
//   sweep_kernel, kMid          a block of 128 threads an instance, four on a multiprocessor
//   sweep_kernel, kBig          a block of 512 threads, all of a multiprocessor's shared memory
//   sweep_kernel, kProjectLong; long_facts; long_tasks
//                               instances that outgrow shared memory: contributions in device
//                               memory, projected by all blocks; then a block a ranking
// Kernels whose instances cannot exist (they would be longer than T) are not launched. Grids are
// persistent: work is taken from atomic counters; no result depends on who took it.
//
// Within a team an instance passes through: zero `bad` | project | weights, sums, label |
// gradients, minimal set, singles | rounds of rankings: sort, walk | status. While one team sorts,
// others of the multiprocessor load.
//
// Traffic: n (D sizeof(V) + sizeof(attention)) bytes read, a few words a ranking written.
//
// Ladder: v1 this, words sorted in registers, four rows a group of lanes.
#pragma once

#include "project.cuh"
#include "rankings.cuh"

namespace fae {

// How many blocks of kSmallThreads a multiprocessor holds, and the launch bound that gives each
// thread the registers for it: 4 and 512 (128 registers), 6 and 768 (80).
#if !defined(FAE_SMALL_BLOCKS)
#define FAE_SMALL_BLOCKS 4
#endif
constexpr int kSmallThreads = 128;
constexpr int kSmallBlocks = FAE_SMALL_BLOCKS;
constexpr int kBoundThreads = kSmallThreads * kSmallBlocks;
constexpr int kBigThreads = 512;
constexpr int kLongThreads = 512;
constexpr int kLongRows = 256;
constexpr int kBlockArena = kTeamScratchBytes + 16;  // behind a block's scratch and its next number

template <typename S>
FAE_DEV RowBlock row_block(const Launch& launch, std::int64_t row, int n, int size, int s_stride,
                           S* s, unsigned char* bad) {
  const SweepParams& p = launch.p;
  const int bytes = p.values_dtype == kFloat32 ? 4 : p.values_dtype == kFloat64 ? 8 : 2;
  RowBlock rows{};
  rows.values = static_cast<const unsigned char*>(p.values) + row * p.values_stride_t * bytes;
  rows.stride = p.values_stride_t;
  rows.head = p.head_weight;
  rows.s = s;
  rows.bad = bad;
  rows.n = n;
  rows.D = static_cast<int>(p.D);
  rows.C = static_cast<int>(p.C);
  rows.s_stride = s_stride;
  rows.size = size;
  choose_path<S>(rows, launch.vector);
  return rows;
}

// Gradients, keys, single erasures, the minimal set. Returns whether a near-tie was seen.
template <bool kWarp, typename S, typename Idx>
FAE_DEV bool prepare_keys(int at, const Needs& needs, bool write_singles, bool write_set) {
  FAE_SHARED(shared);
  bool near = false;
  if (needs.gradient && reinterpret_cast<State<S, Idx>*>(shared + at)->facts.finite) {
    find_slopes<kWarp, S, Idx>(at, needs.renormalized);
  }
  if (needs.singles) near = erase_singles<kWarp, S, Idx>(at, write_singles) && write_singles;
  if (needs.minimal) near = minimal_set<kWarp, S, Idx>(at, write_set) || near;
  return near;
}

// An instance whose State is to be at `at`; one for all block sizes. All that lives from part to
// part is in shared memory.
template <bool kWarp, typename S>
FAE_NOINLINE __device__ void sweep_instance(const Launch& launch, std::int64_t b, std::int64_t t0,
                                            int n, int at) {
  using Idx = std::uint16_t;
  FAE_SHARED(shared);
  const Team<kWarp> team(kWarp ? nullptr : reinterpret_cast<double*>(shared));
  State<S, Idx>& state = *reinterpret_cast<State<S, Idx>*>(shared + at);
  // The last instance's results were read by all before its memory is used again.
  team.sync();
  if (team.rank == 0) {
    state.launch = &launch;
    state.b = b;
    state.t0 = t0;
    state.n = n;
    const Layout l = layout_of(n, launch.p.C, launch.R, team.size, sizeof(S), launch.needs);
    state.layout = l;
    state.rows = row_block<S>(launch, t0, n, team.size, l.cs,
                              reinterpret_cast<S*>(shared + at + l.s), shared + at + l.bad);
  }
  team.sync();
  if (has_invalid<kWarp, S, Idx>(at)) {
    write_invalid<kWarp>(launch, sizeof(S) == 8, b, t0, n, true);
    return;
  }
  for (int i = team.rank; i < n; i += team.size) shared[at + state.layout.bad + i] = 0;
  team.sync();
  double norm2 = 0;
  if (n > 0) norm2 = project_rows<S>(at, launch.p.values_dtype);
  norm2 = team.max(norm2);
  team.sync();
  weigh<kWarp, S, Idx>(at, norm2);
  bool near = prepare_keys<kWarp, S, Idx>(at, launch.needs, wants_singles(launch.p),
                                          wants_minimal(launch.p));
  for (int row = 0; row < launch.R; row += state.layout.round) {
    const int left = launch.R - row;
    const int count = left < state.layout.round ? left : state.layout.round;
    sort_rankings<kWarp, S, Idx>(at, row, count);
    place_orders<kWarp, S, Idx>(at, row, count);
    near = walk_orders<kWarp, S, Idx>(at, row, count) || near;
    team.sync();
  }
  near = team.any(near);
  write_status(team, launch, b, state.facts.status | flag(near, kNearTie));
}

// ---- kernels ----

template <typename S>
__global__ void __launch_bounds__(256) prepare(const FAE_PARAMETER Launch launch) {
  FAE_SHARED(shared);
  const Team<false> team(reinterpret_cast<double*>(shared));
  const S* head = static_cast<const S*>(launch.p.head_weight);
  for (std::int64_t c = blockIdx.x; c < launch.p.C; c += gridDim.x) {
    double square = 0;
    for (std::int64_t d = team.rank; d < launch.p.D; d += team.size) {
      const double w = head[c * launch.p.D + d];
      square = fma(w, w, square);
    }
    square = team.sum(square);
    if (team.rank == 0) launch.class_norms[c] = sqrt(square);
  }
  if (blockIdx.x == 0 && team.rank == 0) *launch.counters = Counters{};
}

// A warp an instance: takes `launch.grain` at a time, sweeps the short ones, lists the others.
template <typename S>
FAE_DEV void sweep_warps(const Launch& launch) {
  const Team<true> team(nullptr);
  const int arena = static_cast<int>(threadIdx.x >> 5) * launch.warp_bytes;
  const SweepParams& p = launch.p;
  for (;;) {
    unsigned long long first = 0;
    if (team.rank == 0) {
      first = atomicAdd(&launch.counters->next_scan, static_cast<unsigned long long>(launch.grain));
    }
    first = __shfl_sync(kAllLanes, first, 0);
    if (first >= static_cast<unsigned long long>(p.B)) break;
    const std::int64_t b = static_cast<std::int64_t>(first) + team.rank;
    std::int64_t t0 = 0, n = 0;
    bool mine = false, broken = false;
    if (team.rank < launch.grain && b < p.B) {
      t0 = p.offsets[b];
      const std::int64_t t1 = p.offsets[b + 1];
      n = t1 - t0;
      broken = t0 < 0 || n < 0 || t1 > p.T || (b == 0 && t0 != 0) || (b == p.B - 1 && t1 != p.T);
      if (!broken && n > launch.limit_big) {
        const unsigned long long at = atomicAdd(&launch.counters->longs, 1ull);
        if (at < static_cast<unsigned long long>(launch.max_longs)) {
          launch.longs[at] = b;
          launch.facts[at].norm2 = 0;
        } else {
          broken = true;  // overlapping instances: more long ones than T can hold
        }
      } else if (!broken && n > launch.limit_mid) {
        launch.big[atomicAdd(&launch.counters->big, 1ull)] = b;
      } else if (!broken && n > launch.limit_warp) {
        launch.mid[atomicAdd(&launch.counters->mid, 1ull)] = b;
      } else {
        mine = !broken;
      }
    }
    const unsigned todo = __ballot_sync(kAllLanes, mine);
    const unsigned wrong = __ballot_sync(kAllLanes, broken);
    for (unsigned open = todo | wrong; open != 0; open &= open - 1) {
      const int source = __ffs(open) - 1;
      const std::int64_t from = __shfl_sync(kAllLanes, t0, source);
      const std::int64_t items = __shfl_sync(kAllLanes, n, source);
      const std::int64_t instance = static_cast<std::int64_t>(first) + source;
      if ((wrong >> source) & 1u) {
        write_invalid<true>(launch, sizeof(S) == 8, instance, 0, 0, false);
      } else {
        sweep_instance<true, S>(launch, instance, from, static_cast<int>(items), arena);
      }
    }
  }
}

// A block an instance of one of the lists.
template <typename S>
FAE_DEV void sweep_blocks(const Launch& launch, bool big) {
  FAE_SHARED(shared);
  const Team<false> team(reinterpret_cast<double*>(shared));
  unsigned long long* const slot =
      reinterpret_cast<unsigned long long*>(shared + kTeamScratchBytes);
  Counters* const counters = launch.counters;
  const unsigned long long count = big ? counters->big : counters->mid;
  const std::int64_t* list = big ? launch.big : launch.mid;
  for (;;) {
    if (team.rank == 0) *slot = atomicAdd(big ? &counters->next_big : &counters->next_mid, 1ull);
    team.sync();
    const unsigned long long at = *slot;
    team.sync();
    if (at >= count) break;
    const std::int64_t b = list[at];
    const std::int64_t t0 = launch.p.offsets[b];
    sweep_instance<false, S>(launch, b, t0, static_cast<int>(launch.p.offsets[b + 1] - t0),
                             kBlockArena);
  }
}

// ---- instances that outgrow shared memory ----

FAE_DEV std::int64_t long_count(const Launch& launch) {
  const std::int64_t count = static_cast<std::int64_t>(launch.counters->longs);
  return count < launch.max_longs ? count : launch.max_longs;
}

// Makes the State of the task lane `task_lane` (-1: none) on the long instance in `slot`; a sort's
// tile is behind it.
template <typename S>
FAE_NOINLINE __device__ void open_long(const Launch& launch, std::int64_t slot, int task_lane,
                                       bool js, bool drop) {
  FAE_SHARED(shared);
  if (threadIdx.x == 0) {
    const SweepParams& p = launch.p;
    const std::int64_t b = launch.longs[slot];
    const std::int64_t t0 = p.offsets[b];
    const int C = static_cast<int>(p.C);
    const int task = task_lane < 0 ? 0 : task_lane;
    double* const classes = launch.long_classes + slot * 5 * C;
    double* const items = launch.long_items + static_cast<std::int64_t>(task) * 2 * p.T + t0;
    std::uint32_t* const orders =
        launch.long_orders + static_cast<std::int64_t>(task) * 2 * p.T + t0;
    new (shared + kBlockArena) State<S, std::uint32_t>{
        RowBlock{},
        launch.facts[slot],
        {launch,
         b,
         t0,
         static_cast<int>(p.offsets[b + 1] - t0),
         C,
         C,
         0,
         1,
         static_cast<S*>(launch.long_s) + t0 * C,
         launch.long_a + t0,
         items,
         items + p.T,
         js ? items : nullptr,
         drop ? items + p.T : nullptr,
         classes,
         classes + C,
         classes + 2 * C,
         classes + 3 * C,
         classes + 4 * C,
         launch.long_sums + blockIdx.x * launch.long_sum_words,
         launch.long_keys + static_cast<std::int64_t>(task) * p.T + t0,
         orders,
         orders + p.T,
         launch.long_bad + static_cast<std::int64_t>(task_lane + 1) * p.T + t0}};
  }
  __syncthreads();
}

// Contributions of the long instances, all blocks together.
template <typename S>
FAE_DEV void project_long(const Launch& launch) {
  FAE_SHARED(shared);
  const Team<false> team(reinterpret_cast<double*>(shared));
  const SweepParams& p = launch.p;
  std::int64_t turn = 0;
  for (std::int64_t slot = 0; slot < long_count(launch); ++slot) {
    const std::int64_t t0 = p.offsets[launch.longs[slot]];
    const std::int64_t n = p.offsets[launch.longs[slot] + 1] - t0;
    const std::int64_t tiles = (n + kLongRows - 1) / kLongRows;
    const std::int64_t own = (blockIdx.x + gridDim.x - turn % gridDim.x) % gridDim.x;
    turn += tiles;
    for (std::int64_t tile = own; tile < tiles; tile += gridDim.x) {
      const std::int64_t row = t0 + tile * kLongRows;
      const int m =
          static_cast<int>(n - tile * kLongRows < kLongRows ? n - tile * kLongRows : kLongRows);
      for (int i = team.rank; i < m; i += team.size) launch.long_bad[row + i] = 0;
      if (team.rank == 0) {
        *reinterpret_cast<RowBlock*>(shared + kBlockArena) =
            row_block<S>(launch, row, m, team.size, static_cast<int>(p.C),
                         static_cast<S*>(launch.long_s) + row * p.C, launch.long_bad + row);
      }
      team.sync();
      double norm2 = project_rows<S>(kBlockArena, p.values_dtype);
      norm2 = team.max(norm2);
      if (team.rank == 0 && norm2 > 0) {
        // Non-negative doubles order like their bits.
        unsigned long long bits;
        memcpy(&bits, &norm2, 8);
        atomicMax(reinterpret_cast<unsigned long long*>(&launch.facts[slot].norm2), bits);
      }
      team.sync();
    }
  }
}

// What all blocks but those of `prepare` and the long analysis run. One kernel, so that its parts
// are compiled once; 128 registers at most, so that four blocks of kSmallThreads or one of
// kBigThreads fit a multiprocessor.
template <typename S>
__global__ void __launch_bounds__(kBoundThreads) sweep_kernel(const FAE_PARAMETER Launch launch) {
  switch (launch.stage) {
    case kWarps:
      sweep_warps<S>(launch);
      break;
    case kProjectLong:
      project_long<S>(launch);
      break;
    default:
      sweep_blocks<S>(launch, launch.stage == kBig);
  }
}

// Weights, sums and label of the long instances, a block an instance.
template <typename S>
__global__ void __launch_bounds__(kLongThreads) long_facts(const FAE_PARAMETER Launch launch) {
  FAE_SHARED(shared);
  using Idx = std::uint32_t;
  const Team<false> team(reinterpret_cast<double*>(shared));
  State<S, Idx>& state = *reinterpret_cast<State<S, Idx>*>(shared + kBlockArena);
  for (std::int64_t slot = blockIdx.x; slot < long_count(launch); slot += gridDim.x) {
    open_long<S>(launch, slot, -1, false, false);
    if (has_invalid<false, S, Idx>(kBlockArena)) {
      const View<S, Idx>& v = state.view;
      write_invalid<false>(launch, sizeof(S) == 8, v.b, v.t0, v.n, true);
      if (team.rank == 0) launch.facts[slot].invalid = true;
    } else {
      weigh<false, S, Idx>(kBlockArena, launch.facts[slot].norm2);
      write_status(team, launch, state.view.b, state.facts.status);
      if (team.rank == 0) launch.facts[slot] = state.facts;
    }
    team.sync();
  }
}

// Rankings, single erasures and minimal sets of the long instances: kLongLanes blocks an instance
// share them.
template <typename S>
__global__ void __launch_bounds__(kLongThreads) long_tasks(const FAE_PARAMETER Launch launch) {
  FAE_SHARED(shared);
  using Idx = std::uint32_t;
  const Team<false> team(reinterpret_cast<double*>(shared));
  const SweepParams& p = launch.p;
  State<S, Idx>& state = *reinterpret_cast<State<S, Idx>*>(shared + kBlockArena);
  const int tasks = launch.R + 2;
  for (std::int64_t job = blockIdx.x; job < long_count(launch) * kLongLanes; job += gridDim.x) {
    const std::int64_t slot = job / kLongLanes;
    const int task_lane = static_cast<int>(job % kLongLanes);
    if (launch.facts[slot].invalid) continue;
    for (int task = task_lane; task < tasks; task += kLongLanes) {
      const int kind = task < launch.R ? launch.rankings[task].kind : -1;
      Needs needs{};
      needs.renormalized = kind == kRenormalizedGradient;
      needs.gradient = needs.renormalized || kind == kGradient || kind == kProduct;
      needs.js = kind == kLeaveOneOut;
      needs.drop = kind == kLeaveOneOutDrop;
      const bool write_singles = task == launch.R && wants_singles(p);
      needs.singles = needs.js || needs.drop || write_singles;
      const bool write_set = task == launch.R + 1 && wants_minimal(p);
      needs.minimal = kind == kMinimal || write_set;
      open_long<S>(launch, slot, task_lane, needs.js, needs.drop);
      // Greedy marks what it took; every lane has its own copy.
      const unsigned char* const bad = launch.long_bad + state.view.t0;
      for (int i = team.rank; i < state.view.n; i += team.size) state.view.bad[i] = bad[i];
      team.sync();
      bool near = prepare_keys<false, S, Idx>(kBlockArena, needs, write_singles, write_set);
      if (task < launch.R) {
        sort_rankings<false, S, Idx>(kBlockArena, task, 1);
        place_orders<false, S, Idx>(kBlockArena, task, 1);
        near = walk_orders<false, S, Idx>(kBlockArena, task, 1) || near;
      }
      near = team.any(near);
      if (near && team.rank == 0 && p.status != nullptr) {
        atomicOr(reinterpret_cast<unsigned long long*>(&p.status[state.view.b]),
                 static_cast<unsigned long long>(kNearTie));
      }
      team.sync();
    }
  }
}

}  // namespace fae
