// The kernels' argument, and the layouts of an instance's and of a pack's shared memory.
#pragma once

#include <new>
#include <type_traits>

#include "sort.cuh"
#include "team.cuh"

namespace fae {

constexpr int kMaxRankings = 200;  // rankings a launch; kernel arguments are 4 KiB
constexpr int kRoundRankings = 8;  // rankings a round: sorted and scanned at once, at most
constexpr int kWordsAThread = 16;  // words a thread of a sort in registers, at most
constexpr int kLongLanes = 4;      // rankings of a long instance worked on at once
constexpr int kMostGrain = 32;     // instances a warp takes at a time, at most
constexpr int kMostPacked = 16;    // items of an instance that a lane of a pack takes, at most
constexpr int kMostPackClasses = 16;

// A ranking as the kernels read it; the host writes it.
struct DeviceRanking {
  const void* data;    // GIVEN_ORDER, GIVEN_KEYS: [T]; RANDOM: the order's number
  std::int32_t kind;   // RankingKind
  std::int32_t dtype;  // DType of GIVEN_KEYS
};

// What the wanted results and the rankings of a launch have to compute; the host writes it.
struct Needs {
  bool gradient;      // gradients g_i, for keys
  bool renormalized;  // keys of the renormalised gradient
  bool js, drop;      // of single erasures, as keys
  bool minimal;       // the minimal set, as a result or an order
  bool singles;       // single erasures, as results or keys
  bool single_kl;     // log p, for the divergence of single erasures
  bool curves;        // a value a prefix
  bool logits;        // the curve of logits
  bool divergence;    // curves of the distribution over the classes
  int stage;          // bytes a warp stages rows in to project a row a lane, 0 where it cannot
};

// The decision on nothing erased and what else is shared by all later parts; find_facts writes it.
struct Facts {
  double tolerance;  // |sum| below tolerance * surviving mass is a near-tie
  double top_score;  // the largest finite score
  double mass;       // the sum of the normalised weights: 1 but for rounding, or 0
  double norm2;      // the largest squared norm of a row; of long instances by next_row_tile
  int label;         // the decision, -1 where something is not finite
  int bias_label;    // the decision where no mass survives, -1 where the bias is not finite
  int positives;     // items that have weight
  int top_item;      // the first item with the top score, n where weights do not underflow
  bool finite;       // all contributions, weights or scores, and biases
  bool bias_finite;
  bool has_mass;
  bool underflow;  // scores span more than kUnderflowSpan: sums need a running scale
  bool invalid;    // of a long instance: offsets, weights, keys or orders cannot be used
  std::int64_t status;
};

// Positions in the lists of instances. `prepare` zeroes them; warps and blocks add to them.
struct Counters {
  unsigned long long next_instance, next_mid, next_big;  // the next to take: of all, of a list
  unsigned long long mid, big, longs;                    // lengths of the lists
  unsigned long long longest;                            // items of the longest long instance
};

// The state of the search for the minimal set; init_minimal and judge_minimal write it.
struct Minimal {
  double threshold;  // the margin of the best set's last item
  int runner_up;     // the class with the smallest sum at k = 0
  int size, label;   // items and class of the best set so far, n + 1 and C where there is none
  int nearest;       // items of the smallest set whose sum is a near-tie, n + 1 where none is
  int sorted;        // the class whose order min_order is, -1 for none
  int step;          // 0 … C - 1
};

// Byte offsets of a pack's arrays in a warp's memory (see Packed); the host writes them.
struct PackLayout {
  int rows;    // items a pack has room for; 0: instances are not packed
  int stride;  // doubles from one row of margins to the next
  int margins, a, g, words, stage, bias, prob, log_prob, again, renorm, js, drop, min_order, total;
};

// What a launch of sweep_kernel or long_tasks does; see sweep.cuh.
enum Stage : std::int32_t {
  kWarps,
  kMid,
  kBig,
  kProjectLong,
  kLongSingles,
  kLongKeys,
  kLongSort,
  kLongMerge,
  kLongScan,
  kInvalidRows
};

// The kernels' argument; the host writes it (make_plan, launch_of).
struct Launch {
  SweepParams p;                         // host pointers (rankings, orders, keys) unused
  std::int64_t row0;                     // row of its first ranking in the [R, …] results
  int R;                                 // rankings of this launch
  Stage stage;                           // what this launch of sweep_kernel or long_tasks does
  int accumulate;                        // 1: keep the status bits that are there
  int vector;                            // elements a load of the values may have
  int grain;                             // instances a warp takes at a time
  int limit_warp, limit_mid, limit_big;  // items of the longest instance a path takes, -1: none
  int warp_bytes;                        // shared memory of a warp in stage kWarps
  int block_bytes;                       // shared memory of a block behind its scratch, else
  int first_task;                        // the ranking of lane 0 of long instances; lane l: + l
  int merge_pass;                        // 0 …, in stage kLongMerge
  Needs needs;
  PackLayout pack;
  // Workspace, in device memory; what writes each array stands behind it.
  Counters* counters;
  double* class_norms;         // [C] ‖W_c‖: prepare
  std::int64_t* mid;           // [B] instances of stage kMid: take_or_list, as big and longs
  std::int64_t* big;           // [B]
  std::int64_t* longs;         // [max_longs]
  std::int64_t max_longs;      // instances longer than limit_big that T items can hold
  Facts* facts;                // [max_longs]: long_facts
  double* long_classes;        // [max_longs, 5, C] bias … margin of View: long_facts
  void* long_s;                // [T, C] contributions: project_long
  double* long_a;              // [T] normalised weights: long_facts
  double* long_items;          // [kLongLanes, 2, T] gradients, keys by them: kLongKeys
  double* long_singles;        // [2, T] divergences and drops, where keys are: kLongSingles
  Word* long_keys;             // [kLongLanes, 2, T] keys and spare of a sort
  std::uint32_t* long_orders;  // [kLongLanes, 3, T] rankings, minimal sets, spare of a sort
  unsigned char* long_bad;     // [1 + kLongLanes, T] bad items; a copy a lane, where greedy marks
  double* long_sums;           // [blocks, long_sum_words] scratch of a block
  std::int64_t long_sum_words;
  DeviceRanking rankings[kMaxRankings];
};
static_assert(sizeof(Launch) <= 4096, "kernel arguments must fit 4 KiB");

// Says how many classes a lane that has a whole row projects at once; see project_lanes.
__host__ FAE_DEV int lane_classes(std::int64_t C, int value_bytes) {
  return C <= 2 ? 2 : C <= 5 || value_bytes == 2 ? 5 : 10;
}
constexpr int kStageRow = 80;    // bytes: 64 of a row, and 16 for other banks
constexpr int kFloatSpan = 128;  // features a float32 sum may span

// Counts the bytes a warp needs for that: parts of 32 rows, and the same part of the head.
__host__ FAE_DEV int stage_bytes(std::int64_t C, int value_bytes) {
  return 32 * kStageRow + lane_classes(C, value_bytes) * (16 / value_bytes) * 16;
}

// Says how many lanes share a chunk of a scan by class lanes, one class or more each.
__host__ FAE_DEV int class_lanes(int C) { return C >= 32 ? 32 : next_power_of_two(C); }
// Counts the doubles of one group's sums: two a class (four where a lane has several), mass, weight
// sum, largest score, bad items, first event and first near-tie.
__host__ FAE_DEV std::int64_t group_words(std::int64_t C) { return (C > 32 ? 4 : 2) * C + 6; }

// Bytes that an instance's State has at the start of its memory.
constexpr int kStateBytes = 400;

// Byte offsets of the arrays of an instance in shared memory (see View), as layout_of finds them;
// they mean something where `total` is no more than shared memory has.
struct Layout {
  std::int64_t total;
  int s, bad, stage, a, g, renorm, js, drop, classes, sums, buffer, orders, min_order;
  int cs;     // elements from one row of s to the next
  int P;      // the next power of two of n: words of a sort
  int round;  // rankings sorted and scanned at once
};

// Takes `bytes` at `at`, rounded up to 16, and returns where they begin.
__host__ FAE_DEV int reserve(std::int64_t& at, std::int64_t bytes) {
  const std::int64_t begin = at;
  at += (bytes + 15) / 16 * 16;
  return static_cast<int>(begin);
}

// Says how many words a thread holds in a sort of `words` words in all.
__host__ FAE_DEV int words_a_thread(int words, int size) {
  return words <= size ? 1 : words <= 4 * size ? 4 : kWordsAThread;
}

// Counts the bytes of its exchange buffer, needed where a segment of P words spans several warps.
__host__ FAE_DEV std::int64_t buffer_bytes(int words, int P, int size) {
  const int each = words_a_thread(words, size);
  return P > 32 * each ? static_cast<std::int64_t>(size) * each * 8 : 0;
}

// Lays out the memory of an instance of n items for a team of `size` threads.
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

constexpr int kSlotBytes = 24;  // of a lane's Slot in a pack

// Lays out packs of `rows` rows.
inline PackLayout pack_layout(int rows, std::int64_t C, int real_bytes, const Needs& needs) {
  PackLayout l{};
  l.rows = rows;
  // Room for C contributions, which C - 1 margins replace later. Odd, so that successive rows lie
  // on different banks.
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

// The arrays of an instance; Idx is uint16_t where they are in shared memory, uint32_t where they
// are in device memory. Behind each: what it is, and which part writes it.
template <typename S, typename Idx>
struct View {
  const Launch& launch;
  std::int64_t b, t0;  // the instance and its first item
  int n, C;            // items, classes
  int cs;              // elements from one row of s to the next
  int P, round;        // see Layout
  S* s;                // [n, cs] contributions s_{i,c}: the projection
  double* a;           // [n] normalised weights: find_facts
  double* g;           // [n] gradients: find_gradients
  double* renorm;      // [n] keys of the renormalised gradient: find_renormalized
  double* js;          // [n] divergences of single erasures, null where no key is: erase_singles
  double* drop;        // [n] drops of the label's probability, likewise
  double* bias;        // [C]: find_facts, as all of the classes
  double* logits;      // [C] of the original decision
  double* prob;        // [C] its probabilities
  double* log_prob;    // [C]
  double* margin;      // [C] Σ_i m_{i,c}
  double* sums;        // scratch of class_sums and scans, group_words(C) a group of lanes
  Word* buffer;        // exchange of a sort; keys of a long instance
  Idx* orders;         // [round, n] items by rank: sort_rankings, place_orders
  Idx* min_order;      // [n] the order that the minimal set is read from: sort_rankings
  unsigned char* bad;  // [n] bit 0: the contribution is not finite (projection), bit 1: the score
                       // or weight is not (find_facts); find_greedy marks what it took

  // Loads the score or weight of item i as it was given.
  FAE_DEV double attention(int i) const {
    return load_real(launch.p.attention, launch.p.attention_dtype,
                     (t0 + i) * launch.p.attention_stride_t);
  }
  // Loads a score, -inf where it is not finite.
  FAE_DEV double score(int i) const { return (bad[i] & 2) ? -infinity() : attention(i); }
  FAE_DEV double contribution(int i, int c) const {
    return s[static_cast<std::int64_t>(i) * cs + c];
  }
  // Returns (s_{i,y} + b_y) − (s_{i,c} + b_c); with no label (y < 0) the first bracket is zero.
  FAE_DEV double difference(int i, int y, int c) const {
    const double own = y < 0 ? 0.0 : contribution(i, y) + bias[y];
    return own - (contribution(i, c) + bias[c]);
  }
};

// The rows that a team projects; row_block writes it.
struct RowBlock {
  const void* values;   // the first row
  std::int64_t stride;  // elements from one row to the next
  const void* head;     // [C, D]
  void* s;              // [n, s_stride] where the contributions go
  unsigned char* bad;   // [n] is set to 1 where a contribution is not finite
  const int* items;     // [n] which rows; null where they are 0 … n - 1
  double* squares;      // [n] where the rows' squared norms go, null where nowhere
  int n, D, C;          // rows, features, classes
  int s_stride;         // elements from one row of s to the next
  int stage;            // byte of shared memory where rows are staged, -1: a group of lanes a row
  int size;             // threads of the team
  int vector;           // elements a load may have
  int lanes;            // threads a row
  int groups;           // size / lanes
};

// Loop counters, kept in shared memory between the parts of a sweep; the loops write them.
struct LoopState {
  std::int64_t first;  // a warp's first instance; of long instances the next tile, job or slot
  unsigned todo;       // bit i: the warp has yet to sweep instance first + i alone
  unsigned packable;   // bit i: … in a pack
  int task;            // slot of a long instance, times kLongLanes plus the lane in a sort
  int row, count;      // the rankings to sort and scan; a row below zero is -1 - c, the minimal
                       // set's order for class c. Of single erasures the first item, and how many
  int near;            // 1 where a sum compared so far is a near-tie
};

// What the parts of a sweep need of an instance, in kStateBytes of shared memory before its arrays.
// Parts are calls without arguments: arguments would be copied to every thread's stack, which
// misses L1; and what a caller holds its callees must not use, so that callers hold nothing. A part
// has a barrier before it reads what other threads wrote in the part before.
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

// Bytes of shared memory before the instances' own: how many bytes each warp has; of a block its
// scratch and the number of its next instance.
constexpr int kWarpArena = 16;
constexpr int kBlockArena = kTeamScratchBytes + 16;

// Finds the byte of shared memory where the State of this team's instance is.
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

// A part's view of its instance; every part makes its own, since the compiler knows shared memory
// only in the function that declares it.
template <bool kWarp, typename S, typename Idx>
struct PartView {
  Team<kWarp> team;
  State<S, Idx>& state;
  Facts& facts;
  // A reference where arrays are in device memory: their 64-bit addresses are read again wherever
  // they are used instead of being kept in registers.
  std::conditional_t<sizeof(Idx) == 4, const View<S, Idx>&, View<S, Idx>> view;
};

// Finds the State of this team's instance.
template <bool kWarp, typename S, typename Idx>
FAE_DEV State<S, Idx>& state_of() {
  FAE_SHARED(shared);
  return *reinterpret_cast<State<S, Idx>*>(shared + arena_of<kWarp>());
}

// Makes a part's view from the State; every part begins with it.
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

// Writes element `index` of a wanted result, whose type the values decide.
template <typename T>
FAE_DEV void write_real(void* array, bool is_double, std::int64_t index, T value) {
  if (array == nullptr) return;
  if (is_double) {
    static_cast<double*>(array)[index] = value;
  } else {
    static_cast<float*>(array)[index] = static_cast<float>(value);
  }
}

// Writes element `index` of a result that may not be wanted.
FAE_DEV void write_int(std::int64_t* array, std::int64_t index, std::int64_t value) {
  if (array != nullptr) array[index] = value;
}

}  // namespace fae
