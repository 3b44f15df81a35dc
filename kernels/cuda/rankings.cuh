// Orders, single erasures and the minimal set of an instance (engine contract, sections 3 to 5).
//
// Mapping: a thread an item (strided) for everything that is a function of one item: gradients,
// single erasures, sort keys. Sums over all other items are the total without the item's own
// share where that cannot cancel; where it could (the item has nearly all the weight, contributions
// are huge, or the decision is close) the item's warp adds the others up once more.
// Traffic: shared memory; device memory only for scores, given orders and keys, and the results.
#pragma once

#include "scan.cuh"

namespace fae {

// The largest error of a mean over the others by subtraction; beyond it, they are summed again.
constexpr double kSafeError = 1e-9;

// Says whether item i has weight.
template <typename S, typename Idx>
FAE_DEV bool is_positive(const View<S, Idx>& v, const Facts& f, int i) {
  return f.underflow ? v.score(i) > -infinity() : v.a[i] > 0;
}

// Finds the gradients g_i = p_y Σ_c p_c (s_{i,y} − s_{i,c}).
template <bool kWarp, typename S, typename Idx>
FAE_DEV void find_gradients(const Team<kWarp>& team, const View<S, Idx>& v, const Facts& f) {
#pragma unroll 1
  for (int i = team.rank; i < v.n; i += team.size) {
    const double own = v.contribution(i, f.label);
    double sum = 0;
#pragma unroll 1
    for (int c = 0; c < v.C; ++c) sum += (own - v.contribution(i, c)) * v.prob[c];
    v.g[i] = v.prob[f.label] * sum;
  }
  team.sync();
}

// Finds the keys renorm_i = a_i (g_i − ḡ_i), ḡ_i the weighted mean of g over the others: a thread
// has a contiguous chunk of items; a scan in both directions gives the sums over other threads'
// items, those over its own are added up for each item.
template <bool kWarp, typename S, typename Idx>
FAE_DEV void find_renormalized(const Team<kWarp>& team, const View<S, Idx>& v, const Facts& f) {
  const int chunk = ceil_div(v.n, team.size);
  const int begin = team.rank * chunk < v.n ? team.rank * chunk : v.n;
  const int end = begin + chunk < v.n ? begin + chunk : v.n;
  double mass = 0, slope = 0;
#pragma unroll 1
  for (int i = begin; i < end; ++i) {
    mass += v.a[i];
    slope += v.a[i] * v.g[i];
  }
  double mass_below, mass_above, slope_below, slope_above;
  team.prefix_suffix_sums(mass, mass_below, mass_above);
  team.prefix_suffix_sums(slope, slope_below, slope_above);
#pragma unroll 1
  for (int i = begin; i < end; ++i) {
    double others = 0, sum = 0;
    if (f.underflow && i == f.top_item) {
      double top = -infinity();
#pragma unroll 1
      for (int j = 0; j < v.n; ++j) {
        if (j != i && v.score(j) > top) top = v.score(j);
      }
#pragma unroll 1
      for (int j = 0; j < v.n; ++j) {
        const double w = j != i && v.score(j) > -infinity() ? exp(v.score(j) - top) : 0.0;
        others += w;
        sum += w * v.g[j];
      }
    } else {
      others = mass_below;
      sum = slope_below;
#pragma unroll 1
      for (int j = begin; j < end; ++j) {
        if (j == i) continue;
        others += v.a[j];
        sum += v.a[j] * v.g[j];
      }
      others += mass_above;
      sum += slope_above;
    }
    v.renorm[i] = v.a[i] * (v.g[i] - (others > 0 ? sum / others : 0.0));
  }
}

// Writes what erasing item i alone does, as results and keys, from the others' weight and margins.
// Returns whether a compared sum is a near-tie.
template <typename S, typename V, typename F, typename Margin>
FAE_DEV bool write_single(const V& v, const F& f, int i, double others, bool write_out,
                          Margin margin) {
  const SweepParams& p = v.launch.p;
  constexpr bool kDouble = sizeof(S) == 8;
  const int y = f.label, C = v.C;
  const bool survive = others > 0;
  const auto lead = [&](int c) {
    return c == y ? 0.0 : survive ? margin(c) / others : v.bias[y] - v.bias[c];
  };
  bool near = false;
  int decision = y;
  double min_lead = 0, min_margin = 0;
#pragma unroll 1
  for (int c = 0; c < C; ++c) {
    if (c == y) continue;
    const double m = survive ? margin(c) : 0.0;
    near = near || (survive && fabs(m) < f.tolerance * others);
    take_smaller(min_margin, decision, m, survive ? c : C);
    const double d = lead(c);
    min_lead = d < min_lead ? d : min_lead;
  }
  if (!survive) decision = f.bias_label;
  double z = 0;
#pragma unroll 1
  for (int c = 0; c < C; ++c) z += exp(min_lead - lead(c));
  double js = 0;
#pragma unroll 1
  for (int c = 0; c < C; ++c) js += js_term(v.prob[c], exp(min_lead - lead(c)) / z);
  js = clamp_js(js);
  const double drop = v.prob[y] - exp(min_lead) / z;
  if (write_out) {
    write_int(p.single_flip_label, v.t0 + i, decision != y ? decision : -1);
    write_real(p.single_js, kDouble, v.t0 + i, js);
    write_real(p.single_drop, kDouble, v.t0 + i, drop);
    if (p.single_kl != nullptr) {
      const double log_z = log(z);
      double kl = 0;
#pragma unroll 1
      for (int c = 0; c < C; ++c) {
        const double down = min_lead - lead(c);
        kl += kl_term(exp(down) / z, down - log_z, v.log_prob[c]);
      }
      write_real(p.single_kl, kDouble, v.t0 + i, kl > 0 ? kl : 0.0);
    }
  }
  if (v.js != nullptr) v.js[i] = js;
  if (v.drop != nullptr) v.drop[i] = drop;
  return near;
}

// Erases every item alone, of a long instance those that the loop state names. `write_out` is false
// where only the keys of a ranking are wanted.
template <bool kWarp, typename S, typename Idx>
FAE_NOINLINE __device__ void erase_singles(bool write_out) {
  const PartView<kWarp, S, Idx> part = part_view<kWarp, S, Idx>();
  const Team<kWarp>& team = part.team;
  const View<S, Idx>& v = part.view;
  const Facts& f = part.facts;
  const SweepParams& p = v.launch.p;
  constexpr bool kDouble = sizeof(S) == 8;
  const int n = v.n, C = v.C, y = f.label;
  const int begin = sizeof(Idx) == 4 ? part.state.loop.row : 0;
  const int end = sizeof(Idx) == 4 ? begin + part.state.loop.count : n;
  if (!f.finite || !f.has_mass) {
    const double nothing = f.finite ? 0.0 : not_a_number();
#pragma unroll 1
    for (int i = begin + team.rank; i < end; i += team.size) {
      if (write_out) {
        write_int(p.single_flip_label, v.t0 + i, -1);
        write_real(p.single_js, kDouble, v.t0 + i, nothing);
        write_real(p.single_kl, kDouble, v.t0 + i, nothing);
        write_real(p.single_drop, kDouble, v.t0 + i, nothing);
      }
      if (v.js != nullptr) v.js[i] = nothing;
      if (v.drop != nullptr) v.drop[i] = nothing;
    }
    return;
  }
  // Bounds the rounding of a total: |m_{i,c}| <= 2 a_i (max ‖h‖ max ‖W‖ + max |b|), and as many
  // additions follow one another.
  const int chunk = class_chunk(n, C, team.size);
  const double rounding = 2.3e-16 * (chunk + ceil_div(n, chunk)) * 2 * f.tolerance / kTieTolerance;
  double* const again = v.sums + static_cast<std::int64_t>(team.warp()) * C;
  bool near = false;
#pragma unroll 1
  for (int base = begin; base < end; base += team.size) {
    const int i = base + team.rank;
    const bool active = i < end;
    bool safe = true;
    if (active) {
      const double a = v.a[i];
      const double others = f.mass - a;
      safe = a < 0.5 * f.mass && rounding < kSafeError * others;
#pragma unroll 1
      for (int c = 0; safe && c < C; ++c) {
        const double m = v.margin[c] - a * v.difference(i, y, c);
        safe = c == y || fabs(m) >= f.tolerance * others;
      }
      if (safe) {
        write_single<S>(v, f, i, others, write_out,
                        [&](int c) { return v.margin[c] - a * v.difference(i, y, c); });
      }
    }
#pragma unroll 1
    for (unsigned unsafe = __ballot_sync(kAllLanes, active && !safe); unsafe != 0;
         unsafe &= unsafe - 1) {
      const int source = __ffs(unsafe) - 1;
      const int item = __shfl_sync(kAllLanes, i, source);
      double top = f.top_score;
      if (f.underflow && item == f.top_item) {
        top = -infinity();
#pragma unroll 1
        for (int j = team.lane(); j < n; j += 32) {
          if (j != item && v.score(j) > top) top = v.score(j);
        }
        top = group_reduce(top, 32, [](double x, double z) { return x > z ? x : z; });
      }
      const auto weight = [&](int j) {
        if (j == item) return 0.0;
        if (!f.underflow) return v.a[j];
        return v.score(j) > -infinity() ? exp(v.score(j) - top) : 0.0;
      };
      double others = 0;
#pragma unroll 1
      for (int j = team.lane(); j < n; j += 32) others += weight(j);
      others = group_sum(others, 32);
#pragma unroll 1
      for (int c = 0; c < C; ++c) {
        double sum = 0;
#pragma unroll 1
        for (int j = team.lane(); j < n; j += 32) sum += weight(j) * v.difference(j, y, c);
        sum = group_sum(sum, 32);
        if (team.lane() == 0) again[c] = sum;
      }
      __syncwarp();
      if (team.lane() == source) {
        near =
            write_single<S>(v, f, item, others, write_out, [&](int c) { return again[c]; }) || near;
      }
      __syncwarp();
    }
  }
  note_near(part, near && write_out);
}

// Makes the sort word of item i in the minimal set's order for class c: its margin, items without
// weight last; where weights underflow, its sign and then log |m_{i,c}|.
template <typename S, typename Idx>
FAE_DEV Word margin_word(const View<S, Idx>& v, const Facts& f, int i, int c) {
  if (!f.finite || !is_positive(v, f, i)) return 0;
  if (v.C == 1) return 1;
  const double d = v.difference(i, f.label, c);
  if (!f.underflow) return ordered_bits(v.a[i] * d);
  const Word size = ordered_bits(v.score(i) + log(fabs(d))) >> 2;
  return d > 0 ? (3ull << 62) | size : d < 0 ? (1ull << 62) | ((~size << 2) >> 2) : 2ull << 62;
}

// Finds the random stream that the keys of a random order of an instance share.
template <typename V>
FAE_DEV std::uint64_t stream_of(const V& v, const DeviceRanking& ranking) {
  const auto order = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(ranking.data));
  return random_stream(v.launch.p.seed, order, v.launch.p.ids[v.b]);
}

// Makes the 64-bit sort word of item i in a ranking; larger is earlier. `stream` is stream_of's for
// a random one.
template <typename V>
FAE_DEV Word ranking_word(const V& v, const DeviceRanking& ranking, bool finite,
                          std::uint64_t stream, int i) {
  switch (ranking.kind) {
    case kAttention:
      return ordered_bits(v.attention(i));
    case kRandom:
      return random_key(stream, i);
    case kGivenKeys:
      return ordered_bits(load_real(ranking.data, ranking.dtype, v.t0 + i));
    default:
      break;
  }
  if (!finite) return 0;  // by position
  switch (ranking.kind) {
    case kGradient:
      return ordered_bits(v.g[i]);
    case kProduct:
      return ordered_bits(v.a[i] * v.g[i]);
    case kRenormalizedGradient:
      return ordered_bits(v.renorm[i]);
    case kLeaveOneOut:
      return ordered_bits(v.js[i]);
    case kLeaveOneOutDrop:
      return ordered_bits(v.drop[i]);
    default:
      return 0;
  }
}

// Makes the sort word of item i in the r-th order from the loop state's row on; not inlined, since
// sorts ask for it in many places.
template <bool kWarp, typename S, typename Idx>
FAE_NOINLINE __device__ Word word_of(int r, int i) {
  const PartView<kWarp, S, Idx> part = part_view<kWarp, S, Idx>();
  const View<S, Idx>& v = part.view;
  const Facts& f = part.facts;
  const int first = part.state.loop.row;
  if (first < 0) return margin_word(v, f, i, -1 - first);
  const DeviceRanking& ranking = v.launch.rankings[first + r];
  const std::uint64_t stream = ranking.kind == kRandom ? stream_of(v, ranking) : 0;
  return ranking_word(v, ranking, f.finite, stream, i);
}

// Finds the memory of a long instance's pairs between passes.
template <typename S>
FAE_DEV Pairs spare_pairs(const View<S, std::uint32_t>& v) {
  return Pairs{v.buffer + v.launch.p.T, v.orders + 2 * v.launch.p.T};
}

// Sorts the loop state's orders at once: rankings into v.orders [count, n], one of the minimal
// set's into v.min_order.
template <bool kWarp, typename S, typename Idx>
FAE_NOINLINE __device__ void sort_rankings() {
  const PartView<kWarp, S, Idx> part = part_view<kWarp, S, Idx>();
  const Team<kWarp>& team = part.team;
  const View<S, Idx>& v = part.view;
  const int count = part.state.loop.count;
  Idx* const order = part.state.loop.row >= 0 ? v.orders : v.min_order;
  const auto word = [&](int r, int i) { return word_of<kWarp, S, Idx>(r, i); };
  if constexpr (sizeof(Idx) == 4) {
    FAE_SHARED(shared);
    sort_long(team, v.n, shared + kBlockArena + kStateBytes, Pairs{v.buffer, order}, spare_pairs(v),
              [&](int i) { return word(0, i); });
  } else {
    switch (words_a_thread(count * v.P, team.size)) {
      case 1:
        sort_orders<kWarp, 1>(team, count, v.n, v.P, v.buffer, order, word);
        break;
      case 4:
        sort_orders<kWarp, 4>(team, count, v.n, v.P, v.buffer, order, word);
        break;
      default:
        sort_orders<kWarp, kWordsAThread>(team, count, v.n, v.P, v.buffer, order, word);
    }
  }
}

// Says whether erasing `size` items cannot bring class c's sum near zero: the sum of the `size`
// largest margins is at most Σ max(m − t, 0) + size · t for every t >= 0, and a few t are tried.
template <bool kWarp, typename S, typename Idx>
FAE_DEV bool cannot_flip(const Team<kWarp>& team, const View<S, Idx>& v, const Facts& f, int c,
                         int size, double t) {
  const double needed = v.margin[c] * (1 - 1e-9) - f.tolerance * (1 + 1e-6);
  if (!(needed > 0)) return false;
  double low = 0, high = infinity();
#pragma unroll 1
  for (int step = 0; step < 6; ++step) {
    double over = 0;
    int count = 0;
#pragma unroll 1
    for (int i = team.rank; i < v.n; i += team.size) {
      const double m = v.a[i] * v.difference(i, f.label, c);
      if (m > t) {
        over += m - t;
        ++count;
      }
    }
    over = team.sum(over);
    count = team.sum(count);
    if (over + size * t < needed) return true;
    if (count > size) {
      low = t;
    } else {
      high = t;
    }
    t = high == infinity() ? 2 * t : 0.5 * (low + high);
  }
  return false;
}

// Begins the search for the minimal set, which goes class by class, the runner-up first: its set is
// mostly the smallest, which spares the other classes' sorts. The steps are calls of find_minimal,
// sorts among them, so that nothing waits in registers while a sort runs.
template <bool kWarp, typename S, typename Idx>
FAE_NOINLINE __device__ void init_minimal() {
  const PartView<kWarp, S, Idx> part = part_view<kWarp, S, Idx>();
  const View<S, Idx>& v = part.view;
  const Facts& f = part.facts;
  int runner_up = -1;
#pragma unroll 1
  for (int c = 0; f.finite && f.has_mass && c < v.C; ++c) {
    if (c != f.label && (runner_up < 0 || v.margin[c] < v.margin[runner_up])) runner_up = c;
  }
  if (part.team.leads()) part.state.minimal = Minimal{0, runner_up, v.n + 1, v.C, v.n + 1, -1, 0};
  part.team.sync();
}

// Chooses the class to sort by in step 0 … C - 1, -1 for none.
template <bool kWarp, typename S, typename Idx>
FAE_NOINLINE __device__ int minimal_class() {
  const PartView<kWarp, S, Idx> part = part_view<kWarp, S, Idx>();
  const View<S, Idx>& v = part.view;
  const Facts& f = part.facts;
  const Minimal& m = part.state.minimal;
  const int step = m.step;
  const int c = step == 0 ? m.runner_up : step - 1 < m.runner_up ? step - 1 : step;
  if (c == f.label) return -1;
  if (step == 0 || v.n <= 64 || f.underflow) return c;
  const int size = m.size <= v.n ? m.size : f.positives;
  return cannot_flip(part.team, v, f, c, size, m.threshold) ? -1 : c;
}

// Scans the order in min_order, of the loop state's class, for its smallest flipping set, and keeps
// that where it is the best.
template <bool kWarp, typename S, typename Idx>
FAE_NOINLINE __device__ void judge_minimal() {
  const PartView<kWarp, S, Idx> part = part_view<kWarp, S, Idx>();
  const Team<kWarp>& team = part.team;
  const View<S, Idx>& v = part.view;
  const Facts& f = part.facts;
  const int n = v.n, y = f.label, c = -1 - part.state.loop.row;
  // A chunk of ranks a thread; one thread all of them where the sums need a common scale.
  int chunk = f.underflow ? n : ceil_div(n, team.size);
  if (chunk < 8) chunk = 8;
  const int begin = team.rank * chunk < n ? team.rank * chunk : n;
  const int end = begin + chunk < n ? begin + chunk : n;
  double margin = 0, mass = 0, above, unused;
  double top = -infinity();
  int flip = n + 1, near = n + 1;
  if (!f.underflow) {
#pragma unroll 1
    for (int j = end - 1; j >= begin; --j) {
      const int i = v.min_order[j];
      margin += v.a[i] * v.difference(i, y, c);
      mass += v.a[i];
    }
    team.prefix_suffix_sums(margin, unused, above);
    margin = above;
    team.prefix_suffix_sums(mass, unused, above);
    mass = above;
  }
#pragma unroll 1
  for (int k = end - 1; k >= begin; --k) {
    const int i = v.min_order[k];
    double w = v.a[i];
    if (f.underflow) {
      const double e = v.score(i);
      if (e > top) {
        const double factor = exp(top - e);
        margin *= factor;
        mass *= factor;
        top = e;
      }
      w = e > -infinity() ? exp(e - top) : 0.0;
    }
    margin += w * v.difference(i, y, c);
    mass += w;
    if (!(mass > 0)) continue;
    if (k > 0 && (margin < 0 || (margin == 0 && c < y))) flip = k;
    if (fabs(margin) < f.tolerance * mass) near = k;
  }
  flip = team.min(flip);
  near = team.min(near);
  if (team.leads()) {
    Minimal& m = part.state.minimal;
    m.sorted = c;
    if (near < m.nearest) m.nearest = near;
    if (flip <= n && (flip < m.size || (flip == m.size && c < m.label))) {
      m.size = flip;
      m.label = c;
    }
    if (flip == m.size && flip < n) {
      const int i = v.min_order[flip];
      const double last = v.a[i] * v.difference(i, y, c);
      m.threshold = last > 0 ? last : 0.0;
    }
  }
}

// Writes the set whose order is in min_order, its size and label.
template <bool kWarp, typename S, typename Idx>
FAE_NOINLINE __device__ void finish_minimal() {
  const PartView<kWarp, S, Idx> part = part_view<kWarp, S, Idx>();
  const Team<kWarp>& team = part.team;
  const View<S, Idx>& v = part.view;
  const Facts& f = part.facts;
  const SweepParams& p = v.launch.p;
  const Minimal& m = part.state.minimal;
  const int n = v.n, C = v.C, y = f.label;
  const bool judged = m.sorted >= 0, found = m.size <= n;
  int size = -1, label = -1;
  if (judged && found) {
    double top = -infinity();
    if (f.underflow) {
#pragma unroll 1
      for (int k = m.size + team.rank; k < n; k += team.size) {
        const double e = v.score(v.min_order[k]);
        top = e > top ? e : top;
      }
      top = team.max(top);
    }
    double* const after = v.sums + static_cast<std::int64_t>(team.size / class_lanes(C)) * C;
    class_sums(team, v, n - m.size, after, [&](int j, int c) {
      const int i = v.min_order[n - 1 - j];
      double w = v.a[i];
      if (f.underflow) w = v.score(i) > -infinity() ? exp(v.score(i) - top) : 0.0;
      return w * v.difference(i, y, c);
    });
    double value = HUGE_VAL;
    size = m.size;
    label = C;
#pragma unroll 1
    for (int c = 0; c < C; ++c) take_smaller(value, label, c == y ? 0.0 : after[c], c);
  } else if (judged && f.bias_label != y) {
    size = f.positives;
    label = f.bias_label;
  }
  if (team.leads()) {
    write_int(p.minimal_size, v.b, size);
    write_int(p.minimal_flip_label, v.b, label);
  }
#pragma unroll 1
  for (int j = team.rank; p.minimal_order != nullptr && j < n; j += team.size) {
    p.minimal_order[v.t0 + j] = v.min_order[j];
  }
  note_near(part, judged && m.nearest <= (found ? m.size : f.positives));
}

// Finds the greedy order of the round's ranking `row`. `v.bad` marks what is taken: nothing is bad
// here, and it is restored.
template <bool kWarp, typename S, typename Idx>
FAE_NOINLINE __device__ void find_greedy(int row) {
  const PartView<kWarp, S, Idx> part = part_view<kWarp, S, Idx>();
  const Team<kWarp>& team = part.team;
  const View<S, Idx>& v = part.view;
  const Facts& f = part.facts;
  Idx* const order = v.orders + row * v.n;
  const int n = v.n, C = v.C, y = f.label;
  double* const margins = v.sums + static_cast<std::int64_t>(team.size / class_lanes(C)) * C;
  unsigned char* const taken = v.bad;
#pragma unroll 1
  for (int step = 0; step < n; ++step) {
    double top = 0;
    if (f.underflow) {
      top = -infinity();
#pragma unroll 1
      for (int j = team.rank; j < n; j += team.size) {
        if (taken[j] == 0 && v.attention(j) > top) top = v.attention(j);
      }
      top = team.max(top);
    }
    const auto weight = [&](int j, double scale) {
      if (taken[j] != 0) return 0.0;
      if (!f.underflow) return v.a[j];
      return v.attention(j) > -infinity() ? exp(v.attention(j) - scale) : 0.0;
    };
    double mass = 0;
#pragma unroll 1
    for (int j = team.rank; j < n; j += team.size) mass += weight(j, top);
    mass = team.sum(mass);
    class_sums(team, v, n, margins,
               [&](int i, int c) { return weight(i, top) * v.difference(i, y, c); });
    double min_lead = HUGE_VAL;
    int item = n;
#pragma unroll 1
    for (int i = team.rank; i < n; i += team.size) {
      if (taken[i] != 0) continue;
      const double w = weight(i, top);
      const bool heavy = w > 0.5 * mass;
      double others = mass - w, own_top = top;
      if (heavy) {
        if (f.underflow) {
          own_top = -infinity();
#pragma unroll 1
          for (int j = 0; j < n; ++j) {
            if (j != i && taken[j] == 0 && v.attention(j) > own_top) own_top = v.attention(j);
          }
        }
        others = 0;
#pragma unroll 1
        for (int j = 0; j < n; ++j) others += j == i ? 0.0 : weight(j, own_top);
      }
      double lead = HUGE_VAL;
#pragma unroll 1
      for (int c = 0; c < C; ++c) {
        if (c == y) continue;
        double m = margins[c] - w * v.difference(i, y, c);
        if (heavy) {
          m = 0;
#pragma unroll 1
          for (int j = 0; j < n; ++j) {
            m += j == i ? 0.0 : weight(j, own_top) * v.difference(j, y, c);
          }
        }
        const double d = others > 0 ? m / others : v.bias[y] - v.bias[c];
        lead = d < lead ? d : lead;
      }
      if (item == n || lead < min_lead) {
        min_lead = lead;
        item = i;
      }
    }
    const double first = team.min(min_lead);
    item = team.min(min_lead == first ? item : n);
    if (team.leads()) {
      order[step] = static_cast<Idx>(item);
      taken[item] = 1;
    }
    team.sync();
  }
#pragma unroll 1
  for (int i = team.rank; i < n; i += team.size) taken[i] = 0;
  team.sync();
}

// Places those of the loop state's orders that no sort of keys gives, and writes all of them as a
// result where that is wanted.
template <bool kWarp, typename S, typename Idx>
FAE_NOINLINE __device__ void place_orders() {
  const PartView<kWarp, S, Idx> part = part_view<kWarp, S, Idx>();
  const Team<kWarp>& team = part.team;
  const View<S, Idx>& v = part.view;
  const Facts& f = part.facts;
  const int row = part.state.loop.row, count = part.state.loop.count;
#pragma unroll 1
  for (int r = 0; r < count; ++r) {
    const DeviceRanking& ranking = v.launch.rankings[row + r];
    Idx* const order = v.orders + r * v.n;
    if (ranking.kind == kGivenOrder) {
      const std::int64_t* given = static_cast<const std::int64_t*>(ranking.data) + v.t0;
#pragma unroll 1
      for (int j = team.rank; j < v.n; j += team.size) order[j] = static_cast<Idx>(given[j]);
    } else if (ranking.kind == kMinimal) {
#pragma unroll 1
      for (int j = team.rank; j < v.n; j += team.size) order[j] = v.min_order[j];
    } else if (ranking.kind == kGreedy && f.finite && v.C > 1) {
      find_greedy<kWarp, S, Idx>(r);
    } else if (ranking.kind == kGreedy) {
#pragma unroll 1
      for (int j = team.rank; j < v.n; j += team.size) order[j] = static_cast<Idx>(j);
    }
  }
  team.sync();
  if (v.launch.p.order == nullptr) return;
#pragma unroll 1
  for (int r = 0; r < count; ++r) {
    std::int64_t* out = v.launch.p.order + (v.launch.row0 + row + r) * v.launch.p.T + v.t0;
#pragma unroll 1
    for (int j = team.rank; j < v.n; j += team.size) out[j] = v.orders[r * v.n + j];
  }
}

// Finds the gradients and, where needed, the keys of the renormalised gradient.
template <bool kWarp, typename S, typename Idx>
FAE_NOINLINE __device__ void find_slopes(bool renormalized) {
  const PartView<kWarp, S, Idx> part = part_view<kWarp, S, Idx>();
  const Team<kWarp>& team = part.team;
  const View<S, Idx>& v = part.view;
  const Facts& f = part.facts;
  find_gradients(team, v, f);
  if (renormalized) find_renormalized(team, v, f);
}

}  // namespace fae
