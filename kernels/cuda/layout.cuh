// What a launch hands to the kernels, and where an instance's working memory lies.
#pragma once

#include <new>
#include <type_traits>

#include "sort.cuh"
#include "team.cuh"

namespace fae {

constexpr int kMaxRankings = 200;  // a launch; kernel arguments are 4 KiB
constexpr int kRoundRankings = 8;  // sorted and walked at once
constexpr int kWordsAThread = 16;  // of a sort in registers
constexpr int kLongLanes = 4;      // rankings of a long instance at once
constexpr int kMostGrain = 32;     // instances a warp classifies at once
constexpr int kMostPacked = 16;    // items of an instance that a lane takes (pack.cuh)
constexpr int kMostPackClasses = 16;

struct DeviceRanking {
  const void* data;    // GIVEN_ORDER, GIVEN_KEYS: [T]; RANDOM: the order's number
  std::int32_t kind;   // RankingKind
  std::int32_t dtype;  // GIVEN_KEYS
};

// Which results need what; from the host's view of a launch.
struct Needs {
  bool gradient, renormalized, js, drop, minimal, singles, single_kl;
  bool curves, logits, divergence;
  int stage;  // bytes a warp needs to project rows a lane each, 0 where it cannot
};

// What is known of an instance once its weights and sums are.
struct Facts {
  double tolerance;  // of near-ties, times the surviving mass
  double top_score;  // the largest finite score
  double mass;       // the sum of the normalised weights
  double norm2;      // the largest squared norm of a row
  int label, bias_label, positives, top_item;
  bool finite, bias_finite, has_mass, underflow, invalid;
  std::int64_t status;
};

struct Counters {
  unsigned long long next_instance, next_mid, next_big;
  unsigned long long mid, big, longs;
  unsigned long long longest;  // items of a long instance
};

// How far the search for the minimal set is.
struct Minimal {
  double threshold;  // the margin of the best set's last item
  int runner_up;     // the class with the smallest sum at k = 0
  int size, label;   // of the best set, n + 1 and C where there is none yet
  int nearest;       // the smallest set whose sum is a near-tie
  int sorted;        // the class whose order min_order is, -1 for none
  int step;          // of the search, 0 … C - 1
};

// Byte offsets of a pack's arrays in a warp's memory: see Packed.
struct PackLayout {
  int rows;    // 0: instances are not packed
  int stride;  // doubles from one row of margins to the next
  int margins, a, g, words, stage, bias, prob, log_prob, again, renorm, js, drop, min_order, total;
};

enum Stage : std::int32_t {
  kWarps,
  kMid,
  kBig,
  kProjectLong,
  kLongSingles,
  kLongKeys,
  kLongSort,
  kLongMerge,
  kLongScan
};

// Kernel arguments.
struct Launch {
  SweepParams p;                         // host pointers (rankings, orders, keys) unused
  std::int64_t row0;                     // of the first ranking here in the [R, …] results
  int R;                                 // rankings here
  Stage stage;                           // what this launch of sweep_kernel or long_tasks does
  int accumulate;                        // 1: keep the status bits that are there
  int vector;                            // elements a load of the values may have
  int grain;                             // instances a warp takes at a time
  int limit_warp, limit_mid, limit_big;  // the longest instances of each path, -1 for none
  int warp_bytes;                        // of shared memory, a warp of the first kernel
  int block_bytes;                       // a block of this one, behind its scratch
  int first_task;                        // of long instances: lane l takes this one + l
  int merge_pass;
  Needs needs;
  PackLayout pack;
  // Workspace.
  Counters* counters;
  double* class_norms;  // [C] ‖W_c‖
  std::int64_t* mid;    // [B], instances
  std::int64_t* big;    // [B]
  std::int64_t* longs;  // [max_longs]
  std::int64_t max_longs;
  Facts* facts;                // [max_longs]
  double* long_classes;        // [max_longs, 5, C]
  void* long_s;                // [T, C]
  double* long_a;              // [T]
  double* long_items;          // [kLongLanes, 2, T]
  double* long_singles;        // [2, T]: divergences and drops where a ranking is by them
  Word* long_keys;             // [kLongLanes, 2, T]
  std::uint32_t* long_orders;  // [kLongLanes, 3, T]: rankings, minimal sets, spare
  unsigned char* long_bad;     // [1 + kLongLanes, T]
  double* long_sums;           // [blocks, long_sum_words]
  std::int64_t long_sum_words;
  DeviceRanking rankings[kMaxRankings];
};
static_assert(sizeof(Launch) <= 4096, "kernel arguments must fit 4 KiB");

// Classes that a lane that has a whole row projects at once; see project_lanes and project_rows.
__host__ FAE_DEV int lane_classes(std::int64_t C, int value_bytes) {
  return C <= 2 ? 2 : C <= 5 || value_bytes == 2 ? 5 : 10;
}
constexpr int kStageRow = 80;    // bytes: 64 of a row, and 16 for other banks
constexpr int kFloatSpan = 128;  // features a float32 sum may span

// Shared memory a warp needs for that: parts of 32 rows, and the same part of the head.
__host__ FAE_DEV int stage_bytes(std::int64_t C, int value_bytes) {
  return 32 * kStageRow + lane_classes(C, value_bytes) * (16 / value_bytes) * 16;
}

// Lanes that share one chunk of a walk, one class or more each.
__host__ FAE_DEV int class_lanes(int C) { return C >= 32 ? 32 : next_power_of_two(C); }
// Doubles of one group's sums: two a class (four where a lane has several), mass, weight sum,
// largest score, bad items, first event and first near-tie.
__host__ FAE_DEV std::int64_t group_words(std::int64_t C) { return (C > 32 ? 4 : 2) * C + 6; }

// Bytes at the start of an instance's memory: its State.
constexpr int kStateBytes = 400;

// Byte offsets of the arrays of an instance in shared memory; they mean something where `total` is
// no more than shared memory has.
struct Layout {
  std::int64_t total;
  int s, bad, stage, a, g, renorm, js, drop, classes, sums, buffer, orders, min_order;
  int cs;     // elements from one row of s to the next
  int P;      // next power of two of n
  int round;  // rankings a round
};

__host__ FAE_DEV int reserve(std::int64_t& at, std::int64_t bytes) {
  const std::int64_t begin = at;
  at += (bytes + 15) / 16 * 16;
  return static_cast<int>(begin);
}

// Words a thread of a sort of `words` words in all.
__host__ FAE_DEV int words_a_thread(int words, int size) {
  return words <= size ? 1 : words <= 4 * size ? 4 : kWordsAThread;
}

// Bytes of its exchange buffer: needed where a segment of P words spans several warps.
__host__ FAE_DEV std::int64_t buffer_bytes(int words, int P, int size) {
  const int each = words_a_thread(words, size);
  return P > 32 * each ? static_cast<std::int64_t>(size) * each * 8 : 0;
}

__host__ FAE_DEV Layout layout_of(int n, std::int64_t C, int R, int size, int real_bytes,
                                  const Needs& needs) {
  Layout l{};
  l.P = next_power_of_two(n > 1 ? n : 1);
  // Odd rows keep lanes that read one class of successive rows on different banks.
  l.cs = static_cast<int>(C <= 2 ? C : (C | 1));
  const int fit = size * kWordsAThread / l.P;
  l.round = fit < 1 ? 1 : fit < kRoundRankings ? fit : kRoundRankings;
  if (l.round > R) l.round = R > 0 ? R : 1;
  std::int64_t at = kStateBytes;
  const std::int64_t items = n;
  l.s = reserve(at, items * l.cs * real_bytes);
  l.bad = reserve(at, items);
  // Rows are staged where later the rest is.
  l.stage = static_cast<int>(at);
  l.a = reserve(at, items * 8);
  l.g = reserve(at, needs.gradient ? items * 8 : 0);
  l.renorm = reserve(at, needs.renormalized ? items * 8 : 0);
  l.js = reserve(at, needs.js ? items * 8 : 0);
  l.drop = reserve(at, needs.drop ? items * 8 : 0);
  l.classes = reserve(at, 5 * C * 8);
  l.sums = reserve(at, size / class_lanes(static_cast<int>(C)) * group_words(C) * 8);
  const std::int64_t rounds = buffer_bytes(l.round * l.P, l.P, size);
  const std::int64_t last = R > 0 ? buffer_bytes((R - 1) % l.round * l.P + l.P, l.P, size) : 0;
  const std::int64_t single = needs.minimal ? buffer_bytes(l.P, l.P, size) : 0;
  const std::int64_t sorts = rounds > last ? rounds : last;
  l.buffer = reserve(at, sorts > single ? sorts : single);
  l.orders = reserve(at, items * (R < kRoundRankings ? R : kRoundRankings) * 2);
  l.min_order = reserve(at, needs.minimal ? items * 2 : 0);
  l.total = at;
  return l;
}

constexpr int kSlotBytes = 24;  // of a pack, a lane

// The layout of packs of `rows` rows.
inline PackLayout pack_layout(int rows, std::int64_t C, int real_bytes, const Needs& needs) {
  PackLayout l{};
  l.rows = rows;
  // Contributions and, later, one margin less. Odd, for successive rows on different banks.
  const int classes = static_cast<int>(C);
  const int contributions = (classes * real_bytes + 7) / 8;
  l.stride = (contributions > classes - 1 ? contributions : classes - 1) | 1;
  std::int64_t at = kStateBytes + 32 * kSlotBytes;
  const int each = 32 * (classes | 1) * 8;
  l.margins = reserve(at, rows * l.stride * 8);
  l.a = reserve(at, rows * 8);
  l.g = reserve(at, rows * 8);
  l.words = reserve(at, rows * 4);
  l.stage = static_cast<int>(at);
  l.bias = reserve(at, each);
  l.prob = reserve(at, each);
  l.log_prob = reserve(at, needs.single_kl ? each : 0);
  l.again = reserve(at, needs.singles ? each : 0);
  l.renorm = reserve(at, needs.renormalized ? rows * 8 : 0);
  l.js = reserve(at, needs.js ? rows * 8 : 0);
  l.drop = reserve(at, needs.drop ? rows * 8 : 0);
  l.min_order = reserve(at, needs.minimal ? rows : 0);
  l.total = static_cast<int>(at > l.stage + needs.stage ? at : l.stage + needs.stage);
  return l;
}

// An instance as the analysis sees it; Idx is uint16_t in shared memory, else uint32_t.
template <typename S, typename Idx>
struct View {
  const Launch& launch;
  std::int64_t b, t0;
  int n, C, cs, P, round;
  S* s;                // [n, cs] contributions
  double* a;           // [n] normalised weights
  double* g;           // [n] gradients
  double* renorm;      // [n] keys of the renormalised gradient
  double* js;          // [n] of erasing the item alone, null where no ranking needs it
  double* drop;        // [n] of the label's probability, likewise
  double* bias;        // [C]
  double* logits;      // [C]
  double* prob;        // [C]
  double* log_prob;    // [C]
  double* margin;      // [C] Σ_i m_{i,c}
  double* sums;        // scratch, group_words(C) a group of lanes
  Word* buffer;        // sort exchange
  Idx* orders;         // [round, n]
  Idx* min_order;      // [n]
  unsigned char* bad;  // [n] bit 0: the contribution is not finite, bit 1: the score or weight

  FAE_DEV double attention(int i) const {
    return load_real(launch.p.attention, launch.p.attention_dtype,
                     (t0 + i) * launch.p.attention_stride_t);
  }
  FAE_DEV double score(int i) const { return (bad[i] & 2) ? -infinity() : attention(i); }
  FAE_DEV double contribution(int i, int c) const {
    return s[static_cast<std::int64_t>(i) * cs + c];
  }
  // (s_{i,y} + b_y) − (s_{i,c} + b_c); with no label (y < 0) the first bracket is zero.
  FAE_DEV double difference(int i, int y, int c) const {
    const double own = y < 0 ? 0.0 : contribution(i, y) + bias[y];
    return own - (contribution(i, c) + bias[c]);
  }
};

// Rows to project, the same for all threads of a team.
struct RowBlock {
  const void* values;   // the first row
  std::int64_t stride;  // elements
  const void* head;     // [C, D]
  void* s;              // where the contributions go
  unsigned char* bad;   // [n], set to 1 where a contribution is not finite
  const int* items;     // [n], which rows; null where they are 0 … n - 1
  double* squares;      // [n], where the rows' squared norms go, null where nowhere
  int n, D, C;
  int s_stride;  // elements from one row of s to the next
  int stage;     // where in shared memory rows are staged, -1 where a group of lanes reads a row
  int size;      // threads of the team
  int vector;    // elements a load may have
  int lanes;     // threads a row
  int groups;    // size / lanes
};

// Where the loops around the parts of a sweep are.
struct LoopState {
  std::int64_t first;  // number of a warp's first instance, of a long instance's job or slot
  unsigned todo;       // a warp's instances still to do from there
  unsigned packable;   // and those for packs
  int task;            // of a long instance
  int row, count;      // the rankings to sort and walk; a row below zero is -1 - c, the minimal
                       // set's order for class c; or the items to erase
  int near;            // 1 where a sum compared so far is a near-tie
};

// A part of a sweep has a barrier before it reads what other threads wrote in the part before.
//
// What the parts, each a call without arguments, need of an instance: kStateBytes of
// shared memory before its arrays. As arguments it would be copied to every thread's stack, which
// misses L1; and what a caller holds its callees must not use, so that callers hold nothing.
template <typename S, typename Idx>
struct State {  // arrays in device memory
  RowBlock rows;
  Facts facts;
  Minimal minimal;
  LoopState loop;
  View<S, Idx> view;
};
template <typename S>
struct State<S, std::uint16_t> {  // arrays in shared memory
  RowBlock rows;
  Facts facts;
  Minimal minimal;
  LoopState loop;
  const Launch* launch;
  std::int64_t b, t0;
  int n;
  Layout layout;
};
static_assert(sizeof(State<float, std::uint16_t>) <= kStateBytes);
static_assert(sizeof(State<float, std::uint32_t>) <= kStateBytes);

// Shared memory before the instances' own: a warp finds there how many bytes each warp has, a block
// its scratch and the number of its next instance.
constexpr int kWarpArena = 16;
constexpr int kBlockArena = kTeamScratchBytes + 16;

// Where in shared memory the State of this team's instance is.
template <bool kWarp>
FAE_DEV int arena_of() {
  if constexpr (kWarp) {
    FAE_SHARED(shared);
    const int warp = launder(static_cast<int>(threadIdx.x)) >> 5;
    return kWarpArena + warp * *reinterpret_cast<const int*>(shared);
  } else {
    return kBlockArena;
  }
}

// What a part works with; made in every function, since the compiler knows shared memory
// only where it is declared.
template <bool kWarp, typename S, typename Idx>
struct PartView {
  Team<kWarp> team;
  State<S, Idx>& state;
  Facts& facts;
  // Addresses in device memory are long: read again wherever they are used.
  std::conditional_t<sizeof(Idx) == 4, const View<S, Idx>&, View<S, Idx>> view;
};

template <bool kWarp, typename S, typename Idx>
FAE_DEV State<S, Idx>& state_of() {
  FAE_SHARED(shared);
  return *reinterpret_cast<State<S, Idx>*>(shared + arena_of<kWarp>());
}

template <bool kWarp, typename S, typename Idx>
FAE_DEV PartView<kWarp, S, Idx> part_view() {
  FAE_SHARED(shared);
  unsigned char* const arena = shared + arena_of<kWarp>();
  State<S, Idx>& state = *reinterpret_cast<State<S, Idx>*>(arena);
  const Team<kWarp> team(kWarp ? nullptr : reinterpret_cast<double*>(shared));
  if constexpr (sizeof(Idx) == 4) {
    return PartView<kWarp, S, Idx>{team, state, state.facts, state.view};
  } else {
    const Launch& launch = *state.launch;
    const Layout& l = state.layout;
    const int C = static_cast<int>(launch.p.C);
    const auto doubles = [&](int offset) { return reinterpret_cast<double*>(arena + offset); };
    double* const classes = doubles(l.classes);
    return PartView<kWarp, S, Idx>{team,
                                   state,
                                   state.facts,
                                   {launch,
                                    state.b,
                                    state.t0,
                                    state.n,
                                    C,
                                    l.cs,
                                    l.P,
                                    l.round,
                                    reinterpret_cast<S*>(arena + l.s),
                                    doubles(l.a),
                                    doubles(l.g),
                                    doubles(l.renorm),
                                    launch.needs.js ? doubles(l.js) : nullptr,
                                    launch.needs.drop ? doubles(l.drop) : nullptr,
                                    classes,
                                    classes + C,
                                    classes + 2 * C,
                                    classes + 3 * C,
                                    classes + 4 * C,
                                    doubles(l.sums),
                                    reinterpret_cast<Word*>(arena + l.buffer),
                                    reinterpret_cast<Idx*>(arena + l.orders),
                                    reinterpret_cast<Idx*>(arena + l.min_order),
                                    arena + l.bad}};
  }
}

__host__ FAE_DEV bool wants_singles(const SweepParams& p) { return wants_any<kSingleOutputs>(p); }
__host__ FAE_DEV bool wants_minimal(const SweepParams& p) { return wants_any<kMinimalOutputs>(p); }

template <typename T>
FAE_DEV void write_real(void* array, bool is_double, std::int64_t index, T value) {
  if (array == nullptr) return;
  if (is_double) {
    static_cast<double*>(array)[index] = value;
  } else {
    static_cast<float*>(array)[index] = static_cast<float>(value);
  }
}

FAE_DEV void write_int(std::int64_t* array, std::int64_t index, std::int64_t value) {
  if (array != nullptr) array[index] = value;
}

}  // namespace fae
