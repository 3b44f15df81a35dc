// Scans of rankings whose orders are known: the decision at every prefix, the first flip, curves
// (engine contract, section 2).
//
// With t = 0 … n - 1 counting the items in the order in which they join the survivors (the tail of
// the ranking first; its head first in direction `keep`), point k holds the sums
//   A_k = Σ a_j,   M_{k,c} = Σ a_j [(s_{j,y} + b_y) − (s_{j,c} + b_c)]   over the survivors j,
// and the decision has left y where some M_{k,c} < 0, or = 0 with c < y.
//
// Three mappings, which choose_mapping chooses from:
//   - scan_short: a thread a chunk of at most 64 ranks of one ranking. Not with curves, nor where
//     something is not finite, nothing has mass or weights underflow.
//   - scan_long: the block one ranking, kStretch ranks a thread at a time. Likewise.
//   - scan_classes: a group of class_lanes(C) lanes a chunk, a lane one class (more where C > 32).
// All are segmented scans: every chunk is summed, the sums of the chunks before it are its start,
// and a second pass looks at every point. In scan_classes the groups of a team share the rankings
// of a round and then their chunks, and a point flips where a ballot within the group says so.
// Float64 throughout; a chunk has eight ranks at least, so that short instances are summed in one
// order.
//
// Traffic: shared memory only (the order, n weights, n C contributions a ranking, twice), plus the
// curves that are asked for.
#pragma once

#include "facts.cuh"

namespace fae {

// Returns a sum of js_term without what it rounded beyond [0, ln 2].
FAE_DEV double clamp_js(double js) { return js < 0 ? 0.0 : js > kLn2 ? kLn2 : js; }

// Keeps the class with the smaller value, the lower class on ties.
FAE_DEV void take_smaller(double& value, int& c, double other, int other_c) {
  if (other < value || (other == value && other_c < c)) {
    value = other;
    c = other_c;
  }
}

// Reduces `value` over aligned groups of `lanes` lanes, a power of two.
template <typename Op>
FAE_DEV double group_reduce(double value, int lanes, Op op) {
  for (int o = lanes >> 1; o > 0; o >>= 1) value = op(value, __shfl_xor_sync(kAllLanes, value, o));
  return value;
}
FAE_DEV double group_sum(double value, int lanes) {
  return group_reduce(value, lanes, [](double a, double b) { return a + b; });
}
FAE_DEV double group_min(double value, int lanes) {
  return group_reduce(value, lanes, [](double a, double b) { return a < b ? a : b; });
}
// Finds the class with the smallest value of a group, the lowest class on ties.
FAE_DEV int group_smallest(double value, int c, int lanes) {
  for (int o = lanes >> 1; o > 0; o >>= 1) {
    const double other = __shfl_xor_sync(kAllLanes, value, o);
    const int other_c = __shfl_xor_sync(kAllLanes, c, o);
    take_smaller(value, c, other, other_c);
  }
  return c;
}

// The sums of one lane's classes over the survivors so far; `add` writes them.
template <bool kOne>
struct Survivors {
  double margin = 0, weighted = 0;  // Σ w m and Σ w s of the lane's class, where it has one
  double* several;                  // [2, C] the same of the group, where a lane has several
  double mass = 0;                  // Σ of the normalised weights
  double total = 0;        // Σ of the weights in use: where they underflow, e^(score - top)
  double top = -HUGE_VAL;  // the largest score so far, where weights underflow
  int bad = 0;             // items that are not finite

  // Calls f(class, margin, weighted) for each class of this lane.
  template <typename F>
  FAE_DEV void for_classes(int lane, int lanes, int C, F f) {
    if (kOne) {
      if (lane < C) f(lane, margin, weighted);
    } else {
#pragma unroll 1
      for (int c = lane; c < C; c += lanes) f(c, several[c], several[C + c]);
    }
  }

  // Makes `score` the scale of the sums where it is larger; returns the factor of an item with
  // that score.
  FAE_DEV double rescale(double score, int lane, int lanes, int C) {
    if (score == -HUGE_VAL) return 0;
    if (score <= top) return exp(score - top);
    const double factor = exp(top - score);
    top = score;
    total *= factor;
    for_classes(lane, lanes, C, [&](int, double& m, double& w) {
      m *= factor;
      w *= factor;
    });
    return 1;
  }

  // Adds item i to the sums, to `weighted` only where the curve of logits needs it.
  template <typename S, typename Idx>
  FAE_DEV void add(const View<S, Idx>& v, const Facts& f, bool weighted_too, int i, int lane,
                   int lanes) {
    const double a = v.a[i];
    mass += a;
    double w = a;
    if (f.underflow) w = rescale(v.score(i), lane, lanes, v.C);
    total += w;
    if (!f.finite && v.bad[i] != 0) {
      ++bad;
      return;
    }
    const double own = f.label < 0 ? 0.0 : v.contribution(i, f.label) + v.bias[f.label];
    for_classes(lane, lanes, v.C, [&](int c, double& m, double& z) {
      const double s = v.contribution(i, c);
      m += w * (own - (s + v.bias[c]));
      if (weighted_too) z += w * s;
    });
  }
};

// Writes that no prefix of the launch's ranking `row` flips instance b.
FAE_DEV void write_never(const Launch& launch, int row, std::int64_t b) {
  const std::int64_t at = (launch.row0 + row) * launch.p.B + b;
  write_int(launch.p.first_flip, at, -1);
  write_int(launch.p.flip_label, at, -1);
  if (launch.p.removed_mass != nullptr) launch.p.removed_mass[at] = not_a_number();
}

// Scans the loop state's rankings, whose orders are in v.orders, by groups of class lanes.
template <bool kWarp, bool kOne, typename S, typename Idx>
FAE_NOINLINE __device__ void scan_classes() {
  const PartView<kWarp, S, Idx> part = part_view<kWarp, S, Idx>();
  const Team<kWarp>& team = part.team;
  const View<S, Idx>& v = part.view;
  const Facts& f = part.facts;
  const LoopState& loop = part.state.loop;
  const Launch& launch = v.launch;
  const SweepParams& p = launch.p;
  const Needs& needs = launch.needs;
  constexpr bool kDouble = sizeof(S) == 8;
  const int n = v.n, C = v.C, y = f.label;
  // Conditions as numbers, laundered where they are asked: predicates that wait for the next phase
  // are spilled.
  const int keep = p.keep;
  const int judged = f.finite && f.has_mass ? 1 : 0;
  const int lanes = class_lanes(C);
  const int groups = team.size / lanes;
  const int group = team.rank / lanes;
  const int lane = team.rank % lanes;
  const unsigned group_bits = (lanes == 32 ? kAllLanes : (1u << lanes) - 1u)
                              << (team.lane() / lanes * lanes);
  const std::int64_t words = group_words(C);
  double* const mine = v.sums + group * words;
  bool near_tie = false;
  if (launder(judged) == 0 && !needs.curves) {
    for (int r = team.rank; r < loop.count; r += team.size) write_never(launch, loop.row + r, v.b);
    return;
  }

  for (int r0 = 0; r0 < loop.count; r0 += groups) {
    const int together = loop.count - r0 < groups ? loop.count - r0 : groups;
    int chunks = groups / together;
    const int items = launder(n);
    const int useful = ceil_div(items > 1 ? items : 1, 8);
    if (chunks > useful) chunks = useful;
    const int length = ceil_div(items, chunks);
    const int row = group / chunks;
    const int chunk = group % chunks;
    const int active = row < together ? 1 : 0;
    const Idx* order = v.orders + static_cast<std::int64_t>(r0 + row * active) * items;
    const int begin = active != 0 && chunk * length < items ? chunk * length : items;
    const int end = begin + length < items ? begin + length : items;
    const auto item = [&](int t) {
      return static_cast<int>(order[launder(keep) != 0 ? t : n - 1 - t]);
    };
    const std::int64_t curve = (launch.row0 + loop.row + r0 + row) * (p.T + p.B) + v.t0 + v.b;

    Survivors<kOne> sums;
    if (!kOne) {
      sums.several = mine;
      sums.for_classes(lane, lanes, C, [](int, double& m, double& z) { m = z = 0; });
    }
    if (chunks > 1) {
      for (int t = begin; t < end; ++t) sums.add(v, f, needs.logits, item(t), lane, lanes);
      if (kOne && lane < C) {
        mine[lane] = sums.margin;
        mine[C + lane] = sums.weighted;
      }
      if (lane == 0) {
        double* const last = launder(mine) + 2 * C;
        last[0] = sums.mass;
        last[1] = sums.total;
        last[2] = sums.top;
        last[3] = sums.bad;
      }
      team.sync();
      // The sums of the chunks before this one.
      sums = Survivors<kOne>{};
      if (!kOne) {
        sums.several = mine + 2 * C + 6;
        sums.for_classes(lane, lanes, C, [](int, double& m, double& z) { m = z = 0; });
      }
      for (int k = 0; k < chunk * active; ++k) {
        const double* from = v.sums + (row * chunks + k) * words;
        const double factor = f.underflow ? sums.rescale(from[2 * C + 2], lane, lanes, C) : 1.0;
        sums.mass += from[2 * C];
        sums.total += factor * from[2 * C + 1];
        sums.bad += static_cast<int>(from[2 * C + 3]);
        sums.for_classes(lane, lanes, C, [&](int c, double& m, double& z) {
          m += factor * from[c];
          z += factor * from[C + c];
        });
      }
    }

    // Finds the smallest of the lane's own margins, the label's being zero.
    const auto own_smallest = [&](double& value, int& c) {
      value = HUGE_VAL;
      c = C;
      sums.for_classes(lane, lanes, C, [&](int k, double& m, double&) {
        take_smaller(value, c, k == y ? 0.0 : m, k);
      });
    };

    // Writes point k of the wanted curves; `full`: nothing is erased.
    const auto write_curves = [&](bool on, int k, bool full) {
      const bool survive = sums.total > 0;
      const bool lost = sums.bad > 0 || !f.bias_finite;
      const std::int64_t at = curve + k;
      const bool writes = on && lane == 0;
      if (writes && p.curve_mass != nullptr) p.curve_mass[at] = sums.mass;
      if (p.curve_decision != nullptr) {
        double value;
        int c;
        own_smallest(value, c);
        c = group_smallest(value, c, lanes);
        const int decision = full && f.finite ? y : lost ? -1 : survive ? c : f.bias_label;
        if (writes) p.curve_decision[at] = decision;
      }
      if (needs.logits && on) {
        sums.for_classes(lane, lanes, C, [&](int c, double&, double& z) {
          const double logit = lost               ? not_a_number()
                               : full && f.finite ? v.logits[c]
                                                  : v.bias[c] + (survive ? z / sums.total : 0.0);
          write_real(p.curve_logits, kDouble, at * C + c, logit);
        });
      }
      if (!needs.divergence) return;
      double js = not_a_number(), kl = js, label_prob = js;
      if (f.finite) {
        const auto lead = [&](int c, double m) {
          return full      ? v.logits[y] - v.logits[c]
                 : survive ? (c == y ? 0.0 : m / sums.total)
                           : v.bias[y] - v.bias[c];
        };
        double min_lead = HUGE_VAL;
        sums.for_classes(lane, lanes, C, [&](int c, double& m, double&) {
          const double d = lead(c, m);
          min_lead = d < min_lead ? d : min_lead;
        });
        min_lead = group_min(min_lead, lanes);
        double z = 0;
        sums.for_classes(lane, lanes, C,
                         [&](int c, double& m, double&) { z += exp(min_lead - lead(c, m)); });
        z = group_sum(z, lanes);
        const double log_z = log(z);
        js = kl = 0;
        sums.for_classes(lane, lanes, C, [&](int c, double& m, double&) {
          const double down = min_lead - lead(c, m);
          const double q = exp(down) / z;
          js += js_term(v.prob[c], q);
          kl += kl_term(q, down - log_z, v.log_prob[c]);
        });
        js = clamp_js(group_sum(js, lanes));
        kl = group_sum(kl, lanes);
        if (kl < 0) kl = 0;
        label_prob = exp(min_lead) / z;
      }
      if (!writes) return;
      write_real(p.curve_js, kDouble, at, js);
      write_real(p.curve_kl, kDouble, at, kl);
      write_real(p.curve_label_prob, kDouble, at, label_prob);
    };

    int event = -1, event_t = -1, first_near = -1, saved_class = f.bias_label;
    double saved_margin = 0;
    bool saved_survive = false;
    if (active != 0 && chunk == 0 && launder(judged) != 0 && launder(keep) == 0 &&
        f.bias_label != y) {
      event = n;
    }
    // Step -1 of the first chunk is the point where nothing survives.
    for (int step = -1; step < length; ++step) {
      const int t = begin + step;
      const bool on = step < 0 ? launder(active) != 0 && chunk == 0 : t < end;
      if (step >= 0 && on) sums.add(v, f, needs.logits, item(t), lane, lanes);
      const bool full = t == n - 1;
      const int k = launder(keep) != 0 ? t + 1 : n - 1 - t;
      if (launder(judged) != 0 && step >= 0) {
        const bool first_wins = launder(keep) != 0;
        const bool survive = sums.total > 0;
        bool below = false, near = false;
        const double tolerance = f.tolerance * sums.total;
        sums.for_classes(lane, lanes, C, [&](int c, double& m, double&) {
          below = below || (c != y && (m < 0 || (m == 0 && c < y)));
          near = near || (c != y && fabs(m) < tolerance);
        });
        const bool left = (__ballot_sync(kAllLanes, below) & group_bits) != 0;
        const bool close = (__ballot_sync(kAllLanes, near && survive) & group_bits) != 0;
        const bool flips = !full && (survive ? left : f.bias_label != y);
        if (on && flips != first_wins && (!first_wins || event < 0)) {
          event = k;
          event_t = t;
          saved_survive = survive;
          own_smallest(saved_margin, saved_class);
        }
        if (on && close && (!first_wins || first_near < 0)) first_near = k;
      }
      if (needs.curves) write_curves(on, k, full);
    }

    if (launder(judged) != 0) {
      if (lane == 0) {
        double* const last = launder(mine) + 2 * C;
        last[4] = event;
        last[5] = first_near;
      }
      team.sync();
      int first = n + 1, nearest = n + 1;
      for (int q = 0; q < chunks * active; ++q) {
        const double* from = v.sums + (row * chunks + q) * words;
        const int e = static_cast<int>(from[2 * C + 4]), c = static_cast<int>(from[2 * C + 5]);
        if (e >= 0 && e < first) first = e;
        if (c >= 0 && c < nearest) nearest = c;
      }
      near_tie = near_tie || (launder(active) != 0 && nearest <= n && nearest <= first);
      const bool mine_first = launder(active) != 0 && event >= 0 && event == first;
      double removed = 0;
      if (mine_first) {
        const int from = event_t + 1 > begin ? event_t + 1 : begin;
        for (int t = from + lane; t < end; t += lanes) removed += v.a[item(t)];
        for (int q = chunk + 1 + lane; q < chunks; q += lanes) {
          removed += v.sums[(row * chunks + q) * words + 2 * C];
        }
      }
      removed = group_sum(removed, lanes);
      const int smallest = group_smallest(saved_margin, saved_class, lanes);
      if (lane == 0 && mine_first) {
        const std::int64_t result = (launch.row0 + loop.row + r0 + row) * p.B + v.b;
        write_int(p.first_flip, result, event);
        write_int(p.flip_label, result,
                  launder(keep) != 0 ? y
                  : saved_survive    ? smallest
                                     : f.bias_label);
        if (p.removed_mass != nullptr) p.removed_mass[result] = removed;
      }
      if (lane == 0 && launder(active) != 0 && chunk == 0 && first > n) {
        write_never(launch, loop.row + r0 + row, v.b);
      }
    } else if (lane == 0 && launder(active) != 0 && chunk == 0) {
      write_never(launch, loop.row + r0 + row, v.b);
    }
    team.sync();
  }
  note_near(part, near_tie);
}

constexpr int kTile = 3;        // classes that scan_short and scan_long take at once
constexpr int kMostRanks = 64;  // ranks a thread of scan_short, a bit each

// Says how many threads scan a ranking: a power of two, at most a warp.
FAE_DEV int scan_threads(int size, int count) {
  int threads = 32;
  while (threads * count > size) threads >>= 1;
  return threads;
}

// Says how many ranks each of them scans.
FAE_DEV int scan_chunk(int n, int threads) {
  const int chunk = ceil_div(n, threads);
  return chunk < 8 ? 8 : chunk;
}

// The kTile classes that are scanned at once, of all but the label y; the last one again where no
// more are left.
struct ClassTile {
  int y;
  int classes[kTile];  // the constructor writes them and their biases
  double own_bias;
  double bias[kTile];

  template <typename S, typename Idx>
  FAE_DEV ClassTile(const View<S, Idx>& v, int label, double label_bias, int first)
      : y(label), own_bias(label_bias) {
#pragma unroll
    for (int j = 0; j < kTile; ++j) {
      const int other = first + j < v.C - 1 ? first + j : v.C - 2;
      classes[j] = v.C == 1 ? 0 : other + (other >= y ? 1 : 0);
      bias[j] = v.bias[classes[j]];
    }
  }

  // Adds the margins of item i, which weighs a.
  template <typename S, typename Idx>
  FAE_DEV void add(const View<S, Idx>& v, int i, double a, double (&margins)[kTile]) const {
    const S* row = v.s + static_cast<std::int64_t>(i) * v.cs;
    const double own = row[y] + own_bias;
#pragma unroll
    for (int j = 0; j < kTile; ++j) margins[j] += a * (own - (row[classes[j]] + bias[j]));
  }

  // Says whether a class is ahead of the label, and whether one is a near-tie.
  FAE_DEV void judge(const double (&margins)[kTile], double tolerance, bool& below,
                     bool& near) const {
    below = near = false;
#pragma unroll
    for (int j = 0; j < kTile; ++j) {
      below = below | (margins[j] < 0) | ((margins[j] == 0) & (classes[j] < y));
      near = near | (fabs(margins[j]) < tolerance);
    }
  }
};

// Scans the loop state's rankings, a thread a chunk of at most kMostRanks ranks: finite, some mass,
// no underflow, no curves.
//
// Up to 32 threads share a ranking. Each sums its chunk, a scan over the ranking's threads gives
// the sums of the chunks before it, and a second pass marks the points that flip or are near-ties
// in two words of bits. Which of them comes first is found from the words.
template <bool kWarp, typename S, typename Idx>
FAE_NOINLINE __device__ void scan_short() {
  const PartView<kWarp, S, Idx> part = part_view<kWarp, S, Idx>();
  const Team<kWarp>& team = part.team;
  const View<S, Idx>& v = part.view;
  const Facts& f = part.facts;
  const int first_row = part.state.loop.row, count = part.state.loop.count;
  const SweepParams& p = v.launch.p;
  const int n = v.n, C = v.C, y = f.label;
  const int keep = p.keep;
  const int threads = scan_threads(team.size, count);
  const int row = team.rank / threads;
  const int q = team.rank % threads;
  const bool active = row < count;
  const int chunk = scan_chunk(n, threads);
  const int begin = active && q * chunk < n ? q * chunk : n;
  const int end = begin + chunk < n ? begin + chunk : n;
  const Idx* order = v.orders + (active ? row : 0) * n;
  const auto item = [&](int t) {
    return static_cast<int>(order[launder(keep) != 0 ? t : n - 1 - t]);
  };
  const bool empty_flips = f.bias_label != y;
  const double own_bias = v.bias[y];

  unsigned long long flips = 0, nears = 0;
  for (int first = 0; first == 0 || first < C - 1; first += kTile) {
    const ClassTile tile(v, y, own_bias, first);
    double sums[kTile] = {};
    double mass = 0;
#pragma unroll 2
    for (int t = begin; t < end; ++t) {
      const int i = item(t);
      const double a = v.a[i];
      mass += a;
      tile.add(v, i, a, sums);
    }
#pragma unroll 1
    for (int o = 1; o < threads; o <<= 1) {
      const double m = __shfl_up_sync(kAllLanes, mass, o);
      if (q >= o) mass += m;
#pragma unroll
      for (int j = 0; j < kTile; ++j) {
        const double x = __shfl_up_sync(kAllLanes, sums[j], o);
        if (q >= o) sums[j] += x;
      }
    }
    mass = __shfl_up_sync(kAllLanes, mass, 1);
    if (q == 0) mass = 0;
#pragma unroll
    for (int j = 0; j < kTile; ++j) {
      sums[j] = __shfl_up_sync(kAllLanes, sums[j], 1);
      if (q == 0) sums[j] = 0;
    }
#pragma unroll 2
    for (int t = begin; t < end; ++t) {
      const int i = item(t);
      const double a = v.a[i];
      mass += a;
      tile.add(v, i, a, sums);
      bool below, near;
      tile.judge(sums, f.tolerance * mass, below, near);
      const bool survive = mass > 0;
      const bool flip = survive ? below & (C > 1) : empty_flips;
      flips |= static_cast<unsigned long long>(flip) << (t - begin);
      nears |= static_cast<unsigned long long>(near & survive & (C > 1)) << (t - begin);
    }
  }
  // Point t = n - 1 is the whole instance: y by definition.
  if (begin < n && end == n) flips &= ~(1ull << (n - 1 - begin));
  // The first flip: erasing, the largest t that flips; keeping, the smallest that does not.
  const int held = end - begin;
  const unsigned long long all = held == 64 ? ~0ull : (1ull << held) - 1;
  int event = launder(keep) != 0 ? n : -2, close = event;
  if (launder(keep) == 0) {
    if (flips != 0) event = begin + 63 - __clzll(static_cast<long long>(flips));
    if (nears != 0) close = begin + 63 - __clzll(static_cast<long long>(nears));
    if (q == 0 && event < 0 && empty_flips) event = -1;
  } else {
    const unsigned long long stays = ~flips & all;
    if (stays != 0) event = begin + __ffsll(static_cast<long long>(stays)) - 1;
    if (nears != 0) close = begin + __ffsll(static_cast<long long>(nears)) - 1;
  }
  const bool first_wins = launder(keep) != 0;
  for (int o = threads >> 1; o > 0; o >>= 1) {
    const int other = __shfl_xor_sync(kAllLanes, event, o);
    const int near = __shfl_xor_sync(kAllLanes, close, o);
    event = (other > event) != first_wins ? other : event;
    close = (near > close) != first_wins ? near : close;
  }
  const bool found = first_wins ? event < n : event >= -1;
  double removed = 0;
  if (found) {
    for (int t = event + 1 > begin ? event + 1 : begin; t < end; ++t) removed += v.a[item(t)];
  }
  removed = group_sum(removed, threads);
  // The class with the smallest sum after the first flip; the label's sum is zero, not below.
  int flip_label = first_wins ? y : f.bias_label;
  bool survives = false;
  if (!first_wins && found && event >= 0) {
    for (int t = begin; t < end && t <= event; ++t) survives = survives || v.a[item(t)] > 0;
  }
  for (int o = threads >> 1; o > 0; o >>= 1) {
    const bool other = __shfl_xor_sync(kAllLanes, survives ? 1 : 0, o) != 0;
    survives = survives || other;
  }
  double min_sum = HUGE_VAL;
  for (int first = 0; first < C - 1 && launder(keep) == 0; first += kTile) {
    const ClassTile tile(v, y, own_bias, first);
    double sums[kTile] = {};
    if (C > 2 && survives) {
#pragma unroll 2
      for (int t = begin; t < end; ++t) {
        if (t > event) break;
        const int i = item(t);
        tile.add(v, i, v.a[i], sums);
      }
    }
#pragma unroll
    for (int j = 0; j < kTile; ++j) {
      const double sum = group_sum(sums[j], threads);
      if (survives) {
        if (min_sum == HUGE_VAL) flip_label = C;
        take_smaller(min_sum, flip_label, sum, tile.classes[j]);
      }
    }
  }
  if (active && q == 0) {
    if (found) {
      const std::int64_t at = (v.launch.row0 + first_row + row) * p.B + v.b;
      write_int(p.first_flip, at, launder(keep) != 0 ? event + 1 : n - 1 - event);
      write_int(p.flip_label, at, flip_label);
      if (p.removed_mass != nullptr) p.removed_mass[at] = removed;
    } else {
      write_never(v.launch, first_row + row, v.b);
    }
  }
  note_near(part, active && (launder(keep) != 0 ? close <= event && close < n
                                                : close >= 0 && close >= event));
}

constexpr int kStretch = 8;  // ranks a thread of scan_long takes in one step

// Scans the loop state's ranking of a long instance, for whose ranks 32 threads have no bits: the
// block goes through it in steps, kStretch ranks a thread. The sums before a step, and those before
// the last step that flips, are kept in scratch memory. Duplicates the loops of scan_short on
// purpose: sharing them spilled in every variant tried.
template <typename S>
FAE_NOINLINE __device__ void scan_long() {
  using Idx = std::uint32_t;
  const PartView<false, S, Idx> part = part_view<false, S, Idx>();
  const Team<false>& team = part.team;
  const View<S, Idx>& v = part.view;
  const Facts& f = part.facts;
  const SweepParams& p = v.launch.p;
  const int n = v.n, C = v.C, y = f.label;
  const int keep = p.keep;
  const bool empty_flips = f.bias_label != y;
  const double own_bias = v.bias[y];
  double* const carries = v.sums + static_cast<std::int64_t>(team.size / class_lanes(C)) * C;
  double* const saved = carries + 2 * C;
  double* const after = carries + 3 * C;
  const Idx* order = v.orders;
  const auto item = [&](int t) {
    return static_cast<int>(order[launder(keep) != 0 ? t : n - 1 - t]);
  };
  // Double buffer: a step writes the sums for the next one into the half that it does not read; the
  // scan of the mass has the barriers between steps.
  for (int c = team.rank; c < C; c += team.size) carries[c] = 0;
  int event = keep != 0 ? n : -2, close = event, saved_base = 0;
  double mass_before = 0, saved_mass = 0;
  double* carry = carries;
#pragma unroll 1
  for (int base = 0; base < n; base += team.size * kStretch) {
    const int begin = base + team.rank * kStretch < n ? base + team.rank * kStretch : n;
    const int end = begin + kStretch < n ? begin + kStretch : n;
    double* const next = carry == carries ? carries + C : carries;
    unsigned flips = 0, nears = 0;
    double step_mass = 0;
#pragma unroll 1
    for (int first = 0; first == 0 || first < C - 1; first += kTile) {
      const ClassTile tile(v, y, own_bias, first);
      double sums[kTile] = {};
      double mass = 0;
#pragma unroll 4
      for (int t = begin; t < end; ++t) {
        const int i = item(t);
        const double a = v.a[i];
        mass += a;
        tile.add(v, i, a, sums);
      }
      mass = mass_before + team.prefix_sum(mass, step_mass);
#pragma unroll
      for (int j = 0; j < kTile; ++j) {
        double step_sum;
        const double before = carry[tile.classes[j]];
        sums[j] = before + team.prefix_sum(sums[j], step_sum);
        if (team.leads()) next[tile.classes[j]] = before + step_sum;
      }
#pragma unroll 2
      for (int t = begin; t < end; ++t) {
        const int i = item(t);
        const double a = v.a[i];
        mass += a;
        tile.add(v, i, a, sums);
        bool below, near;
        tile.judge(sums, f.tolerance * mass, below, near);
        const bool survive = mass > 0;
        // Point t = n - 1 is the whole instance: y by definition.
        const bool flip = (survive ? below & (C > 1) : empty_flips) & (t < n - 1);
        flips |= static_cast<unsigned>(flip) << (t - begin);
        nears |= static_cast<unsigned>(near & survive & (C > 1)) << (t - begin);
      }
    }
    if (launder(keep) == 0) {
      if (flips != 0) event = begin + 31 - __clz(static_cast<int>(flips));
      if (nears != 0) close = begin + 31 - __clz(static_cast<int>(nears));
      if (team.any(flips != 0)) {
        saved_base = base;
        saved_mass = mass_before;
        for (int c = team.rank; c < C; c += team.size) saved[c] = carry[c];
      }
    } else {
      const unsigned stays = ~flips & ((1u << (end - begin)) - 1u);
      if (event == n && stays != 0) event = begin + __ffs(static_cast<int>(stays)) - 1;
      if (close == n && nears != 0) close = begin + __ffs(static_cast<int>(nears)) - 1;
    }
    mass_before += step_mass;
    carry = next;
  }
  const bool first_wins = launder(keep) != 0;
  event = first_wins ? team.min(event) : -team.min(-event);
  close = first_wins ? team.min(close) : -team.min(-close);
  if (event == -2 && empty_flips) event = -1;
  const bool near = first_wins ? close <= event && close < n : close >= 0 && close >= event;
  note_near(part, team.leads() && near);
  double removed = 0;
  for (int t = event + 1 + team.rank; event >= -1 && t < n; t += team.size) {
    removed += v.a[item(t)];
  }
  removed = team.sum(removed);
  int flip_label = first_wins ? y : f.bias_label;
  if (!first_wins && event >= 0) {
    bool survives = saved_mass > 0;
    for (int t = saved_base + team.rank; t <= event; t += team.size) {
      survives = survives || v.a[item(t)] > 0;
    }
    if (team.any(survives)) {
      class_sums(team, v, event + 1 - saved_base, after, [&](int j, int c) {
        const int i = item(saved_base + j);
        return v.a[i] * v.difference(i, y, c);
      });
      double min_sum = HUGE_VAL;
      flip_label = C;
#pragma unroll 1
      for (int c = 0; c < C; ++c) {
        if (c != y) take_smaller(min_sum, flip_label, saved[c] + after[c], c);
      }
    }
  }
  if (team.leads()) {
    if (event >= -1) {
      const std::int64_t at = (v.launch.row0 + part.state.loop.row) * p.B + v.b;
      write_int(p.first_flip, at, first_wins ? event + 1 : n - 1 - event);
      write_int(p.flip_label, at, flip_label);
      if (p.removed_mass != nullptr) p.removed_mass[at] = removed;
    } else {
      write_never(v.launch, part.state.loop.row, v.b);
    }
  }
}

enum class ScanMapping { kShort, kLong, kClassLanes };

// Chooses how the loop state's rankings are scanned. Instances in a block's shared memory hardly
// outgrow 2,048 ranks.
template <bool kWarp, typename S, typename Idx>
FAE_NOINLINE __device__ ScanMapping choose_mapping() {
  const PartView<kWarp, S, Idx> part = part_view<kWarp, S, Idx>();
  const Facts& f = part.facts;
  if (!f.finite || !f.has_mass || f.underflow || part.view.launch.needs.curves) {
    return ScanMapping::kClassLanes;
  }
  const int chunk = scan_chunk(part.view.n, scan_threads(part.team.size, part.state.loop.count));
  return chunk <= kMostRanks ? ScanMapping::kShort
         : sizeof(Idx) == 4  ? ScanMapping::kLong
                             : ScanMapping::kClassLanes;
}

// Scans the loop state's rankings.
template <bool kWarp, typename S, typename Idx>
FAE_DEV void scan_rankings() {
  const ScanMapping mapping = choose_mapping<kWarp, S, Idx>();
  if (mapping == ScanMapping::kShort) {
    scan_short<kWarp, S, Idx>();
    return;
  }
  if constexpr (sizeof(Idx) == 4) {
    if (mapping == ScanMapping::kLong) {
      scan_long<S>();
      return;
    }
  }
  if (part_view<kWarp, S, Idx>().view.C <= 32) {
    scan_classes<kWarp, true, S, Idx>();
  } else {
    scan_classes<kWarp, false, S, Idx>();
  }
}

}  // namespace fae
