// A smallest set of items that alone gives the label.
//
// One item does where all its margins win; the one whose least margin is largest is taken. Where
// none does, with more than two classes, every pair is tried up to kPairs items, and beyond two the
// set is built greedily: a prefix of the items by a min_c m, or, where that is smaller, at each
// step the item that leaves the largest least sum; then what the set can spare is taken out. What
// was tried in full is the lower bound.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/exact/exact.h"
#include "cpu/exact/share.h"

namespace fae::cpu {
namespace {

constexpr std::int64_t kPairs = 2048;  // items up to which every pair is tried
constexpr std::int64_t kSteps = 256;   // of the greedy search

struct Memory {
  std::int64_t* own;     // [n] items with weight
  std::int64_t* ranked;  // [n] those by a min_c m
  double* key;           // [n] by item
  std::int64_t* chosen;  // [n] the set
  unsigned char* taken;  // [n]
  double* sum;           // [K + 1] of the set, its mass last
  double* trial;         // [K + 1]
};

Memory lay_out(const SufficientParams& p, std::int64_t n, Scratch& scratch) {
  Memory w{};
  w.own = scratch.take<std::int64_t>(n);
  w.ranked = scratch.take<std::int64_t>(n);
  w.key = scratch.take<double>(n);
  w.chosen = scratch.take<std::int64_t>(n);
  w.taken = scratch.take<unsigned char>(n);
  w.sum = scratch.take<double>(p.K + 1);
  w.trial = scratch.take<double>(p.K + 1);
  return w;
}

std::int64_t bytes_of(const SufficientParams& p) {
  Scratch scratch(nullptr);
  lay_out(p, longest_instance(p), scratch);
  return scratch.used();
}

// One instance's part of the arguments.
struct View {
  std::int64_t n, K;
  const double* a;           // [n]
  const double* margin;      // [n, K]
  const std::int64_t* wins;  // [K]

  bool wins_all(const double* sums) const {
    for (std::int64_t k = 0; k < K; ++k) {
      if (wins[k] != 0 ? !(sums[k] > 0) : !(sums[k] >= 0)) return false;
    }
    return true;
  }
  void add(const double* from, std::int64_t i, double* to) const {
    for (std::int64_t k = 0; k < K; ++k) to[k] = from[k] + a[i] * margin[i * K + k];
    to[K] = from[K] + a[i];
  }
  double least(const double* sums) const {
    double least = std::numeric_limits<double>::infinity();
    for (std::int64_t k = 0; k < K; ++k) least = std::min(least, sums[k]);
    return least;
  }
};

struct Found {
  std::int64_t size, lower;
  bool near;
};

// Sums the chosen items, in the order in which they stand, but one.
void sum_of(const View& v, const std::int64_t* chosen, std::int64_t size, std::int64_t without,
            double* sum) {
  std::fill(sum, sum + v.K + 1, 0.0);
  for (std::int64_t j = 0; j < size; ++j) {
    if (j != without) v.add(sum, chosen[j], sum);
  }
}

// The size of a set of several items, left in w.chosen.
std::int64_t cover(const View& v, const Memory& w, std::int64_t m) {
  std::copy(w.own, w.own + m, w.ranked);
  std::sort(w.ranked, w.ranked + m, [&](std::int64_t x, std::int64_t y) {
    return w.key[x] != w.key[y] ? w.key[x] > w.key[y] : x < y;
  });
  std::fill(w.sum, w.sum + v.K + 1, 0.0);
  std::int64_t size = 0;
  while (size < m) {
    v.add(w.sum, w.ranked[size++], w.sum);
    if (v.wins_all(w.sum)) break;
  }
  std::copy(w.ranked, w.ranked + size, w.chosen);
  std::fill(w.taken, w.taken + v.n, 0);
  std::fill(w.sum, w.sum + v.K + 1, 0.0);
  std::int64_t* const steps = w.ranked;  // no longer needed
  for (std::int64_t step = 0; step < std::min(size - 1, kSteps); ++step) {
    std::int64_t best = -1;
    double most = -std::numeric_limits<double>::infinity();
    for (std::int64_t j = 0; j < m; ++j) {
      const std::int64_t i = w.own[j];
      if (w.taken[i] != 0) continue;
      v.add(w.sum, i, w.trial);
      const double least = v.least(w.trial);
      if (best < 0 || least > most) {
        most = least;
        best = i;
      }
    }
    w.taken[best] = 1;
    v.add(w.sum, best, w.sum);
    steps[step] = best;
    if (!v.wins_all(w.sum)) continue;
    size = step + 1;
    std::copy(steps, steps + size, w.chosen);
  }
  if (size <= kSteps) {
    for (std::int64_t j = size - 1; j >= 0 && size > 1; --j) {
      sum_of(v, w.chosen, size, j, w.trial);
      if (!v.wins_all(w.trial)) continue;
      std::copy(w.chosen + j + 1, w.chosen + size, w.chosen + j);
      --size;
    }
  }
  return size;
}

// Tries every pair; the one with the largest least mean is left in w.chosen.
bool try_pairs(const View& v, const Memory& w, std::int64_t m) {
  double most = -std::numeric_limits<double>::infinity();
  bool found = false;
  for (std::int64_t x = 0; x < m; ++x) {
    std::fill(w.sum, w.sum + v.K + 1, 0.0);
    v.add(w.sum, w.own[x], w.sum);
    for (std::int64_t y = x + 1; y < m; ++y) {
      v.add(w.sum, w.own[y], w.trial);
      if (!v.wins_all(w.trial)) continue;
      const double mean = v.least(w.trial) / w.trial[v.K];
      if (found && !(mean > most)) continue;
      found = true;
      most = mean;
      w.chosen[0] = w.own[x];
      w.chosen[1] = w.own[y];
    }
  }
  return found;
}

Found search(const View& v, const Memory& w, double tolerance) {
  std::int64_t m = 0, best = -1;
  double most = -std::numeric_limits<double>::infinity(), nearest = 0;
  for (std::int64_t i = 0; i < v.n; ++i) {
    if (!(v.a[i] > 0)) continue;
    w.own[m++] = i;
    const double least = v.least(v.margin + i * v.K);
    w.key[i] = v.a[i] * least;
    if (m == 1 || least > nearest) nearest = least;
    if (!v.wins_all(v.margin + i * v.K)) continue;
    if (best < 0 || least > most) {
      most = least;
      best = i;
    }
  }
  const bool near_single = std::abs(nearest) < tolerance;
  if (best >= 0) {
    w.chosen[0] = best;
    return {1, 1, near_single};
  }
  if (m < 2) return {-1, -1, near_single};
  const bool all_pairs = v.K > 1 && m <= kPairs;
  std::int64_t size = 2;
  if (!all_pairs || !try_pairs(v, w, m)) {
    size = cover(v, w, m);
    sum_of(v, w.chosen, size, -1, w.sum);
    if (!v.wins_all(w.sum)) return {-1, -1, true};  // the whole is a tie
  }
  sum_of(v, w.chosen, size, -1, w.sum);
  const bool near = near_single || std::abs(v.least(w.sum)) < tolerance * w.sum[v.K];
  return {size, size == 2 ? 2 : all_pairs ? 3 : 2, near};
}

void sufficient_instance(const SufficientParams& p, std::int64_t b, char* memory) {
  const std::int64_t first = p.offsets[b], n = p.offsets[b + 1] - first;
  Scratch scratch(memory);
  const Memory w = lay_out(p, n, scratch);
  Found found{-1, -1, false};
  std::fill(w.taken, w.taken + n, 0);
  if ((p.status[b] & kUnanswered) == 0 && n > 0 && p.K > 0) {
    const View v{n, p.K, p.weights + first, p.margins + first * p.K, p.wins + b * p.K};
    found = search(v, w, p.tolerance[b]);
  }
  p.size[b] = found.size;
  p.least[b] = found.lower;
  p.near[b] = found.near ? 1 : 0;
  std::fill(w.taken, w.taken + n, 0);
  std::int64_t at = first;
  for (std::int64_t j = 0; j < found.size; ++j) {
    p.order[at++] = w.chosen[j];
    w.taken[w.chosen[j]] = 1;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    if (w.taken[i] == 0) p.order[at++] = i;
  }
}

}  // namespace

std::int64_t sufficient_workspace_bytes(const SufficientParams& p) {
  return threads_of(p) * bytes_of(p) + kLine;
}

void sufficient(const SufficientParams& p) {
  for_each_instance(p, bytes_of(p),
                    [&](std::int64_t b, char* memory) { sufficient_instance(p, b, memory); });
}

}  // namespace fae::cpu
