// Short instances, a lane each: what a warp works on together is a pack of up to 32 of them.
//
// An instance of a few items leaves most of a warp's lanes without one, and a step costs the same
// instructions for one item as for 32. So all rows of a pack are projected as one block, which the
// warp shares; every other step is a loop of one lane over its own instance's items: no exchange,
// no barrier within a step, and sums that no other instance of the pack can change.
//   - Weights and sums are added in the order in which a warp that has one instance adds them, so
//     that label, probabilities and keys are the same bits either way.
//   - Margins m_{i,c} replace the contributions in place: a scan is a load and a sum a class.
//   - Sorts: 16 words of 32 bits in registers, upper bits of the keys with the position in the
//     lowest four; where neighbours agree in the rest, by insertion from the full keys.
// Which instances: 1 … kMostPacked items and nothing special (finite, some mass, no underflow,
// valid); none with curves, greedy rankings, one class or more than kMostPackClasses. The others
// are left to the warp as a whole.
//
// Traffic: shared memory; a row of C - 1 margins, weight, gradient and sort word an item. A pack
// takes as long as its longest instance, about 1.8 times the mean at lengths near 7.
//
// Ladder: v1 this. One after the other, as longer ones, instances took six times the instructions.
#pragma once

#include "project.cuh"
#include "rankings.cuh"

namespace fae {

// What a lane keeps of its instance between the steps; next_pack writes row and n, weigh_pack the
// rest, judge_pack the minimal set.
struct Slot {
  double tolerance;         // |sum| below tolerance * surviving mass is a near-tie
  std::uint16_t row;        // the instance's first row of the pack
  std::uint8_t n;           // items; 0: no instance, or one that is left to the warp
  std::uint8_t label;       // the original decision
  std::uint8_t bias_label;  // the decision where no mass survives
  std::uint8_t runner_up;   // the column with the smallest sum at k = 0
  std::uint8_t positives;   // items that have weight
  std::uint8_t near_tie;    // 1 where a sum compared so far is a near-tie
  std::uint8_t size;        // items of the best minimal set so far, n + 1 where there is none
  std::uint8_t winner;      // its column, C where there is none
  std::uint8_t nearest;     // items of the smallest set whose sum is a near-tie
};
static_assert(sizeof(Slot) == kSlotBytes);

// The arrays of a lane's instance in a pack: those of items begin at its first, those of classes
// are the lane's own. weigh_pack writes them, but for those that name a part.
template <typename S>
struct Packed {
  const Launch& launch;
  const PackLayout& layout;
  LoopState& loop;
  Slot& slot;
  std::int64_t b, t0;       // the instance and its first item
  int n, C;                 // items, classes
  int stride;               // doubles from one row of margins to the next
  double* bias;             // [C]
  double* prob;             // [C] probabilities of the original decision
  double* log_prob;         // [C] null where the divergence of single erasures is not wanted
  double* again;            // [C] scratch of erase_packed_singles
  double* margins;          // [n, stride] of class c in column c, or c - 1 beyond the label
  double* a;                // [n] normalised weights
  double* g;                // [n] gradients
  double* renorm;           // [n] keys of the renormalised gradient, where needed
  double* js;               // [n] keys: erase_packed_singles, null where no ranking needs them
  double* drop;             // [n] likewise
  std::uint32_t* words;     // [n] sorted, item 15 - (word & 15) at each rank: sort_pack
  std::uint8_t* min_order;  // [n] items of the minimal set's order: finish_minimal_pack

  // Loads the score or weight of item i as it was given.
  FAE_DEV double attention(int i) const {
    return load_real(launch.p.attention, launch.p.attention_dtype,
                     (t0 + i) * launch.p.attention_stride_t);
  }
  // Returns the item at rank k of the sorted order.
  FAE_DEV int item(int k) const { return kMostPacked - 1 - static_cast<int>(words[k] & 15u); }
  FAE_DEV double margin(int i, int column) const { return margins[i * stride + column]; }
  FAE_DEV int class_of(int column) const { return column + (column >= slot.label ? 1 : 0); }
};

// Makes the view of this lane's instance; every part of a pack begins with it.
template <typename S>
FAE_DEV Packed<S> packed_view() {
  FAE_SHARED(shared);
  unsigned char* const arena = shared + arena_of<true>();
  State<S, std::uint16_t>& state = *reinterpret_cast<State<S, std::uint16_t>*>(arena);
  const Launch& launch = *state.launch;
  const PackLayout& l = launch.pack;
  const int lane = launder(static_cast<int>(threadIdx.x)) & 31;
  Slot& slot = reinterpret_cast<Slot*>(arena + kStateBytes)[lane];
  const int C = static_cast<int>(launch.p.C), row = slot.row;
  const auto class_array = [&](int at) {
    return reinterpret_cast<double*>(arena + at) + lane * (C | 1);
  };
  const auto item_array = [&](int at) { return reinterpret_cast<double*>(arena + at) + row; };
  const std::int64_t b = state.loop.first + lane;
  return Packed<S>{launch,
                   l,
                   state.loop,
                   slot,
                   b,
                   slot.n == 0 ? 0 : launch.p.offsets[b],
                   slot.n,
                   C,
                   l.stride,
                   class_array(l.bias),
                   class_array(l.prob),
                   launch.needs.single_kl ? class_array(l.log_prob) : nullptr,
                   class_array(l.again),
                   reinterpret_cast<double*>(arena + l.margins) + row * l.stride,
                   item_array(l.a),
                   item_array(l.g),
                   item_array(l.renorm),
                   launch.needs.js ? item_array(l.js) : nullptr,
                   launch.needs.drop ? item_array(l.drop) : nullptr,
                   reinterpret_cast<std::uint32_t*>(arena + l.words) + row,
                   arena + l.min_order + row};
}

// Takes the next pack out of the loop state: as many of its packable instances as there are rows
// for. Lists their rows and makes the State. Returns whether there was one.
template <typename S>
FAE_NOINLINE __device__ bool next_pack() {
  FAE_SHARED(shared);
  const Team<true> team(nullptr);
  unsigned char* const arena = shared + arena_of<true>();
  State<S, std::uint16_t>& state = *reinterpret_cast<State<S, std::uint16_t>*>(arena);
  const Launch& launch = *state.launch;
  const PackLayout& l = launch.pack;
  const unsigned left = state.loop.packable;
  if (left == 0) return false;
  const std::int64_t first = state.loop.first;
  const bool mine = (left >> team.rank & 1) != 0;
  const std::int64_t t0 = mine ? launch.p.offsets[first + team.rank] : 0;
  const int n = mine ? static_cast<int>(launch.p.offsets[first + team.rank + 1] - t0) : 0;
  int end = n;
#pragma unroll 1
  for (int o = 1; o < 32; o <<= 1) {
    const int below = __shfl_up_sync(kAllLanes, end, o);
    if (team.rank >= o) end += below;
  }
  const bool taken = mine && end <= l.rows;
  const unsigned all = __ballot_sync(kAllLanes, taken);
  const int rows = __shfl_sync(kAllLanes, end, 31 - __clz(static_cast<int>(all)));
  Slot& slot = reinterpret_cast<Slot*>(arena + kStateBytes)[team.rank];
  slot.row = static_cast<std::uint16_t>(taken ? end - n : 0);
  slot.n = static_cast<std::uint8_t>(taken ? n : 0);
  if (taken) {
    int* const items = reinterpret_cast<int*>(arena + l.a) + end - n;
    unsigned char* const bad = arena + l.words + end - n;
#pragma unroll 1
    for (int i = 0; i < n; ++i) {
      items[i] = static_cast<int>(t0) + i;
      bad[i] = 0;
    }
  }
  if (team.leads()) {
    state.loop.packable = left & ~all;
    state.rows = row_block<S>(launch, 0, rows, 32, l.stride * 8 / static_cast<int>(sizeof(S)),
                              reinterpret_cast<S*>(arena + l.margins), arena + l.words,
                              arena_of<true>() + l.stage, l.total - l.stage,
                              reinterpret_cast<const int*>(arena + l.a),
                              reinterpret_cast<double*>(arena + l.g));
  }
  team.sync();
  return true;
}

// Sums an instance's numbers as a warp that has it alone adds them, a lane each.
FAE_DEV double butterfly_sum(const double* x, int n) {
  double v[kMostPacked];
#pragma unroll
  for (int i = 0; i < kMostPacked; ++i) v[i] = i < n ? x[i] : 0.0;
#pragma unroll
  for (int o = kMostPacked / 2; o > 0; o >>= 1) {
#pragma unroll
    for (int i = 0; i < kMostPacked / 2; ++i) {
      if (i < o) v[i] += v[i + o];
    }
  }
  return v[0];
}

// Sums term(i), likewise as class_sums adds: eight one after the other.
template <typename Term>
FAE_DEV double chunk_sum(int n, Term term) {
  double sum = 0, rest = 0;
  const int half = n < 8 ? n : 8;
#pragma unroll 1
  for (int i = 0; i < half; ++i) sum += term(i);
#pragma unroll 1
  for (int i = half; i < n; ++i) rest += term(i);
  return sum + rest;
}

// Checks for a given order that is no permutation, or a ranking score that is NaN.
template <typename S>
FAE_DEV bool has_invalid_ranking(const Packed<S>& v) {
  bool wrong = false;
#pragma unroll 1
  for (int r = 0; r < v.launch.R; ++r) {
    const DeviceRanking& ranking = v.launch.rankings[r];
    unsigned seen = 0;
    if (ranking.kind != kGivenKeys && ranking.kind != kGivenOrder) continue;
#pragma unroll 1
    for (int i = 0; i < v.n; ++i) {
      if (ranking.kind == kGivenKeys) {
        wrong = wrong || is_nan(load_real(ranking.data, ranking.dtype, v.t0 + i));
        continue;
      }
      const std::int64_t given = static_cast<const std::int64_t*>(ranking.data)[v.t0 + i];
      if (given >= 0 && given < v.n) seen |= 1u << given;
    }
    wrong = wrong || (ranking.kind == kGivenOrder && seen != (1u << v.n) - 1u);
  }
  return wrong;
}

// Finds the normalised weights. Returns how many are positive, 0 also for a special instance.
template <typename S>
FAE_DEV int weigh_packed(const Packed<S>& v, const unsigned char* bad) {
  const SweepParams& p = v.launch.p;
  double top = -infinity(), bottom = infinity();
  bool special = false;
#pragma unroll 1
  for (int i = 0; i < v.n; ++i) {
    const double e = v.attention(i);
    special = special || bad[i] != 0 || is_nan(e) || e == infinity() || (!p.is_scores && e < 0);
    v.a[i] = e;
    if (e == -infinity()) continue;
    top = e > top ? e : top;
    bottom = e < bottom ? e : bottom;
  }
  if (special || (p.is_scores && top - bottom > kUnderflowSpan)) return 0;
#pragma unroll 1
  for (int i = 0; p.is_scores && i < v.n; ++i) {
    v.a[i] = v.a[i] > -infinity() ? exp(v.a[i] - top) : 0.0;
  }
  const double total = butterfly_sum(v.a, v.n);
  int positives = 0;
#pragma unroll 1
  for (int i = 0; i < v.n; ++i) {
    const double w = total > 0 ? v.a[i] / total : 0.0;
    v.a[i] = w;
    if (w > 0) ++positives;
  }
  return positives;
}

// Finds weights, label, logits, probabilities, gradients and margins of every instance of the pack;
// gives special ones back to the warp. See find_facts for the same of one instance.
template <typename S>
FAE_NOINLINE __device__ void weigh_pack() {
  FAE_SHARED(shared);
  const Packed<S> v = packed_view<S>();
  const SweepParams& p = v.launch.p;
  Slot& slot = v.slot;
  unsigned char* const arena = shared + arena_of<true>();
  const int n = v.n, C = v.C;
  // The squares are where the gradients go, the bad items where the words go.
  double norm2 = 0;
#pragma unroll 1
  for (int i = 0; i < n; ++i) norm2 = v.g[i] > norm2 ? v.g[i] : norm2;
  int positives = n == 0 ? 0 : weigh_packed(v, arena + v.layout.words + slot.row);
  double largest_bias = 0, head_norm = 0;
#pragma unroll 1
  for (int c = 0; c < C && positives > 0; ++c) {
    const double bias = load_real(p.head_bias, p.head_bias_dtype, v.b * p.head_bias_stride_b + c);
    v.bias[c] = bias;
    const double norm = v.launch.class_norms[c];
    head_norm = norm > head_norm ? norm : head_norm;
    largest_bias = fabs(bias) > largest_bias ? fabs(bias) : largest_bias;
    if (!is_finite(bias)) positives = 0;
  }
  if (positives > 0 && has_invalid_ranking(v)) positives = 0;
  if (n > 0 && positives == 0) {
    atomicOr(&v.loop.todo, 1u << (static_cast<int>(threadIdx.x) & 31));
    slot.n = 0;
  }
  if (positives == 0) return;

  const S* const s = reinterpret_cast<const S*>(v.margins);
  const int cs = v.stride * 8 / static_cast<int>(sizeof(S));
  const double mass = butterfly_sum(v.a, n);
  double highest = -infinity();
  int y = 0;
#pragma unroll 1
  for (int c = 0; c < C; ++c) {
    const double sum = chunk_sum(n, [&](int i) { return v.a[i] * s[i * cs + c]; });
    const double logit = v.bias[c] + (mass > 0 ? sum / mass : 0.0);
    v.prob[c] = logit;
    write_real(p.logits, sizeof(S) == 8, v.b * C + c, logit);
    if (c == 0 || logit > highest) {
      highest = logit;
      y = c;
    }
  }
  double z = 0;
#pragma unroll 1
  for (int c = 0; c < C; ++c) {
    if (v.log_prob != nullptr) v.log_prob[c] = v.prob[c] - highest;
    v.prob[c] = exp(v.prob[c] - highest);
    z += v.prob[c];
  }
  const double log_z = v.log_prob != nullptr ? log(z) : 0.0;
#pragma unroll 1
  for (int c = 0; c < C; ++c) {
    v.prob[c] /= z;
    if (v.log_prob != nullptr) v.log_prob[c] -= log_z;
    write_real(p.probabilities, sizeof(S) == 8, v.b * C + c, v.prob[c]);
  }
  write_int(p.label, v.b, y);
#pragma unroll 1
  for (int i = 0; p.weights != nullptr && i < n; ++i) p.weights[v.t0 + i] = v.a[i];

#pragma unroll 1
  for (int i = 0; i < n; ++i) {
    const S* const row = s + i * cs;
    double* const out = v.margins + i * v.stride;
    const double own = row[y];
    double slope = 0;
#pragma unroll 1
    for (int c = 0; v.launch.needs.gradient && c < C; ++c) slope += (own - row[c]) * v.prob[c];
    v.g[i] = v.prob[y] * slope;
    const double a = v.a[i], own_biased = own + v.bias[y];
    // Margin j is written over contributions that are not needed any more: 2j and 2j + 1 of
    // float32, from the last, and j of float64, from the first; of column j it takes j or j + 1.
#pragma unroll 1
    for (int k = 0; k < C - 1; ++k) {
      const int j = sizeof(S) == 8 ? k : C - 2 - k;
      const int c = j + (j >= y ? 1 : 0);
      const double other = row[c] + v.bias[c];
      out[j] = a * (own_biased - other);
    }
  }

  slot.label = static_cast<std::uint8_t>(y);
  slot.positives = static_cast<std::uint8_t>(positives);
  slot.bias_label = static_cast<std::uint8_t>(argmax(v.bias, C));
  slot.tolerance = kTieTolerance * (sqrt(norm2) * head_norm + largest_bias);
  slot.near_tie = 0;
  double min_margin = infinity();
#pragma unroll 1
  for (int j = 0; j < C - 1; ++j) {
    const double margin = chunk_sum(n, [&](int i) { return v.margin(i, j); });
    if (fabs(margin) < slot.tolerance) slot.near_tie = 1;
    if (j == 0 || margin < min_margin) {
      min_margin = margin;
      slot.runner_up = static_cast<std::uint8_t>(j);
    }
  }
  slot.size = slot.nearest = static_cast<std::uint8_t>(n + 1);
  slot.winner = static_cast<std::uint8_t>(C);
  if (!v.launch.needs.renormalized) return;
#pragma unroll 1
  for (int i = 0; i < n; ++i) {
    double others = 0, sum = 0;
#pragma unroll 1
    for (int j = 0; j < n; ++j) {
      if (j == i) continue;
      others += v.a[j];
      sum += v.a[j] * v.g[j];
    }
    v.renorm[i] = v.a[i] * (v.g[i] - (others > 0 ? sum / others : 0.0));
  }
}

// Erases every item alone; the sums over the others are added up for each.
template <typename S>
FAE_NOINLINE __device__ void erase_packed_singles() {
  const Packed<S> v = packed_view<S>();
  const bool write_out = wants_singles(v.launch.p);
  bool near = false;
#pragma unroll 1
  for (int i = 0; i < v.n; ++i) {
    double others = 0;
#pragma unroll 1
    for (int j = 0; j < v.n; ++j) others += j == i ? 0.0 : v.a[j];
#pragma unroll 1
    for (int c = 0; c < v.C; ++c) {
      double sum = 0;
#pragma unroll 1
      for (int j = 0; j < v.n && c != v.slot.label; ++j) {
        sum += j == i ? 0.0 : v.margin(j, c - (c > v.slot.label ? 1 : 0));
      }
      v.again[c] = sum;
    }
    near =
        write_single<S>(v, v.slot, i, others, write_out, [&](int c) { return v.again[c]; }) || near;
  }
  if (near && write_out) v.slot.near_tie = 1;
}

// Makes the full key of item i in the loop state's order: of a ranking, or (row -1 - j) of the
// minimal set by column j, or (row -C) by the best class.
template <typename S>
FAE_DEV Word packed_word(const Packed<S>& v, std::uint64_t stream, int i) {
  const int row = v.loop.row;
  if (row >= 0) return ranking_word(v, v.launch.rankings[row], true, stream, i);
  if (!(v.a[i] > 0)) return 0;
  const int last = v.slot.winner < v.C ? v.slot.winner : v.slot.runner_up;
  return ordered_bits(v.margin(i, row == -v.C ? last : -1 - row));
}

// Sorts the loop state's order of every instance of the pack into its words.
template <typename S>
FAE_NOINLINE __device__ void sort_pack() {
  const Packed<S> v = packed_view<S>();
  const int n = v.n, row = v.loop.row;
  const int kind = row >= 0 ? v.launch.rankings[row].kind : -1;
  constexpr unsigned kLow = kMostPacked - 1;
  if (kind == kGivenOrder || kind == kMinimal) {
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
      const auto* const given = static_cast<const std::int64_t*>(v.launch.rankings[row].data);
      const int i = kind == kMinimal ? v.min_order[k] : static_cast<int>(given[v.t0 + k]);
      v.words[k] = kLow - static_cast<unsigned>(i);
    }
    return;
  }
  const std::uint64_t stream = kind == kRandom && n > 0 ? stream_of(v, v.launch.rankings[row]) : 0;
#pragma unroll 1
  for (int i = 0; i < n; ++i) {
    const Word word = packed_word(v, stream, i);
    v.words[i] =
        (static_cast<std::uint32_t>(word >> 32) & ~kLow) | (kLow - static_cast<unsigned>(i));
  }
  // Padding is 0; so is no word of an item but the sixteenth.
  std::uint32_t w[kMostPacked];
#pragma unroll
  for (int i = 0; i < kMostPacked; ++i) w[i] = i < n ? v.words[i] : 0u;
  sort_registers(w);
  unsigned ties = 0;
#pragma unroll
  for (int k = 0; k < kMostPacked; ++k) {
    if (k < n) v.words[k] = w[k];
    if (k > 0 && k < n && (w[k] ^ w[k - 1]) <= kLow) ties |= 1u << k;
  }
  // By insertion where words cannot tell: items with equal keys are in their order already.
#pragma unroll 1
  for (; ties != 0; ties &= ties - 1) {
    const int k = __ffs(ties) - 1;
    const std::uint32_t moved = v.words[k];
    const Word key = packed_word(v, stream, v.item(k));
    int to = k;
#pragma unroll 1
    for (; to > 0 && (v.words[to - 1] ^ moved) <= kLow; --to) {
      if (packed_word(v, stream, v.item(to - 1)) >= key) break;
      v.words[to] = v.words[to - 1];
    }
    v.words[to] = moved;
  }
}

constexpr int kPackTile = 4;  // columns that scan_pack takes at once
constexpr double kMinPositive = 4.9406564584124654e-324;

// Adds item i's margins of kPackTile columns from `tile` on; columns beyond the last repeat it.
template <typename S>
FAE_DEV void add_columns(const Packed<S>& v, int tile, int i, double (&sums)[kPackTile]) {
  const double* const row = v.margins + i * v.stride;
#pragma unroll
  for (int j = 0; j < kPackTile; ++j) sums[j] += row[tile + j < v.C - 1 ? tile + j : v.C - 2];
}

// Scans the loop state's ranking, whose order is in the words: bit t of `flips` is the point at
// which the last t + 1 of the ranking survive (in direction `keep`, the first).
template <typename S>
FAE_NOINLINE __device__ void scan_pack() {
  const Packed<S> v = packed_view<S>();
  const SweepParams& p = v.launch.p;
  const int n = v.n, y = v.slot.label;
  if (n == 0) return;
  const bool keep = p.keep != 0;
  const bool empty_flips = v.slot.bias_label != y;
  const auto item = [&](int t) { return v.item(keep ? t : n - 1 - t); };
  unsigned flips = 0, nears = 0, alive = 0;
  double removed = 0;
#pragma unroll 1
  for (int tile = 0; tile < v.C - 1; tile += kPackTile) {
    // A class flips the decision where its sum is below this: of lower classes zero is enough.
    double bound[kPackTile];
    double sums[kPackTile] = {};
#pragma unroll
    for (int j = 0; j < kPackTile; ++j) bound[j] = tile + j < y ? kMinPositive : 0.0;
    double mass = 0;
    bool found = false;
    removed = 0;
#pragma unroll 1
    for (int t = 0; t < n; ++t) {
      const int i = item(t);
      const double a = v.a[i];
      mass += a;
      add_columns(v, tile, i, sums);
      const double tolerance = v.slot.tolerance * mass;
      bool below = false, near = false;
#pragma unroll
      for (int j = 0; j < kPackTile; ++j) {
        below = below | (sums[j] < bound[j]);
        near = near | (fabs(sums[j]) < tolerance);
      }
      const bool survive = mass > 0;
      // Nothing erased is the label by definition.
      const bool flip = (survive ? below : empty_flips) & (t < n - 1);
      flips |= static_cast<unsigned>(flip) << t;
      nears |= static_cast<unsigned>(near & survive) << t;
      alive |= static_cast<unsigned>(survive) << t;
      // The mass beyond the last flip so far, or beyond the first point that does not flip; final
      // in the last tile, which knows the flips of all columns.
      const bool flips_here = (flips >> t & 1u) != 0;
      removed = (keep ? found : !flips_here) ? removed + a : 0.0;
      found = found | !flips_here;
    }
  }
  // The largest t that flips, or keeping the smallest that does not, which there always is. -2 for
  // none, -1 for the point where nothing survives.
  int event = keep ? __ffs(static_cast<int>(~flips)) - 1 : 31 - __clz(static_cast<int>(flips));
  if (event < 0 && !empty_flips) event = -2;
  // A near-tie counts up to the first flip: below t, or keeping beyond it, lie later points.
  const unsigned counted = event < 0 ? ~0u : keep ? (2u << event) - 1u : ~0u << event;
  if ((nears & counted) != 0) v.slot.near_tie = 1;

  const std::int64_t at = (v.launch.row0 + v.loop.row) * p.B + v.b;
  if (event == -2) {
    write_never(v.launch, v.loop.row, v.b);
  } else {
    int flip_label = keep ? y : v.slot.bias_label;
    if (!keep && event >= 0 && (alive >> event & 1u) != 0) {
      double min_sum = HUGE_VAL;
      flip_label = v.class_of(0);
#pragma unroll 1
      for (int tile = 0; v.C > 2 && tile < v.C - 1; tile += kPackTile) {
        double sums[kPackTile] = {};
#pragma unroll 1
        for (int t = 0; t <= event; ++t) add_columns(v, tile, item(t), sums);
#pragma unroll
        for (int j = 0; j < kPackTile; ++j) {
          if (tile + j < v.C - 1) take_smaller(min_sum, flip_label, sums[j], v.class_of(tile + j));
        }
      }
    }
    write_int(p.first_flip, at, keep ? event + 1 : n - 1 - event);
    write_int(p.flip_label, at, flip_label);
    if (p.removed_mass != nullptr) p.removed_mass[at] = removed;
  }
  if (p.order == nullptr) return;
  std::int64_t* const out = p.order + (v.launch.row0 + v.loop.row) * p.T + v.t0;
#pragma unroll 1
  for (int k = 0; k < n; ++k) out[k] = v.item(k);
}

// Scans the minimal set's order by the loop state's column for its smallest flipping set, and keeps
// that where it is the best.
template <typename S>
FAE_NOINLINE __device__ void judge_pack() {
  const Packed<S> v = packed_view<S>();
  Slot& slot = v.slot;
  const int column = -1 - v.loop.row, y = slot.label;
  double margin = 0, mass = 0;
  int flip = v.n + 1, near = v.n + 1;
#pragma unroll 1
  for (int k = v.n - 1; k >= 0; --k) {
    const int i = v.item(k);
    margin += v.margin(i, column);
    mass += v.a[i];
    if (!(mass > 0)) continue;
    if (k > 0 && (margin < 0 || (margin == 0 && column < y))) flip = k;
    if (fabs(margin) < slot.tolerance * mass) near = k;
  }
  if (near < slot.nearest) slot.nearest = static_cast<std::uint8_t>(near);
  if (flip < slot.size) {
    slot.size = static_cast<std::uint8_t>(flip);
    slot.winner = static_cast<std::uint8_t>(column);
  }
}

// Keeps the minimal set's order, which is in the words, and writes the set where it is wanted.
template <typename S>
FAE_NOINLINE __device__ void finish_minimal_pack() {
  const Packed<S> v = packed_view<S>();
  const SweepParams& p = v.launch.p;
  Slot& slot = v.slot;
  const int n = v.n;
  if (n == 0) return;
#pragma unroll 1
  for (int k = 0; k < n; ++k) {
    v.min_order[k] = static_cast<std::uint8_t>(v.item(k));
    write_int(p.minimal_order, v.t0 + k, v.item(k));
  }
  if (!wants_minimal(p)) return;
  const bool found = slot.size <= n;
  int size = -1, label = -1;
  if (found) {
    double min_sum = 0;
    size = slot.size;
    label = slot.label;
#pragma unroll 1
    for (int j = 0; j < v.C - 1; ++j) {
      double sum = 0;
#pragma unroll 1
      for (int k = n - 1; k >= size; --k) sum += v.margin(v.item(k), j);
      take_smaller(min_sum, label, sum, v.class_of(j));
    }
  } else if (slot.bias_label != slot.label) {
    size = slot.positives;
    label = slot.bias_label;
  }
  write_int(p.minimal_size, v.b, size);
  write_int(p.minimal_flip_label, v.b, label);
  if (slot.nearest <= (found ? size : slot.positives)) slot.near_tie = 1;
}

// Writes the status of every instance of the pack.
template <typename S>
FAE_NOINLINE __device__ void write_pack_status() {
  const Packed<S> v = packed_view<S>();
  if (v.n == 0 || v.launch.p.status == nullptr) return;
  std::int64_t& status = v.launch.p.status[v.b];
  status = flag(v.n == 1, kSingle) | flag(v.slot.near_tie != 0, kNearTie) |
           (v.launch.accumulate ? status : 0);
}

// Projects the rows of the pack.
template <typename S>
FAE_NOINLINE __device__ void project_pack() {
  const State<S, std::uint16_t>& state = state_of<true, S, std::uint16_t>();
  project_rows<S>(arena_of<true>(), state.launch->p.values_dtype);
}

// Sweeps the pack that next_pack took.
template <typename S>
FAE_DEV void sweep_pack() {
  const auto team = [] { return Team<true>(nullptr); };
  const auto state = [] { return &state_of<true, S, std::uint16_t>(); };
  const auto set_row = [&](int row) {
    team().sync();
    if (team().leads()) state()->loop.row = row;
    team().sync();
  };
  project_pack<S>();
  team().sync();
  weigh_pack<S>();
  if (state()->launch->needs.singles) erase_packed_singles<S>();
  if (state()->launch->needs.minimal) {
    set_row(-1);
#pragma unroll 1
    while (team().make_uniform(state()->loop.row > -static_cast<int>(state()->launch->p.C))) {
      sort_pack<S>();
      judge_pack<S>();
      set_row(state()->loop.row - 1);
    }
    sort_pack<S>();
    finish_minimal_pack<S>();
  }
  set_row(0);
#pragma unroll 1
  while (team().make_uniform(state()->loop.row < state()->launch->R)) {
    sort_pack<S>();
    scan_pack<S>();
    set_row(state()->loop.row + 1);
  }
  write_pack_status<S>();
}

// Sweeps the loop state's packable instances.
template <typename S>
FAE_NOINLINE __device__ void sweep_packs() {
#pragma unroll 1
  while (Team<true>(nullptr).make_uniform(next_pack<S>())) sweep_pack<S>();
}

}  // namespace fae
