// The least and the largest output over all sets of s kept items, for every s that is asked for.
//
// Largest v(S) = sum a m / sum a over |S| = s (Dinkelbach): from a lower bound l take the s items
// with the largest a (m - l); where their v exceeds l it is the next bound, else l is the answer.
// Exact, and finite. A set of fewer items reaches at least as far, so that the answer of a point is
// a bound for those with fewer items: two or three selections each. The least is the largest of -m.
//
// Points are answered halfway between answered ones. Between the answers l and l' of s and of fewer
// items s' keys fall and the s-th largest lies between the s-th at l' and the s'-th at l: an item
// whose key at l' is beyond the latter is in every set, one whose key at l is below the former in
// none. What is left are some times s - s' items, so that all points together take n log n steps.
//
// A selection finds the s-th largest key between two keys of a sample, one pass and a short list
// instead of three or four; where the sample misleads, over all keys.
//
// Ladder, 100,000 items, 100 points, both ends (one thread, ms): points one after the other, each
// over all items, from the answer of the one before 700; first at what the two before suggest 355;
// halfway between answered ones 105.
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
constexpr std::int64_t kTogether = 8;   // numbers that are summed beside each other
constexpr std::int64_t kFewItems = 64;  // which are not told apart beforehand

struct Memory {
  double* keys;  // [n]
  double* some;  // [n] candidates of a selection
  // Of the items, which change their places.
  double* m;              // [n] one output, its sign turned for the least
  double* a;              // [n] weights
  double* sample;         // [kSample]
  std::int64_t* by_kept;  // [points] of the instance, most kept first
  double* sums;           // [K + 1]
};

Memory lay_out(const EnvelopeParams& p, std::int64_t n, std::int64_t points, Scratch& scratch) {
  Memory w{};
  w.keys = scratch.take<double>(n);
  w.some = scratch.take<double>(n);
  w.m = scratch.take<double>(n);
  w.a = scratch.take<double>(n);
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
  const std::int64_t size = std::min(kSample, n / 16);
  if (size >= 64) {
    for (std::int64_t j = 0; j < size; ++j) w.sample[j] = w.keys[j * n / size];
    const auto margin = static_cast<std::int64_t>(1.5 * std::sqrt(size));  // three deviations
    const std::int64_t rank = (s - 1) * size / n, before = rank - margin, behind = rank + margin;
    double high = std::numeric_limits<double>::infinity(), low = -high;
    double* rest = w.sample;
    if (before >= 0) {
      std::nth_element(rest, rest + before, w.sample + size, descending);
      rest += before;
      high = *rest;
    }
    if (behind < size) {
      std::nth_element(rest, w.sample + behind, w.sample + size, descending);
      low = w.sample[behind];
    }
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

double key_at(double a, double m, const Value& bound) { return a * ((m - bound.own) - bound.more); }

// Of a set: the output and the weight of its heaviest item, sums of a (m - own) and of a.
struct Sums {
  double own = 0, top = 0, differences = 0, mass = 0;
};

// Adds n items to a set, of weights up to `top`.
Sums with_weights(const double* a, const double* m, std::int64_t n, double top, Sums sums) {
  if (top > sums.top) {
    std::int64_t at = 0;
    while (a[at] != top) ++at;
    sums.differences += sums.mass * (sums.own - m[at]);
    sums.own = m[at];
    sums.top = top;
  }
  double differences[kTogether] = {sums.differences}, mass[kTogether] = {sums.mass};
  std::int64_t i = 0;
  for (; i + kTogether <= n; i += kTogether) {
    for (std::int64_t l = 0; l < kTogether; ++l) {
      differences[l] += a[i + l] * (m[i + l] - sums.own);
      mass[l] += a[i + l];
    }
  }
  for (std::int64_t l = 0; i < n; ++i, ++l) {
    differences[l] += a[i] * (m[i] - sums.own);
    mass[l] += a[i];
  }
  sums.differences = std::accumulate(differences, differences + kTogether, 0.0);
  sums.mass = std::accumulate(mass, mass + kTogether, 0.0);
  return sums;
}

// Items between `begin` and `end`, which a set may hold, and those that every set holds.
struct Items {
  std::int64_t begin, end;
  std::int64_t count = 0;  // held by every set
  Sums held;
};

// The s-th largest key, of which the items that every set holds have the first ones.
double threshold(const Memory& w, const Items& items, std::int64_t s, const Value& bound) {
  const std::int64_t n = items.end - items.begin;
  const double *a = w.a + items.begin, *m = w.m + items.begin;
  for (std::int64_t i = 0; i < n; ++i) w.keys[i] = key_at(a[i], m[i], bound);
  return nth_largest(w, n, std::clamp<std::int64_t>(s - items.count, 1, n));
}

// v of the s items with the largest a (m - bound), of equal ones the first.
Value value_beyond(const Memory& w, const Items& items, std::int64_t s, const Value& bound) {
  const std::int64_t n = items.end - items.begin, wanted = s - items.count;
  const double *a = w.a + items.begin, *m = w.m + items.begin;
  const double least = threshold(w, items, s, bound);
  // Items of the set keep their weight in w.some, others have none.
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
  for (std::int64_t i = 0; i < n && taken < wanted; ++i) {
    if (w.keys[i] != least) continue;
    ++taken;
    w.some[i] = a[i];
    heaviest = std::max(heaviest, a[i]);
  }
  Value value;
  if (heaviest == 0 && items.held.top == 0) return value;
  const Sums sums = with_weights(w.some, m, n, heaviest, items.held);
  value.own = sums.own;
  value.more = sums.differences / sums.mass;
  value.mass = true;
  return value;
}

struct Answer {
  std::int64_t kept;
  Value value;
};

// Tells apart what every set between two answers holds and what none of them does.
Items narrow(const Memory& w, Items items, const Answer& more, const Answer& fewer) {
  const double high = threshold(w, items, fewer.kept, more.value);
  const double low = threshold(w, items, more.kept, fewer.value);
  const auto exchange = [&](std::int64_t i, std::int64_t j) {
    std::swap(w.a[i], w.a[j]);
    std::swap(w.m[i], w.m[j]);
  };
  const std::int64_t begin = items.begin;
  double top = 0;
  for (std::int64_t i = items.begin; i < items.end;) {
    if (key_at(w.a[i], w.m[i], fewer.value) > high) {
      top = std::max(top, w.a[i]);
      exchange(i++, items.begin++);
    } else if (key_at(w.a[i], w.m[i], more.value) < low) {
      exchange(i, --items.end);
    } else {
      ++i;
    }
  }
  const std::int64_t more_held = items.begin - begin;
  items.count += more_held;
  items.held = with_weights(w.a + begin, w.m + begin, more_held, top, items.held);
  return items;
}

// The largest output of s items, from a bound and from a guess that may be beyond it.
Value largest_output(const Memory& w, const Items& items, std::int64_t s, Value bound,
                     const Value& guess) {
  const auto exceeds = [&](const Value& next) {
    return next.mass && (next.own - bound.own) + next.more > bound.more;
  };
  const Value first = value_beyond(w, items, s, guess);
  if (exceeds(first)) bound = first;
  for (int round = 0; round < kRounds; ++round) {
    const Value next = value_beyond(w, items, s, bound);
    if (!exceeds(next)) break;
    bound = next;
  }
  return bound;
}

// Answers points [from, to) between two answers, by falling numbers of kept items; use(j, value).
template <class Kept, class Use>
void answer_between(const Memory& w, Items items, std::int64_t from, std::int64_t to,
                    const Answer& more, const Answer& fewer, Kept kept, Use use) {
  if (from == to) return;
  const std::int64_t span = more.kept - fewer.kept, n = items.end - items.begin;
  if (n > kFewItems && 2 * span < n) items = narrow(w, items, more, fewer);
  const std::int64_t middle = from + (to - from) / 2;
  Answer answer{kept(middle), more.value};
  const double share =
      span == 0 ? 0.0 : static_cast<double>(more.kept - answer.kept) / static_cast<double>(span);
  Value guess = more.value;
  guess.more += share * ((fewer.value.own - more.value.own) + (fewer.value.more - more.value.more));
  if (items.begin < items.end) {
    answer.value = largest_output(w, items, answer.kept, more.value, guess);
  }
  use(middle, answer.value);
  answer_between(w, items, from, middle, more, answer, kept, use);
  answer_between(w, items, middle + 1, to, answer, fewer, kept, use);
}

// Output k of an instance at all its points; `sign` -1 finds the least.
void bound_output(const EnvelopeParams& p, std::int64_t b, std::int64_t k, double sign,
                  const Memory& w, double* to) {
  const std::int64_t first = p.offsets[b], n = p.offsets[b + 1] - first;
  const std::int64_t begin = p.point_offsets[b], points = p.point_offsets[b + 1] - begin;
  const double empty = sign * p.empty[b * p.K + k];
  std::int64_t massless = 0;
  Value bound;
  bound.own = std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < n; ++i) {
    w.a[i] = p.weights[first + i];
    w.m[i] = sign * p.outputs[(first + i) * p.K + k];
    if (w.a[i] > 0) {
      bound.own = std::min(bound.own, w.m[i]);
    } else {
      ++massless;
    }
  }
  const auto kept = [&](std::int64_t j) { return p.kept[begin + w.by_kept[j]]; };
  std::int64_t some = massless == n ? 0 : points;  // points that keep items with weight
  while (some > 0 && kept(some - 1) == 0) --some;
  for (std::int64_t j = some; j < points; ++j) {
    to[(begin + w.by_kept[j]) * p.K + k] = sign * empty;
  }
  if (some == 0) return;
  const auto use = [&](std::int64_t j, const Value& value) {
    // A set of items without weight is as good as none.
    const double best = kept(j) <= massless ? std::max(value.sum(), empty) : value.sum();
    to[(begin + w.by_kept[j]) * p.K + k] = sign * best;
  };
  const Items all{0, n, 0, {}};
  const Answer most{kept(0), largest_output(w, all, kept(0), bound, bound)};
  use(0, most.value);
  if (some == 1) return;
  const std::int64_t least = kept(some - 1);
  const Answer fewest{least, largest_output(w, all, least, most.value, most.value)};
  use(some - 1, fewest.value);
  answer_between(w, all, 1, some - 1, most, fewest, kept, use);
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
