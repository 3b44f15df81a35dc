// Sums over the survivors, and what they decide.
//
// With one head and finite contributions a state holds the sums of the margins
//   m_{i,c} = a_i [(s_{i,y} + b_y) - (s_{i,c} + b_c)]
// whose signs are the decision; with several heads, or where an item is not finite, it holds the
// sums of a_i s_i of every head. Sums of an instance whose scores span more than 600 are relative
// to the largest score among the survivors and are rescaled when a larger one joins.
//
// A head's part of a state: C sums, then mass, the sum of a_i s_{i,y}, and the largest score.
#pragma once

#include "cpu/instance.h"

namespace fae::cpu {
namespace {

struct StateShape {
  std::int64_t H, C;
  bool margins;
  std::int64_t stride() const { return C + 3; }
  std::int64_t size() const { return H * (C + 3); }
};

inline StateShape state_shape(const SweepParams& p, const Instance& I) {
  return {p.H, p.C, p.H == 1 && !I.any_bad && I.label >= 0};
}

inline void clear(const StateShape& shape, double* state) {
  for (std::int64_t h = 0; h < shape.H; ++h) {
    double* part = state + h * shape.stride();
    for (std::int64_t j = 0; j < shape.C + 2; ++j) part[j] = 0;
    part[shape.C + 2] = -kInf;
  }
}

inline void add(const StateShape& shape, const Instance& I, std::int64_t i, double* state) {
  for (std::int64_t h = 0; h < shape.H; ++h) {
    double* __restrict part = state + h * shape.stride();
    double w = I.a[i * shape.H + h];
    if (I.underflow) {
      const double e = I.e[i * shape.H + h];
      if (e == -kInf) continue;
      double& high = part[shape.C + 2];
      if (e > high) {
        const double scale = exp(high - e);
        for (std::int64_t j = 0; j < shape.C + 2; ++j) part[j] *= scale;
        high = e;
      }
      w = exp(e - high);
    }
    if (w == 0) continue;
    const double* s = I.rows + (i * shape.H + h) * shape.C;
    if (shape.margins) {
      const double own = s[I.label] + I.bias[I.label];
      const double* b = I.bias;
      for (std::int64_t c = 0; c < shape.C; ++c) part[c] += w * (own - (s[c] + b[c]));
      part[shape.C + 1] += w * s[I.label];
    } else {
      for (std::int64_t c = 0; c < shape.C; ++c) part[c] += w * s[c];
    }
    part[shape.C] += w;
  }
}

// sum = x + y
inline void merge(const StateShape& shape, const double* x, const double* y, double* sum) {
  for (std::int64_t h = 0; h < shape.H; ++h) {
    const std::int64_t at = h * shape.stride();
    const double x_high = x[at + shape.C + 2];
    const double y_high = y[at + shape.C + 2];
    if (x_high == y_high) {
      for (std::int64_t j = 0; j < shape.C + 2; ++j) sum[at + j] = x[at + j] + y[at + j];
      sum[at + shape.C + 2] = x_high;
    } else {
      const double high = x_high > y_high ? x_high : y_high;
      const double x_scale = exp(x_high - high);
      const double y_scale = exp(y_high - high);
      for (std::int64_t j = 0; j < shape.C + 2; ++j) {
        sum[at + j] = x[at + j] * x_scale + y[at + j] * y_scale;
      }
      sum[at + shape.C + 2] = high;
    }
  }
}

struct Verdict {
  std::int64_t decision;
  bool mass, near;
};

// The logits of a state that holds plain sums.
inline void plain_logits(const StateShape& shape, const Instance& I, const double* state,
                         double* logits) {
  for (std::int64_t c = 0; c < shape.C; ++c) {
    double z = I.bias[c];
    for (std::int64_t h = 0; h < shape.H; ++h) {
      const double* part = state + h * shape.stride();
      if (part[shape.C] > 0) z += part[c] / part[shape.C];
    }
    logits[c] = z;
  }
}

// Logits under the weights `a` [n, H] of all items; `state` is scratch memory.
inline void weighted_logits(const SweepParams& p, const Instance& I, double* a, double* state,
                            double* logits) {
  const StateShape plain{p.H, p.C, false};
  Instance M = I;
  M.a = a;
  M.underflow = false;  // sums of all items need no rescaling
  clear(plain, state);
  for (std::int64_t i = 0; i < I.n; ++i) add(plain, M, i, state);
  plain_logits(plain, M, state, logits);
}

inline bool any_mass(const StateShape& shape, const double* state) {
  bool some = false;
  for (std::int64_t h = 0; h < shape.H; ++h) {
    some = some || state[h * shape.stride() + shape.C] > 0;
  }
  return some;
}

// `logits` is scratch memory for [C].
inline Verdict judge(const StateShape& shape, const Instance& I, const double* state,
                     double* logits) {
  Verdict v{I.bias_label, any_mass(shape, state), false};
  if (!v.mass) return v;
  if (shape.margins) {
    const double near = I.tolerance * state[shape.C];
    // Mostly all other classes are clear and behind the label, whose own margin is 0.
    std::int64_t not_clear = 0;
    for (std::int64_t c = 0; c < shape.C; ++c) not_clear += state[c] < near ? 1 : 0;
    if (not_clear == 1 && near > 0) {
      v.decision = I.label;
      return v;
    }
    double least = 0;
    v.decision = I.label;
    for (std::int64_t c = 0; c < shape.C; ++c) {
      if (c == I.label) continue;
      if (state[c] < least || (state[c] == least && c < v.decision)) {
        least = state[c];
        v.decision = c;
      }
      v.near = v.near || (state[c] < near && -state[c] < near);
    }
    return v;
  }
  if (shape.H == 1) {
    for (std::int64_t c = 0; c < shape.C; ++c) logits[c] = state[c] + state[shape.C] * I.bias[c];
  } else {
    plain_logits(shape, I, state, logits);
  }
  v.decision = 0;
  for (std::int64_t c = 1; c < shape.C; ++c) {
    if (logits[c] > logits[v.decision]) v.decision = c;
  }
  if (I.label >= 0) {
    for (std::int64_t c = 0; c < shape.C; ++c) {
      const double margin = logits[I.label] - logits[c];
      v.near = v.near || (c != I.label && margin < I.tolerance && -margin < I.tolerance);
    }
  }
  return v;
}

// logits[c] of the survivors. Where the label is defined `relative` receives z_c - z_y.
inline void state_logits(const StateShape& shape, const Instance& I, const double* state,
                         double* logits, double* relative) {
  if (shape.margins && state[shape.C] > 0) {
    const double own = state[shape.C + 1] / state[shape.C] + I.bias[I.label];
    for (std::int64_t c = 0; c < shape.C; ++c) {
      relative[c] = c == I.label ? 0.0 : -state[c] / state[shape.C];
      logits[c] = own + relative[c];
    }
    return;
  }
  if (shape.margins) {
    for (std::int64_t c = 0; c < shape.C; ++c) logits[c] = I.bias[c];
  } else {
    plain_logits(shape, I, state, logits);
  }
  if (I.label < 0) return;
  for (std::int64_t c = 0; c < shape.C; ++c) relative[c] = logits[c] - logits[I.label];
}

}  // namespace
}  // namespace fae::cpu
