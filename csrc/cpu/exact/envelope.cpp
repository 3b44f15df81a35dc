// The least and the largest output over all sets of s kept items, for every s that is asked for.
//
// Largest v(S) = sum a m / sum a over |S| = s (Dinkelbach): from a lower bound l take the s items
// with the largest a (m - l); where their v exceeds l it is the next bound, else l is the answer.
// Exact, and finite. A set of fewer items reaches at least as far, so that the answer for the
// larger s is where the smaller one begins: about two selections each. The least is the largest of
// -m.
//
// A selection finds the s-th largest key between two keys of a sorted sample, one pass and a short
// list instead of three or four; where the sample misleads, over all keys.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "cpu/exact/exact.h"
#include "cpu/exact/share.h"

namespace fae::cpu {
namespace {

constexpr int kRounds = 100;  // of refining a bound; two or three are usual
constexpr std::int64_t kSample = 1024;
constexpr std::int64_t kMargin = 48;  // sample ranks on each side, three deviations and more

struct Memory {
  double* keys;           // [n]
  double* some;           // [n] candidates of a selection
  double* m;              // [n] one output, its sign turned for the least
  double* sample;         // [kSample]
  std::int64_t* by_kept;  // [points] of the instance, most kept first
  double* sums;           // [K + 1]
};

Memory lay_out(const EnvelopeParams& p, std::int64_t n, std::int64_t points, Scratch& scratch) {
  Memory w{};
  w.keys = scratch.take<double>(n);
  w.some = scratch.take<double>(n);
  w.m = scratch.take<double>(n);
  w.sample = scratch.take<double>(kSample);
  w.by_kept = scratch.take<std::int64_t>(points);
  w.sums = scratch.take<double>(p.K + 1);
  return w;
}

std::int64_t bytes_of(const EnvelopeParams& p) {
  std::int64_t points = 0;
  for (std::int64_t b = 0; b < p.B; ++b) {
    points = std::max(points, p.point_offsets[b + 1] - p.point_offsets[b]);
  }
  Scratch scratch(nullptr);
  lay_out(p, longest_instance(p), points, scratch);
  return scratch.used();
}

// The s-th largest of n keys, 1 <= s <= n.
double nth_largest(const Memory& w, std::int64_t n, std::int64_t s) {
  const auto descending = [](double x, double y) { return x > y; };
  if (n >= 4 * kSample) {
    for (std::int64_t j = 0; j < kSample; ++j) w.sample[j] = w.keys[j * n / kSample];
    std::sort(w.sample, w.sample + kSample, descending);
    const std::int64_t rank = (s - 1) * kSample / n;
    const double inf = std::numeric_limits<double>::infinity();
    const double high = rank < kMargin ? inf : w.sample[rank - kMargin];
    const double low = rank + kMargin >= kSample ? -inf : w.sample[rank + kMargin];
    std::int64_t above = 0, count = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const double key = w.keys[i];
      above += key > high;
      w.some[count] = key;
      count += key <= high && key >= low;
    }
    if (above < s && s <= above + count) {
      std::nth_element(w.some, w.some + (s - above - 1), w.some + count, descending);
      return w.some[s - above - 1];
    }
  }
  std::memcpy(w.some, w.keys, n * sizeof *w.keys);
  std::nth_element(w.some, w.some + (s - 1), w.some + n, descending);
  return w.some[s - 1];
}

// An output as that of one item and a difference: beside a heavy item what light ones add is lost.
struct Value {
  double own = 0, more = 0;
  bool mass = false;
  double sum() const { return own + more; }
};

// v of the s items with the largest a (m - bound), of equal ones the first.
Value value_beyond(const Memory& w, const double* a, std::int64_t n, std::int64_t s,
                   const Value& bound) {
  for (std::int64_t i = 0; i < n; ++i) w.keys[i] = a[i] * ((w.m[i] - bound.own) - bound.more);
  const double least = nth_largest(w, n, s);
  // Items of the set keep their weight in w.some, others have none.
  constexpr std::int64_t kTogether = 8;
  double counts[kTogether] = {}, tops[kTogether] = {};
  std::int64_t j = 0;
  for (; j + kTogether <= n; j += kTogether) {
    for (std::int64_t l = 0; l < kTogether; ++l) {
      const double own = w.keys[j + l] > least ? 1.0 : 0.0;
      const double weight = own * a[j + l];
      counts[l] += own;
      tops[l] = weight > tops[l] ? weight : tops[l];
      w.some[j + l] = weight;
    }
  }
  double heaviest = 0, count = 0;
  for (std::int64_t l = 0; l < kTogether; ++l) {
    heaviest = std::max(heaviest, tops[l]);
    count += counts[l];
  }
  std::int64_t taken = static_cast<std::int64_t>(count);
  for (; j < n; ++j) {
    const bool own = w.keys[j] > least;
    taken += own;
    w.some[j] = own ? a[j] : 0.0;
    heaviest = std::max(heaviest, w.some[j]);
  }
  for (std::int64_t i = 0; i < n && taken < s; ++i) {
    if (w.keys[i] != least) continue;
    ++taken;
    w.some[i] = a[i];
    heaviest = std::max(heaviest, a[i]);
  }
  Value value;
  if (heaviest == 0) return value;
  std::int64_t at = 0;
  while (w.some[at] != heaviest) ++at;
  value.own = w.m[at];
  value.mass = true;
  double sum[4] = {}, mass[4] = {};
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int l = 0; l < 4; ++l) {
      sum[l] += w.some[i + l] * (w.m[i + l] - value.own);
      mass[l] += w.some[i + l];
    }
  }
  for (; i < n; ++i) {
    sum[0] += w.some[i] * (w.m[i] - value.own);
    mass[0] += w.some[i];
  }
  value.more =
      ((sum[0] + sum[1]) + (sum[2] + sum[3])) / ((mass[0] + mass[1]) + (mass[2] + mass[3]));
  return value;
}

// Output k of an instance at all its points; `sign` -1 finds the least.
void bound_output(const EnvelopeParams& p, std::int64_t b, std::int64_t k, double sign,
                  const Memory& w, double* to) {
  const std::int64_t first = p.offsets[b], n = p.offsets[b + 1] - first;
  const std::int64_t begin = p.point_offsets[b], points = p.point_offsets[b + 1] - begin;
  const double* a = p.weights + first;
  const double empty = sign * p.empty[b * p.K + k];
  std::int64_t massless = 0;
  Value bound, last, before;  // the best so far, and the answers of two points
  std::int64_t kept_last = 0, kept_before = 0;
  bound.own = std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < n; ++i) {
    w.m[i] = sign * p.outputs[(first + i) * p.K + k];
    if (a[i] > 0) {
      bound.own = std::min(bound.own, w.m[i]);
    } else {
      ++massless;
    }
  }
  for (std::int64_t j = 0; j < points; ++j) {
    const std::int64_t at = begin + w.by_kept[j], s = p.kept[at];
    if (s == 0 || massless == n) {
      to[at * p.K + k] = sign * empty;
      continue;
    }
    // The first selection is at what the points before suggest; any set's output is a bound.
    if (before.mass && kept_before > kept_last) {
      const double share =
          static_cast<double>(kept_last - s) / static_cast<double>(kept_before - kept_last);
      Value guess = bound;
      guess.more += share * ((bound.own - before.own) + (bound.more - before.more));
      const Value next = value_beyond(w, a, n, s, guess);
      if (next.mass && (next.own - bound.own) + next.more > bound.more) bound = next;
    }
    for (int round = 0; round < kRounds; ++round) {
      const Value next = value_beyond(w, a, n, s, bound);
      if (!next.mass || !((next.own - bound.own) + next.more > bound.more)) break;
      bound = next;
    }
    before = last;
    last = bound;
    kept_before = kept_last;
    kept_last = s;
    // A set of items without weight is as good as none.
    to[at * p.K + k] = sign * (s <= massless ? std::max(bound.sum(), empty) : bound.sum());
  }
}

// The least output over K at all points of an order, sums running from its end.
void trace(const EnvelopeParams& p, std::int64_t b, std::int64_t r, const Memory& w) {
  const std::int64_t first = p.offsets[b], n = p.offsets[b + 1] - first, K = p.K;
  const std::int64_t begin = p.point_offsets[b], points = p.point_offsets[b + 1] - begin;
  const std::int64_t* order = p.orders + r * p.T + first;
  std::fill(w.sums, w.sums + K + 1, 0.0);
  std::int64_t kept = 0;
  for (std::int64_t j = points - 1; j >= 0; --j) {  // least kept first
    const std::int64_t at = begin + w.by_kept[j];
    for (; kept < p.kept[at]; ++kept) {
      const std::int64_t i = first + order[p.keep != 0 ? kept : n - 1 - kept];
      const double a = p.weights[i];
      for (std::int64_t k = 0; k < K; ++k) w.sums[k] += a == 0 ? 0 : a * p.outputs[i * K + k];
      w.sums[K] += a;
    }
    double least = std::numeric_limits<double>::infinity();
    for (std::int64_t k = 0; k < K; ++k) {
      const double v = w.sums[K] > 0 ? w.sums[k] / w.sums[K] : p.empty[b * K + k];
      least = std::min(least, v);
    }
    p.curves[r * p.P + at] = least;
  }
}

void envelope_instance(const EnvelopeParams& p, std::int64_t b, char* memory) {
  const std::int64_t n = p.offsets[b + 1] - p.offsets[b];
  const std::int64_t begin = p.point_offsets[b], points = p.point_offsets[b + 1] - begin;
  if ((p.status[b] & kUnanswered) != 0) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    std::fill(p.lower + begin * p.K, p.lower + (begin + points) * p.K, nan);
    std::fill(p.upper + begin * p.K, p.upper + (begin + points) * p.K, nan);
    for (std::int64_t r = 0; r < p.R; ++r) {
      std::fill_n(p.curves + r * p.P + begin, points, nan);
    }
    return;
  }
  Scratch scratch(memory);
  const Memory w = lay_out(p, n, points, scratch);
  std::iota(w.by_kept, w.by_kept + points, std::int64_t{0});
  std::sort(w.by_kept, w.by_kept + points, [&](std::int64_t x, std::int64_t y) {
    const std::int64_t kept_x = p.kept[begin + x], kept_y = p.kept[begin + y];
    return kept_x != kept_y ? kept_x > kept_y : x < y;
  });
  for (std::int64_t k = 0; k < p.K; ++k) {
    bound_output(p, b, k, 1, w, p.upper);
    bound_output(p, b, k, -1, w, p.lower);
  }
  for (std::int64_t r = 0; r < p.R; ++r) trace(p, b, r, w);
}

}  // namespace

std::int64_t envelope_workspace_bytes(const EnvelopeParams& p) {
  return threads_of(p) * bytes_of(p) + kLine;
}

void envelope(const EnvelopeParams& p) {
  for_each_instance(p, bytes_of(p),
                    [&](std::int64_t b, char* memory) { envelope_instance(p, b, memory); });
}

}  // namespace fae::cpu
