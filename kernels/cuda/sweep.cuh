// The fused sweep: everything of engine contract sections 2 to 7 from one read of the values.
//
// Launches, in one stream, nothing read back by the host, nothing allocated:
//   prepare                     zeroes the counters, finds ‖W_c‖
//   sweep_kernel, kWarps        a warp an instance for short ones; lists the longer ones on the way
//   sweep_kernel, kMid          a block of 128 threads an instance, four on a multiprocessor
//   sweep_kernel, kBig          a block of 512 threads, all of a multiprocessor's shared memory
//   sweep_kernel, kProjectLong; long_facts; long_tasks
//                               instances that outgrow shared memory: contributions in device
//                               memory; all blocks share projection, single erasures and sorts, a
//                               launch a pass, the rest is a block's a ranking
//   sweep_kernel, kInvalidRows  where many rankings take several launches: see invalidate_rows
// Kernels whose instances cannot exist (they would be longer than T) are not launched. Grids are
// persistent: work is taken from atomic counters; no result depends on who took it.
//
// Within a team an instance passes through: zero `bad` | project | weights, sums, label |
// gradients, singles, minimal set | rounds of rankings: sort, scan | status. While one team sorts,
// others of the multiprocessor load.
//
// Traffic: n (D sizeof(V) + sizeof(attention)) bytes read, a few words a ranking written.
//
// Ladder: kernels/README.md has that of the whole.
#pragma once

#include "pack.cuh"

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

// Sorts `count` orders from `row` on (see LoopState).
template <bool kWarp, typename S, typename Idx>
FAE_DEV void sort_rows(int row, int count) {
  const PartView<kWarp, S, Idx> part = part_view<kWarp, S, Idx>();
  if (part.team.leads()) {
    part.state.loop.row = row;
    part.state.loop.count = count;
  }
  part.team.sync();
  sort_rankings<kWarp, S, Idx>();
}

// Finds the order of the minimal set, in min_order, and writes its results where they are wanted.
template <bool kWarp, typename S, typename Idx>
FAE_NOINLINE __device__ void find_minimal(bool write_out) {
  const auto state = [] { return &state_of<kWarp, S, Idx>(); };
  const auto team = [] { return part_view<kWarp, S, Idx>().team; };
  const auto classes = [] { return part_view<kWarp, S, Idx>().view.C; };
  init_minimal<kWarp, S, Idx>();
  // Not finite, no mass or one class: by position, or what weighs nothing last.
  if (state()->minimal.runner_up < 0) sort_rows<kWarp, S, Idx>(-1, 1);
#pragma unroll 1
  while (
      team().make_uniform(state()->minimal.runner_up >= 0 && state()->minimal.step < classes())) {
    const int c = minimal_class<kWarp, S, Idx>();
    if (team().make_uniform(c >= 0)) {
      sort_rows<kWarp, S, Idx>(-1 - c, 1);
      judge_minimal<kWarp, S, Idx>();
    }
    team().sync();
    if (team().leads()) ++state()->minimal.step;
    team().sync();
  }
  const Minimal& m = state()->minimal;
  const int winner = m.label < classes() ? m.label : m.runner_up;
  if (m.sorted != winner) sort_rows<kWarp, S, Idx>(-1 - winner, 1);
  if (write_out) finish_minimal<kWarp, S, Idx>();
}

// Finds what comes before the rankings: gradients, keys, single erasures, the minimal set.
template <bool kWarp, typename S, typename Idx>
FAE_DEV void prepare_keys(const Needs& needs, bool write_singles, bool write_set) {
  if (needs.gradient && part_view<kWarp, S, Idx>().facts.finite) {
    find_slopes<kWarp, S, Idx>(needs.renormalized);
  }
  if (needs.singles) erase_singles<kWarp, S, Idx>(write_singles);
  if (needs.minimal) find_minimal<kWarp, S, Idx>(write_set);
}

// Sorts and scans `count` rankings from `row` on.
template <bool kWarp, typename S, typename Idx>
FAE_DEV void sweep_rankings(int row, int count) {
  sort_rows<kWarp, S, Idx>(row, count);
  place_orders<kWarp, S, Idx>();
  scan_rankings<kWarp, S, Idx>();
}

// Makes the State of instance b, of n items from t0 on.
template <bool kWarp, typename S>
FAE_DEV void init_instance(const Launch& launch, std::int64_t b, std::int64_t t0, int n) {
  FAE_SHARED(shared);
  const Team<kWarp> team(kWarp ? nullptr : reinterpret_cast<double*>(shared));
  // The last instance's results were read by all before its memory is used again.
  team.sync();
  if (team.leads()) {
    unsigned char* const arena = shared + arena_of<kWarp>();
    State<S, std::uint16_t>& state = *reinterpret_cast<State<S, std::uint16_t>*>(arena);
    const Layout l = layout_of(n, launch.p.C, launch.R, team.size, sizeof(S), launch.needs);
    state.launch = &launch;
    state.b = b;
    state.t0 = t0;
    state.n = n;
    state.layout = l;
    state.loop.near = 0;
    const int bytes = kWarp ? launch.warp_bytes : launch.block_bytes;
    state.rows = row_block<S>(launch, t0, n, team.size, l.cs, reinterpret_cast<S*>(arena + l.s),
                              arena + l.bad, arena_of<kWarp>() + l.stage, bytes - l.stage);
  }
  team.sync();
}

// Zeroes `bad` before the projection marks rows in it.
template <bool kWarp, typename S, typename Idx>
FAE_NOINLINE __device__ void clear_bad() {
  const PartView<kWarp, S, Idx> part = part_view<kWarp, S, Idx>();
  for (int i = part.team.rank; i < part.view.n; i += part.team.size) part.view.bad[i] = 0;
  part.team.sync();
}

// Finds the Facts; `norm2` is the largest squared norm among this thread's rows.
template <bool kWarp, typename S>
FAE_NOINLINE __device__ void weigh_instance(double norm2) {
  norm2 = part_view<kWarp, S, std::uint16_t>().team.max(norm2);
  part_view<kWarp, S, std::uint16_t>().team.sync();
  weigh<kWarp, S, std::uint16_t>(norm2);
}

// Sweeps the State's instance; one function for all block sizes. What lives from part to part is in
// shared memory, found again after each.
template <bool kWarp, typename S>
FAE_NOINLINE __device__ void sweep_instance() {
  using Idx = std::uint16_t;
  const auto team = [] { return part_view<kWarp, S, Idx>().team; };
  const auto state = [] { return &state_of<kWarp, S, Idx>(); };
  if (team().make_uniform(has_invalid<kWarp, S, Idx>())) {
    const State<S, Idx>& s = *state();
    write_invalid<kWarp>(*s.launch, sizeof(S) == 8, s.b, s.t0, s.n, true);
    return;
  }
  clear_bad<kWarp, S, Idx>();
  double norm2 = 0;
  if (team().make_uniform(state()->n > 0)) {
    norm2 = project_rows<S>(arena_of<kWarp>(), state()->launch->p.values_dtype);
  }
  weigh_instance<kWarp, S>(norm2);
  prepare_keys<kWarp, S, Idx>(state()->launch->needs, wants_singles(state()->launch->p),
                              wants_minimal(state()->launch->p));
  team().sync();
  if (team().leads()) state()->loop.row = state()->loop.count = 0;
  team().sync();
#pragma unroll 1
  while (team().make_uniform(state()->loop.row + state()->loop.count < state()->launch->R)) {
    const int row = state()->loop.row + state()->loop.count;
    const int left = state()->launch->R - row;
    const int most = state()->layout.round;
    team().sync();
    sweep_rankings<kWarp, S, Idx>(row, left < most ? left : most);
  }
  team().sync();
  const State<S, Idx>& s = *state();
  write_status(team(), *s.launch, s.b, s.facts.status | flag(s.loop.near != 0, kNearTie));
}

// ---- kernels ----

// Zeroes the counters and finds the norms of the head's rows.
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
    if (team.leads()) launch.class_norms[c] = sqrt(square);
  }
  if (blockIdx.x == 0 && team.leads()) *launch.counters = Counters{};
}

// Says whether the offsets t0 and t1 of instance b do not tell which items it owns.
FAE_DEV bool is_broken(const SweepParams& p, std::int64_t b, std::int64_t t0, std::int64_t t1) {
  return t0 < 0 || t1 < t0 || t1 > p.T || (b == 0 && t0 != 0) || (b == p.B - 1 && t1 != p.T);
}

// Puts instance b on the list of its stage. Returns whether this warp is to take it instead, as one
// to refuse where `broken` is set.
FAE_DEV bool take_or_list(const Launch& launch, std::int64_t b, bool& broken) {
  const SweepParams& p = launch.p;
  const std::int64_t t0 = p.offsets[b];
  const std::int64_t t1 = p.offsets[b + 1];
  const std::int64_t n = t1 - t0;
  broken = is_broken(p, b, t0, t1);
  if (broken || n <= launch.limit_warp) return true;
  if (n <= launch.limit_mid) {
    launch.mid[atomicAdd(&launch.counters->mid, 1ull)] = b;
  } else if (n <= launch.limit_big) {
    launch.big[atomicAdd(&launch.counters->big, 1ull)] = b;
  } else {
    const unsigned long long at = atomicAdd(&launch.counters->longs, 1ull);
    broken = at >= static_cast<unsigned long long>(launch.max_longs);
    if (broken) return true;  // overlapping instances: more long ones than T can hold
    launch.longs[at] = b;
    atomicMax(&launch.counters->longest, static_cast<unsigned long long>(n));
    launch.facts[at].norm2 = 0;
  }
  return false;
}

// Takes the next `launch.grain` instances for this warp: refuses the broken ones, lists the longer
// ones, keeps the rest in the loop state, for packs or one by one. Returns whether there was one.
template <typename S>
FAE_NOINLINE __device__ bool take_instances(const Launch& launch) {
  const Team<true> team(nullptr);
  unsigned long long first = 0;
  if (team.leads()) {
    first =
        atomicAdd(&launch.counters->next_instance, static_cast<unsigned long long>(launch.grain));
  }
  first = __shfl_sync(kAllLanes, first, 0);
  if (first >= static_cast<unsigned long long>(launch.p.B)) return false;
  const std::int64_t b = static_cast<std::int64_t>(first) + team.rank;
  bool mine = false, broken = false;
  if (team.rank < launch.grain && b < launch.p.B) mine = take_or_list(launch, b, broken);
  mine = mine && !broken;
  bool packable = false;
  if (mine && launch.pack.rows > 0) {
    const std::int64_t n = launch.p.offsets[b + 1] - launch.p.offsets[b];
    packable = n > 0 && n <= kMostPacked;
  }
  const unsigned todo = __ballot_sync(kAllLanes, mine && !packable);
  const unsigned packs = __ballot_sync(kAllLanes, packable);
#pragma unroll 1
  for (unsigned wrong = __ballot_sync(kAllLanes, broken); wrong != 0; wrong &= wrong - 1) {
    const std::int64_t instance = static_cast<std::int64_t>(first) + __ffs(wrong) - 1;
    write_invalid<true>(launch, sizeof(S) == 8, instance, 0, 0, false);
  }
  State<S, std::uint16_t>& state = state_of<true, S, std::uint16_t>();
  LoopState& loop = state.loop;
  if (team.leads()) {
    state.launch = &launch;
    loop.first = static_cast<std::int64_t>(first);
    loop.todo = todo;
    loop.packable = packs;
  }
  team.sync();
  return true;
}

// Takes the next instance out of the loop state and makes its State; false where there is none
// left.
template <typename S>
FAE_NOINLINE __device__ bool next_taken(const Launch& launch) {
  const Team<true> team(nullptr);
  LoopState& loop = state_of<true, S, std::uint16_t>().loop;
  const unsigned todo = loop.todo;
  if (todo == 0) return false;
  const std::int64_t b = loop.first + __ffs(todo) - 1;
  const std::int64_t t0 = launch.p.offsets[b];
  init_instance<true, S>(launch, b, t0, static_cast<int>(launch.p.offsets[b + 1] - t0));
  if (team.leads()) loop.todo = todo & (todo - 1);
  return true;
}

// Runs stage kWarps: a warp an instance, or a pack of short ones.
template <typename S>
FAE_DEV void sweep_warps(const Launch& launch) {
  FAE_SHARED(shared);
  if (threadIdx.x == 0) *reinterpret_cast<int*>(shared) = launch.warp_bytes;
  __syncthreads();
  const Team<true> team(nullptr);
#pragma unroll 1
  while (team.make_uniform(take_instances<S>(launch))) {
    sweep_packs<S>();
#pragma unroll 1
    while (team.make_uniform(next_taken<S>(launch))) sweep_instance<true, S>();
    team.sync();
  }
}

// Takes the next instance of the stage's list and makes its State; false where there is none left.
template <typename S>
FAE_NOINLINE __device__ bool next_listed(const Launch& launch) {
  FAE_SHARED(shared);
  const bool big = launch.stage == kBig;
  const Team<false> team(reinterpret_cast<double*>(shared));
  unsigned long long* const slot =
      reinterpret_cast<unsigned long long*>(shared + kTeamScratchBytes);
  Counters* const counters = launch.counters;
  if (team.leads()) *slot = atomicAdd(big ? &counters->next_big : &counters->next_mid, 1ull);
  team.sync();
  const unsigned long long at = *slot;
  if (at >= (big ? counters->big : counters->mid)) return false;
  const std::int64_t b = big ? launch.big[at] : launch.mid[at];
  const std::int64_t t0 = launch.p.offsets[b];
  init_instance<false, S>(launch, b, t0, static_cast<int>(launch.p.offsets[b + 1] - t0));
  return true;
}

// Runs stages kMid and kBig: a block an instance.
template <typename S>
FAE_DEV void sweep_blocks(const Launch& launch) {
  const Team<false> team(nullptr);
#pragma unroll 1
  while (team.make_uniform(next_listed<S>(launch))) sweep_instance<false, S>();
}

// ---- instances that outgrow shared memory ----

// Counts the long instances that are listed.
FAE_DEV std::int64_t long_count(const Launch& launch) {
  const std::int64_t count = static_cast<std::int64_t>(launch.counters->longs);
  return count < launch.max_longs ? count : launch.max_longs;
}

// Makes the State of the long instance in `slot` for lane `task_lane` (-1: none), all but its loop
// state; a sort's tile is behind it.
template <typename S>
FAE_NOINLINE __device__ void init_long(const Launch& launch, std::int64_t slot, int task_lane,
                                       bool js, bool drop) {
  FAE_SHARED(shared);
  if (threadIdx.x == 0) {
    State<S, std::uint32_t>& state =
        *reinterpret_cast<State<S, std::uint32_t>*>(shared + kBlockArena);
    const SweepParams& p = launch.p;
    const std::int64_t b = launch.longs[slot];
    const std::int64_t t0 = p.offsets[b];
    const int C = static_cast<int>(p.C);
    const int task = task_lane < 0 ? 0 : task_lane;
    double* const classes = launch.long_classes + slot * 5 * C;
    double* const items = launch.long_items + static_cast<std::int64_t>(task) * 2 * p.T + t0;
    std::uint32_t* const orders =
        launch.long_orders + static_cast<std::int64_t>(task) * 3 * p.T + t0;
    state.facts = launch.facts[slot];
    state.loop.near = 0;
    new (&state.view) View<S, std::uint32_t>{
        launch,
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
        js ? launch.long_singles + t0 : nullptr,
        drop ? launch.long_singles + p.T + t0 : nullptr,
        classes,
        classes + C,
        classes + 2 * C,
        classes + 3 * C,
        classes + 4 * C,
        launch.long_sums + blockIdx.x * launch.long_sum_words,
        launch.long_keys + static_cast<std::int64_t>(task) * 2 * p.T + t0,
        orders,
        orders + p.T,
        launch.long_bad + static_cast<std::int64_t>(task_lane + 1) * p.T + t0};
  }
  __syncthreads();
}

// Consecutive items of a long instance; next_tile makes it.
struct Tile {
  std::int64_t number;  // among the instance's tiles
  std::int64_t t0;      // the instance's first item in the batch
  int slot;             // the instance; times `lanes` plus the lane
  int first, count;     // its items, counted from the instance's first; count 0: no tile is left
};

// Finds this block's next tile of `items` items of long instances. A block takes the tiles k,
// k + gridDim, … of them all, those of each instance once a lane. In the loop state, `task` is the
// instance's slot (times `lanes` plus the lane), `first` the tile there.
FAE_DEV Tile next_tile(const Launch& launch, const LoopState& loop, int items, int lanes = 1) {
  const std::int64_t slots = long_count(launch) * lanes;
  std::int64_t number = loop.first;
  for (int slot = loop.task; slot < slots; ++slot) {
    const std::int64_t b = launch.longs[slot / lanes];
    const std::int64_t t0 = launch.p.offsets[b];
    const std::int64_t left = launch.p.offsets[b + 1] - t0 - number * items;
    if (left > 0) {
      return Tile{number, t0, slot, static_cast<int>(number * items),
                  static_cast<int>(left < items ? left : items)};
    }
    number -= (left + (number + 1) * items - 1) / items;
  }
  return Tile{};
}

// Sets the loop state to the block's first tile.
template <typename S>
FAE_DEV void first_tile(const Team<false>& team) {
  if (team.leads()) {
    LoopState& loop = state_of<false, S, std::uint32_t>().loop;
    loop.task = 0;
    loop.first = blockIdx.x;
  }
  team.sync();
}

// Takes the next tile of rows to project; false where there is none left.
template <typename S>
FAE_NOINLINE __device__ bool next_row_tile(const Launch& launch) {
  FAE_SHARED(shared);
  const Team<false> team(reinterpret_cast<double*>(shared));
  State<S, std::uint32_t>& state = state_of<false, S, std::uint32_t>();
  const SweepParams& p = launch.p;
  const Tile tile = next_tile(launch, state.loop, kLongRows);
  team.sync();
  if (tile.count == 0) return false;
  const std::int64_t row = tile.t0 + tile.first;
  const int m = tile.count;
  for (int i = team.rank; i < m; i += team.size) launch.long_bad[row + i] = 0;
  if (team.leads()) {
    state.loop.first = tile.number;
    state.loop.task = tile.slot;
    state.rows = row_block<S>(launch, row, m, team.size, static_cast<int>(p.C),
                              static_cast<S*>(launch.long_s) + row * p.C, launch.long_bad + row,
                              kBlockArena + kStateBytes, launch.block_bytes - kStateBytes);
  }
  team.sync();
  return true;
}

// Keeps the largest squared norm and goes on to the block's next tile.
template <typename S>
FAE_NOINLINE __device__ void finish_row_tile(const Launch& launch, double norm2) {
  FAE_SHARED(shared);
  const Team<false> team(reinterpret_cast<double*>(shared));
  LoopState& loop = state_of<false, S, std::uint32_t>().loop;
  norm2 = team.max(norm2);
  if (team.leads()) {
    if (norm2 > 0) {
      // Non-negative doubles order like their bits.
      unsigned long long bits;
      memcpy(&bits, &norm2, 8);
      atomicMax(reinterpret_cast<unsigned long long*>(&launch.facts[loop.task].norm2), bits);
    }
    loop.first += gridDim.x;
  }
  team.sync();
}

// Runs stage kProjectLong: all blocks project the rows of all long instances.
template <typename S>
FAE_DEV void project_long(const Launch& launch) {
  const Team<false> team(nullptr);
  first_tile<S>(team);
#pragma unroll 1
  while (team.make_uniform(next_row_tile<S>(launch))) {
    finish_row_tile<S>(launch, project_rows<S>(kBlockArena, launch.p.values_dtype));
  }
}

// Runs stage kInvalidRows, behind the launches of a sweep of several: writes what one of them found
// invalid as invalid in the rows of all of them, a warp an instance.
template <typename S>
FAE_DEV void invalidate_rows(const Launch& launch) {
  const SweepParams& p = launch.p;
  const Team<true> team(nullptr);
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * (kSmallThreads / 32);
#pragma unroll 1
  for (std::int64_t b = (blockIdx.x * kSmallThreads + threadIdx.x) / 32; b < p.B; b += warps) {
    const std::int64_t t0 = p.offsets[b], t1 = p.offsets[b + 1];
    if (team.make_uniform((p.status[b] & kInvalid) != 0 && !is_broken(p, b, t0, t1))) {
      write_invalid<true>(launch, sizeof(S) == 8, b, t0, t1 - t0, true);
    }
  }
}

// Runs a stage of warps, of blocks or of the projection of long instances. One kernel, so that its
// parts are compiled once; 128 registers at most, so that four blocks of kSmallThreads or one of
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
    case kInvalidRows:
      invalidate_rows<S>(launch);
      break;
    default:
      sweep_blocks<S>(launch);
  }
}

// Finds the Facts of the long instances, a block an instance.
template <typename S>
__global__ void __launch_bounds__(kLongThreads) long_facts(const FAE_PARAMETER Launch launch) {
  FAE_SHARED(shared);
  using Idx = std::uint32_t;
  const Team<false> team(reinterpret_cast<double*>(shared));
  State<S, Idx>& state = *reinterpret_cast<State<S, Idx>*>(shared + kBlockArena);
  if (team.leads()) state.loop.first = blockIdx.x;
  team.sync();
#pragma unroll 1
  while (state.loop.first < long_count(launch)) {
    Facts& kept = launch.facts[state.loop.first];
    init_long<S>(launch, state.loop.first, -1, false, false);
    if (has_invalid<false, S, Idx>()) {
      const View<S, Idx>& v = state.view;
      write_invalid<false>(launch, sizeof(S) == 8, v.b, v.t0, v.n, true);
      if (team.leads()) {
        kept = Facts{};
        kept.invalid = true;
      }
    } else {
      weigh<false, S, Idx>(kept.norm2);
      write_status(team, launch, state.view.b, state.facts.status);
      if (team.leads()) kept = state.facts;
    }
    if (team.leads()) state.loop.first += gridDim.x;
    team.sync();
  }
}

// Adds a near-tie of the State's instance to its status.
template <typename S>
FAE_DEV void add_near_tie(const Launch& launch) {
  const State<S, std::uint32_t>& state = state_of<false, S, std::uint32_t>();
  if (threadIdx.x == 0 && state.loop.near != 0 && launch.p.status != nullptr) {
    atomicOr(reinterpret_cast<unsigned long long*>(&launch.p.status[state.view.b]),
             static_cast<unsigned long long>(kNearTie));
  }
}

// Takes the next tile of items to erase alone and makes the State of its instance; false where
// there is none left.
template <typename S>
FAE_NOINLINE __device__ bool next_single_tile(const Launch& launch) {
  FAE_SHARED(shared);
  const Team<false> team(reinterpret_cast<double*>(shared));
  LoopState& loop = state_of<false, S, std::uint32_t>().loop;
  const Tile tile = next_tile(launch, loop, kLongThreads);
  if (tile.count == 0) return false;
  init_long<S>(launch, tile.slot, -1, launch.needs.js, launch.needs.drop);
  if (team.leads()) {
    loop.first = tile.number + gridDim.x;
    loop.task = tile.slot;
    loop.row = tile.first;
    loop.count = launch.facts[tile.slot].invalid ? 0 : tile.count;
  }
  team.sync();
  return true;
}

// Runs stage kLongSingles: all blocks share the single erasures of all long instances.
template <typename S>
FAE_NOINLINE __device__ void share_singles(const Launch& launch) {
  const Team<false> team(nullptr);
  first_tile<S>(team);
#pragma unroll 1
  while (team.make_uniform(next_single_tile<S>(launch))) {
    erase_singles<false, S, std::uint32_t>(wants_singles(launch.p));
    team.sync();
    add_near_tie<S>(launch);
  }
}

// Says whether a ranking is a sort of keys.
__host__ FAE_DEV bool sorts_keys(const DeviceRanking& ranking) {
  return ranking.kind != kGivenOrder && ranking.kind != kGreedy && ranking.kind != kMinimal;
}

// Makes the State of the instance in `slot` for lane `lane`, its loop state at that lane's ranking.
template <typename S>
FAE_DEV void init_task(const Launch& launch, std::int64_t slot, int lane) {
  const int task = launch.first_task + lane;
  const int kind = task < launch.R ? launch.rankings[task].kind : -1;
  init_long<S>(launch, slot, lane, kind == kLeaveOneOut, kind == kLeaveOneOutDrop);
  if (threadIdx.x == 0) {
    LoopState& loop = state_of<false, S, std::uint32_t>().loop;
    loop.row = task;
    loop.count = 1;
  }
  __syncthreads();
}

// Sorts or merges the block's next tile of a ranking's pairs; false where there is none left.
template <typename S>
FAE_NOINLINE __device__ bool sort_next_tile(const Launch& launch) {
  FAE_SHARED(shared);
  using Idx = std::uint32_t;
  const Team<false> team(reinterpret_cast<double*>(shared));
  unsigned char* const memory = shared + kBlockArena + kStateBytes;
  const bool merges = launch.stage == kLongMerge;
  const Tile tile = next_tile(launch, state_of<false, S, Idx>().loop, kTilePairs, kLongLanes);
  team.sync();
  if (tile.count == 0) return false;
  const int lane = tile.slot % kLongLanes;
  const int task = launch.first_task + lane;
  if (task < launch.R && sorts_keys(launch.rankings[task]) &&
      !launch.facts[tile.slot / kLongLanes].invalid) {
    init_task<S>(launch, tile.slot / kLongLanes, lane);
    const View<S, Idx>& v = state_of<false, S, Idx>().view;
    const int n = v.n, pass = launch.merge_pass;
    const Pairs end{v.buffer, v.orders}, spare = spare_pairs(v);
    if (!merges) {
      sort_tile(team, memory, n, tile.first, pairs_before(n, 0, end, spare),
                [](int i) { return word_of<false, S, Idx>(0, i); });
    } else if (pass < merge_passes(n)) {
      merge_tile(team, memory, n, static_cast<std::int64_t>(kTilePairs) << pass, tile.first,
                 pairs_before(n, pass, end, spare), pairs_before(n, pass + 1, end, spare));
    }
  }
  if (team.leads()) {
    LoopState& loop = state_of<false, S, Idx>().loop;
    loop.first = tile.number + gridDim.x;
    loop.task = tile.slot;
  }
  team.sync();
  return true;
}

// Runs stages kLongSort and kLongMerge: all blocks share a pass of the sorts of all long instances.
template <typename S>
FAE_NOINLINE __device__ void share_sorts(const Launch& launch) {
  const Team<false> team(nullptr);
  const unsigned long long width = static_cast<unsigned long long>(kTilePairs) << launch.merge_pass;
  if (launch.stage == kLongMerge && width >= launch.counters->longest) return;
  first_tile<S>(team);
#pragma unroll 1
  while (team.make_uniform(sort_next_tile<S>(launch))) {
  }
}

// Finds gradients and minimal set before the keys of lane `lane` of the instance in `slot` are
// sorted.
template <typename S>
FAE_DEV void prepare_task(const Launch& launch, std::int64_t slot, int lane) {
  FAE_SHARED(shared);
  using Idx = std::uint32_t;
  const Team<false> team(reinterpret_cast<double*>(shared));
  const int task = launch.first_task + lane;
  const int kind = task < launch.R ? launch.rankings[task].kind : -1;
  Needs needs{};
  needs.renormalized = kind == kRenormalizedGradient;
  needs.gradient = needs.renormalized || kind == kGradient || kind == kProduct;
  needs.minimal = kind == kMinimal || task == launch.R;
  init_task<S>(launch, slot, lane);
  // Greedy marks what it took; every lane has its own copy.
  const View<S, Idx>& v = state_of<false, S, Idx>().view;
  const unsigned char* const bad = launch.long_bad + v.t0;
  for (int i = team.rank; i < v.n; i += team.size) v.bad[i] = bad[i];
  prepare_keys<false, S, Idx>(needs, false, task == launch.R);
}

// Runs a stage of the long instances behind long_facts.
template <typename S>
__global__ void __launch_bounds__(kLongThreads) long_tasks(const FAE_PARAMETER Launch launch) {
  FAE_SHARED(shared);
  using Idx = std::uint32_t;
  const Team<false> team(reinterpret_cast<double*>(shared));
  if (launch.stage == kLongSingles) {
    share_singles<S>(launch);
    return;
  }
  if (launch.stage != kLongKeys && launch.stage != kLongScan) {
    share_sorts<S>(launch);
    return;
  }
  LoopState& loop = state_of<false, S, Idx>().loop;
  if (team.leads()) {
    loop.first = blockIdx.x;
    loop.near = 0;
  }
  team.sync();
#pragma unroll 1
  while (loop.first < long_count(launch) * kLongLanes) {
    const std::int64_t slot = loop.first / kLongLanes;
    const int lane = static_cast<int>(loop.first % kLongLanes);
    const bool ranks = launch.first_task + lane < launch.R;
    const bool finds_set = launch.first_task + lane == launch.R && wants_minimal(launch.p);
    const bool valid = !launch.facts[slot].invalid;
    if (valid && launch.stage == kLongKeys && (ranks || finds_set)) {
      prepare_task<S>(launch, slot, lane);
    } else if (valid && launch.stage == kLongScan && ranks) {
      init_task<S>(launch, slot, lane);
      place_orders<false, S, Idx>();
      scan_rankings<false, S, Idx>();
    }
    team.sync();
    add_near_tie<S>(launch);
    if (team.leads()) {
      loop.first += gridDim.x;
      loop.near = 0;
    }
    team.sync();
  }
}

}  // namespace fae
