// The smallest set of items whose erasure changes the decision.
//
// For one class c != y, erasing the items of largest margin first is optimal, so that the size for
// c is the first k at which the tail sum of its sorted margins meets the rule of decisions with
// mass surviving; the answer is the least over c, or all items with mass where argmax(b) != y.
#pragma once

#include "cpu/rankings.h"

namespace fae::cpu {
namespace {

struct Minimal {
  std::int64_t size = -1, label = -1;
  bool near = false;
};

// The margin of item i against class c per unit of weight.
inline double difference(const Instance& I, std::int64_t C, std::int64_t i, std::int64_t c) {
  const double* s = I.rows + i * C;
  return (s[I.label] + I.bias[I.label]) - (s[c] + I.bias[c]);
}

// Sorts the items by margin against c, descending, those without mass last. Margins of an instance
// whose scores span too much are compared by sign, then by score + log|difference|.
inline void order_by_margin(const SweepParams& p, const Instance& I, std::int64_t c, Work& w,
                            std::uint32_t* order) {
  std::int64_t m = 0;
  SortBuffers& sort = w.sort;
  if (!I.underflow) {
    for (std::int64_t i = 0; i < I.n; ++i) {
      if (I.massless[i]) continue;
      sort.keys[0][m] = ~ordered_bits(I.a[i] * difference(I, p.C, i, c));
      sort.positions[0][m++] = static_cast<std::uint32_t>(i);
    }
    sort_pairs(sort, m);
    memcpy(order, sort.positions[0], m * sizeof *order);
  } else {
    for (int sign = 1; sign >= -1; --sign) {
      std::int64_t count = 0;
      for (std::int64_t i = 0; i < I.n; ++i) {
        const double d = difference(I, p.C, i, c);
        if (I.massless[i] || (d > 0) - (d < 0) != sign) continue;
        const double size = I.e[i] + log(d < 0 ? -d : d);
        sort.keys[0][count] = sign == 0 ? 0 : ~ordered_bits(sign * size);
        sort.positions[0][count++] = static_cast<std::uint32_t>(i);
      }
      sort_pairs(sort, count);
      memcpy(order + m, sort.positions[0], count * sizeof *order);
      m += count;
    }
  }
  for (std::int64_t i = 0; i < I.n; ++i) {
    if (I.massless[i]) order[m++] = static_cast<std::uint32_t>(i);
  }
}

struct Below {
  std::int64_t first;    // the first k at which c beats y with mass surviving; -1 if none
  std::int64_t nearest;  // the first k of a near-tie; -1 if none
};

// Erases the top k of `order`, sorted against c, for every k.
inline Below first_below(const Instance& I, std::int64_t C, std::int64_t c,
                         const std::uint32_t* order) {
  double sum = 0;
  double mass = 0;
  double high = -kInf;
  Below below{-1, -1};
  for (std::int64_t k = I.with_mass - 1; k >= 0; --k) {
    const std::int64_t i = order[k];
    double w = I.a[i];
    if (I.underflow) {
      const double e = I.e[i];
      if (e > high) {
        const double scale = exp(high - e);
        sum *= scale;
        mass *= scale;
        high = e;
      }
      w = exp(e - high);
    }
    sum += w * difference(I, C, i, c);
    mass += w;
    if (k > 0 && (sum < 0 || (sum == 0 && c < I.label))) below.first = k;
    if (sum < I.tolerance * mass && -sum < I.tolerance * mass) below.nearest = k;
  }
  return below;
}

// Leaves the ranking `minimal` in w.order.
inline Minimal minimal_set(const SweepParams& p, const Instance& I, Work& w) {
  Minimal result;
  if (I.label < 0) {
    by_position(I.n, w.order);
    return result;
  }
  const StateShape shape = state_shape(p, I);
  Judging& j = w.judging;
  std::int64_t winner = -1;
  std::int64_t nearest = I.n;
  for (std::int64_t c = 0; c < p.C; ++c) {
    if (c == I.label) continue;
    order_by_margin(p, I, c, w, w.order);
    const Below below = first_below(I, p.C, c, w.order);
    if (below.nearest >= 0 && below.nearest < nearest) nearest = below.nearest;
    if (below.first >= 0 && (result.size < 0 || below.first < result.size)) {
      result.size = below.first;
      winner = c;
    }
  }
  result.near = nearest < I.n && (result.size < 0 || nearest <= result.size);
  if (winner < 0) {
    if (I.bias_label != I.label && I.with_mass > 0) {
      result.size = I.with_mass;
      result.label = I.bias_label;
    }
    clear(shape, j.state);
    for (std::int64_t i = 0; i < I.n; ++i) add(shape, I, i, j.state);
    for (std::int64_t c = 0; c < p.C; ++c) {
      if (c != I.label && (winner < 0 || j.state[c] < j.state[winner])) winner = c;
    }
  }
  if (winner < 0) winner = I.label;  // a single class, whose margins are all equal
  order_by_margin(p, I, winner, w, w.order);
  if (result.size >= 0 && result.label < 0) {
    clear(shape, j.state);
    for (std::int64_t k = I.n - 1; k >= result.size; --k) add(shape, I, w.order[k], j.state);
    result.label = judge(shape, I, j.state, j.logits).decision;
  }
  return result;
}

}  // namespace
}  // namespace fae::cpu
