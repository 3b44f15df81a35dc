// Ranking keys of the built-in rankings, and orders from keys.
//
//   gradient               g_i = p_y sum_{c != y} p_c (s_{i,y} - s_{i,c})
//   product                a_i g_i
//   renormalized_gradient  a_i (g_i - mean of g over the others, weighted by a)
//   greedy                 at each step the item whose erasure leaves the smallest margin; of more
//                          than kLongGreedy items on hulls (exact/greedy.cpp)
//
// Keys are float64 and rank descending, NaN first, ties by position.
#pragma once

#include "cpu/exact/exact.h"
#include "cpu/excluded.h"
#include "cpu/scan.h"

namespace fae::cpu {
namespace {

struct Work {
  SortBuffers sort;
  std::uint32_t* order;  // [n]
  double* keys;          // [n]
  double* tail;          // [3, n]
  Judging judging;
  Excluded excluded;
  double* margins;  // [n + 1, C - 1] of a long greedy order, the biases' last
  char* hulls;
};

// Longer instances are ordered greedily on hulls, in less than quadratic time.
constexpr std::int64_t kLongGreedy = 1024;

inline bool greedy_on_hulls(const SweepParams& p, std::int64_t n) {
  bool wanted = false;
  for (std::int64_t r = 0; r < p.R; ++r) wanted = wanted || p.rankings[r] == kGreedy;
  return wanted && p.H == 1 && p.C > 1 && n > kLongGreedy;
}

inline Work lay_out_work(const SweepParams& p, std::int64_t n, Arena& arena) {
  Work w{};
  for (int k = 0; k < 2; ++k) {
    w.sort.keys[k] = arena.take<std::uint64_t>(n);
    w.sort.positions[k] = arena.take<std::uint32_t>(n);
  }
  w.order = arena.take<std::uint32_t>(n);
  w.keys = arena.take<double>(n);
  w.tail = arena.take<double>(3 * n);
  w.judging = lay_out_judging(p, arena);
  w.excluded = lay_out_excluded(p, n, arena);
  const bool hulls = greedy_on_hulls(p, n);
  w.margins = arena.take<double>(hulls ? (n + 1) * (p.C - 1) : 0);
  w.hulls = arena.take<char>(hulls ? greedy_items_bytes(n, p.C - 1) : 0);
  return w;
}

// The gradient of one head's weight, from the item's row.
inline double gradient_of_head(const SweepParams& p, const Instance& I, std::int64_t i,
                               std::int64_t h) {
  const double* s = I.rows + (i * p.H + h) * p.C;
  double sum = 0;
  for (std::int64_t c = 0; c < p.C; ++c) sum += I.probability[c] * (s[I.label] - s[c]);
  return I.probability[I.label] * sum;
}

inline void gradient_keys(const SweepParams& p, Instance& I) {
  const std::int64_t n = I.n;
  if (I.label < 0) {
    for (std::int64_t i = 0; i < n; ++i) I.gradient[i] = kNan;
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    double g = 0;
    for (std::int64_t h = 0; h < p.H; ++h) g += gradient_of_head(p, I, i, h);
    I.gradient[i] = g;
  }
}

// The gradient of one head's weight, where gradient_keys has been called.
inline double head_gradient(const SweepParams& p, const Instance& I, std::int64_t i,
                            std::int64_t h) {
  return p.H == 1 ? I.gradient[i] : gradient_of_head(p, I, i, h);
}

inline void product_keys(const SweepParams& p, const Instance& I, double* keys) {
  for (std::int64_t i = 0; i < I.n; ++i) {
    keys[i] = I.label < 0 ? kNan : 0.0;
    if (I.label < 0) continue;
    for (std::int64_t h = 0; h < p.H; ++h) {
      keys[i] += I.a[i * p.H + h] * head_gradient(p, I, i, h);
    }
  }
}

// Mass and weighted gradient of a set of items, relative to the set's largest score where scores
// span too much.
struct Mean {
  double mass = 0, sum = 0, high = -kInf;
};

inline Mean merge(const Mean& x, const Mean& y) {
  if (x.high == y.high) return {x.mass + y.mass, x.sum + y.sum, x.high};
  const double high = x.high > y.high ? x.high : y.high;
  const double x_scale = exp(x.high - high);
  const double y_scale = exp(y.high - high);
  return {x.mass * x_scale + y.mass * y_scale, x.sum * x_scale + y.sum * y_scale, high};
}

inline void renormalized_keys(const SweepParams& p, const Instance& I, Work& w) {
  const std::int64_t n = I.n;
  for (std::int64_t i = 0; i < n; ++i) w.keys[i] = I.label < 0 ? kNan : 0.0;
  if (I.label < 0) return;
  double* mass = w.tail;
  double* sum = w.tail + n;
  double* high = w.tail + 2 * n;
  for (std::int64_t h = 0; h < p.H; ++h) {
    const auto single = [&](std::int64_t i) -> Mean {
      const double g = head_gradient(p, I, i, h);
      const double a = I.a[i * p.H + h];
      if (!I.underflow) return {a, a * g, -kInf};
      const double e = I.e[i * p.H + h];
      if (e == -kInf) return {};
      return {1, g, e};
    };
    Mean after;
    for (std::int64_t i = n - 1; i >= 0; --i) {
      mass[i] = after.mass;
      sum[i] = after.sum;
      high[i] = after.high;
      after = merge(single(i), after);
    }
    Mean before;
    for (std::int64_t i = 0; i < n; ++i) {
      const Mean others = merge(before, {mass[i], sum[i], high[i]});
      const double mean = others.mass > 0 ? others.sum / others.mass : 0.0;
      w.keys[i] += I.a[i * p.H + h] * (head_gradient(p, I, i, h) - mean);
      before = merge(before, single(i));
    }
  }
}

inline void attention_keys(const SweepParams& p, const Instance& I, double* keys) {
  if (p.H == 1) {  // as given, since weights may underflow to ties
    load_elements(p.attention, p.attention_dtype, I.first * p.attention_stride_t,
                  p.attention_stride_t, I.n, keys);
    return;
  }
  for (std::int64_t i = 0; i < I.n; ++i) {
    keys[i] = (I.bad[i] & kBadAttention) != 0 ? kNan : I.mass[i];
  }
}

// The caller's order into w.order, or the caller's scores into w.keys.
inline Error given_keys(const SweepParams& p, const Instance& I, std::int64_t r, Work& w) {
  const std::int64_t n = I.n;
  const std::int64_t row = p.ranking_args[r];
  if (p.rankings[r] == kGivenKeys) {
    load_elements(p.keys[row], p.keys_dtype[row], I.first, 1, n, w.keys);
    for (std::int64_t i = 0; i < n; ++i) {
      if (w.keys[i] != w.keys[i]) return {Fault::kNanKey, I.index, i, row, w.keys[i]};
    }
    return {};
  }
  const std::int64_t* given = p.orders[row] + I.first;
  unsigned char* seen = reinterpret_cast<unsigned char*>(w.keys);
  memset(seen, 0, n);
  for (std::int64_t i = 0; i < n; ++i) {
    if (given[i] < 0 || given[i] >= n || seen[given[i]] != 0) {
      return {Fault::kNotPermutation, I.index, i, row, static_cast<double>(given[i])};
    }
    seen[given[i]] = 1;
    w.order[i] = static_cast<std::uint32_t>(given[i]);
  }
  return {};
}

inline void write_order(const Instance& I, const std::uint32_t* order, std::int64_t* to) {
  for (std::int64_t i = 0; i < I.n; ++i) to[I.first + i] = order[i];
}

// order = stable argsort of `keys`, descending.
inline void order_by(const double* keys, std::int64_t n, SortBuffers sort, std::uint32_t* order) {
  for (std::int64_t i = 0; i < n; ++i) sort.keys[0][i] = ~ordered_bits(keys[i]);
  sort_keys(sort, n);
  memcpy(order, sort.positions[0], n * sizeof *order);
}

// Greedy removal on hulls, where all sums are of margins as they stand.
inline void long_greedy_order(const SweepParams& p, const Instance& I, Work& w) {
  double* to = w.margins;
  for (std::int64_t i = 0; i <= I.n; ++i) {
    const double* s = I.rows + i * p.C;
    for (std::int64_t c = 0; c < p.C; ++c) {
      if (c == I.label) continue;
      const double bias = I.bias[I.label] - I.bias[c];
      *to++ = i == I.n ? bias : (s[I.label] + I.bias[I.label]) - (s[c] + I.bias[c]);
    }
  }
  greedy_items(I.a, w.margins, to - (p.C - 1), I.n, p.C - 1, w.order, w.hulls);
}

inline void greedy_order(const SweepParams& p, const Instance& I, Work& w) {
  by_position(I.n, w.order);
  if (I.label < 0) return;
  if (greedy_on_hulls(p, I.n) && !I.underflow) {
    long_greedy_order(p, I, w);
    return;
  }
  const StateShape shape = state_shape(p, I);
  // w.sort.positions[0] holds the items that are left, in position order.
  std::uint32_t* left = w.sort.positions[0];
  by_position(I.n, left);
  Judging& j = w.judging;
  for (std::int64_t step = 0; step < I.n; ++step) {
    const std::int64_t m = I.n - step;
    std::int64_t best = 0;
    double least = kInf;
    for_each_excluded(shape, I, w.excluded, left, m, [&](std::int64_t at, const double* sums) {
      state_logits(shape, I, sums, j.logits, j.relative);
      double margin = kInf;
      for (std::int64_t c = 0; c < p.C; ++c) {
        if (c != I.label && -j.relative[c] < margin) margin = -j.relative[c];
      }
      if (margin < least) {
        least = margin;
        best = at;
      }
    });
    w.order[step] = left[best];
    memmove(left + best, left + best + 1, (m - 1 - best) * sizeof *left);
  }
}

}  // namespace
}  // namespace fae::cpu
