// Pooled vectors of the prefixes of one ranking, for heads that are any callable.
//
//   pooled_k = (sum over the survivors of a_i v_i) / (sum over the survivors of a_i)
//
// One value row read an item; sums in float64 from the tail on, relative to the largest score among
// the survivors where scores are given; zero where no mass survives.
#pragma once

#include "cpu/instance.h"

namespace fae::cpu {
namespace {

struct PooledWork {
  double* e;     // [n, H] scores or weights
  double* sums;  // [H, D]
  double* mass;  // [H]
  double* high;  // [H]
  float* row;    // [D]
};

inline PooledWork lay_out_pooled(const PooledParams& p, std::int64_t n, Arena& arena) {
  PooledWork w{};
  w.e = arena.take<double>(n * p.H);
  w.sums = arena.take<double>(p.H * p.D);
  w.mass = arena.take<double>(p.H);
  w.high = arena.take<double>(p.H);
  w.row = arena.take<float>(p.D);
  return w;
}

inline std::int64_t pooled_work_bytes(const PooledParams& p, std::int64_t n) {
  Arena arena(nullptr);
  lay_out_pooled(p, n, arena);
  return arena.used();
}

inline void pool_item(const PooledParams& p, PooledWork& w, std::int64_t first, std::int64_t i) {
  for (std::int64_t h = 0; h < p.H; ++h) {
    double* sums = w.sums + h * p.D;
    double a = w.e[i * p.H + h];
    if (p.is_scores) {
      const double e = a;
      if (e == -kInf) continue;
      if (e > w.high[h]) {
        const double scale = exp(w.high[h] - e);
        for (std::int64_t d = 0; d < p.D; ++d) sums[d] *= scale;
        w.mass[h] *= scale;
        w.high[h] = e;
      }
      a = exp(e - w.high[h]);
    }
    if (a == 0) continue;
    w.mass[h] += a;
    const std::int64_t at = (first + i) * p.values_stride_t + h * p.values_stride_h;
    if (p.values_dtype == kFloat64) {
      const double* x = static_cast<const double*>(p.values) + at;
      for (std::int64_t d = 0; d < p.D; ++d) sums[d] += a * x[d];
    } else {
      const float* x = w.row;
      if (p.values_dtype == kFloat32) {
        x = static_cast<const float*>(p.values) + at;
      } else {
        load_elements(p.values, p.values_dtype, at, 1, p.D, w.row);
      }
      for (std::int64_t d = 0; d < p.D; ++d) sums[d] += a * static_cast<double>(x[d]);
    }
  }
}

inline void pooled(const PooledParams& p, std::int64_t b, char* work) {
  const std::int64_t first = p.offsets[b];
  const std::int64_t n = p.offsets[b + 1] - first;
  Arena arena(work);
  PooledWork w = lay_out_pooled(p, n, arena);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t h = 0; h < p.H; ++h) {
      load_elements(p.attention, p.attention_dtype,
                    (first + i) * p.attention_stride_t + h * p.attention_stride_h, 1, 1,
                    w.e + i * p.H + h);
    }
  }
  for (std::int64_t j = 0; j < p.H * p.D; ++j) w.sums[j] = 0;
  for (std::int64_t h = 0; h < p.H; ++h) {
    w.mass[h] = 0;
    w.high[h] = -kInf;
  }
  const bool wide = p.values_dtype == kFloat64;
  for (std::int64_t step = 0; step <= n; ++step) {
    if (step > 0) {
      const std::int64_t i = p.order[first + (p.keep ? step - 1 : n - step)];
      pool_item(p, w, first, i);
    }
    const std::int64_t m = first + b + (p.keep ? step : n - step) - p.point_begin;
    if (p.keep ? m >= p.M : m < 0) break;
    if (m < 0 || m >= p.M) continue;
    for (std::int64_t h = 0; h < p.H; ++h) {
      const double* sums = w.sums + h * p.D;
      const double scale = w.mass[h] == 0 ? 0.0 : 1.0;
      for (std::int64_t d = 0; d < p.D; ++d) {
        const double value = scale == 0 ? 0.0 : sums[d] / w.mass[h];
        store_real(p.pooled, wide, (m * p.H + h) * p.D + d, value);
      }
    }
  }
}

}  // namespace
}  // namespace fae::cpu
