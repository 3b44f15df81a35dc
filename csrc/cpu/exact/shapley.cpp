// Shapley values of the pooled output, by the double integral of reference/shapley.py:
//
//   phi_i = sum over nodes of  w P / F_i [ x_i u a_i s_i - q_i (R - p u a_i s_i x_i / F_i) ]
//   x = exp(-u a), q = 1 - x, F = 1 - p + p x, P = prod F, R = sum p u a s x / F
//
// For one u the exponentials are taken once. All p then go twice over blocks of items that stay in
// the first cache: once for P and R, once for what each item is given. The product is kept as
// mantissa and exponent. Cost: O(n (C + 2)) a node, no logarithm but one.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "cpu/exact/exact.h"
#include "cpu/exact/share.h"

namespace fae::cpu {
namespace {

constexpr double kSteps[] = {0.5, 0.36, 0.26, 0.19, 0.135};
constexpr double kTail = 3.3, kBend = 4.0;
constexpr std::int64_t kBlock = 256;
constexpr int kLanes = 8;
constexpr double kNegligible = -740;  // ln of what float64 cannot hold

struct Node {
  double p, rest, weight;  // rest is 1 - p
  double mantissa, log_P;
  std::int64_t exponent;
};

struct Memory {
  std::int64_t* own;  // [n] items with weight
  double* logs;       // [n]
  double* terms;      // [C, n] contributions
  double* x;          // [n]
  double* q;          // [n]
  double* weighted;   // [C, n] u a s
  double* found;      // [C, n]
  double* before;     // [C, n]
  double* R;          // [nodes, C]
  Node* nodes;
};

std::int64_t most_nodes(std::int64_t n) {
  const double span = std::log(static_cast<double>(std::max<std::int64_t>(n, 1)));
  const double least = kSteps[std::size(kSteps) - 1];
  return static_cast<std::int64_t>((span + 2 * (kBend + kTail)) / least) + 4;
}

Memory lay_out(const ShapleyParams& p, std::int64_t n, Scratch& scratch) {
  Memory w{};
  w.own = scratch.take<std::int64_t>(n);
  w.logs = scratch.take<double>(n);
  w.terms = scratch.take<double>(p.C * n);
  w.x = scratch.take<double>(n);
  w.q = scratch.take<double>(n);
  w.weighted = scratch.take<double>(p.C * n);
  w.found = scratch.take<double>(p.C * n);
  w.before = scratch.take<double>(p.C * n);
  w.R = scratch.take<double>(most_nodes(n) * p.C);
  w.nodes = scratch.take<Node>(most_nodes(n));
  return w;
}

std::int64_t bytes_of(const ShapleyParams& p) {
  Scratch scratch(nullptr);
  lay_out(p, longest_instance(p), scratch);
  return scratch.used();
}

std::int64_t lay_nodes(std::int64_t m, double step, Node* nodes) {
  const double low = -std::log(static_cast<double>(m)) - kBend, high = kBend;
  const std::int64_t first = static_cast<std::int64_t>(std::floor((low - kTail) / step));
  const std::int64_t last = static_cast<std::int64_t>(std::ceil((high + kTail) / step));
  for (std::int64_t k = first; k <= last; ++k) {
    const double t = static_cast<double>(k) * step;
    const double left = std::exp(low - t), right = std::exp(t - high), r = t - left + right;
    Node& node = nodes[k - first];
    node.p = 1 / (1 + std::exp(-r));
    node.rest = 1 / (1 + std::exp(r));
    node.weight = node.p * node.rest * (1 + left + right) * step;
  }
  return last - first + 1;
}

// Multiplies F of a block into a node's product and adds to its R.
void gather(const Memory& w, Node& node, std::int64_t C, std::int64_t m, std::int64_t begin,
            std::int64_t count, double* R) {
  const double p = node.p, rest = node.rest;
  const double* x = w.x + begin;
  double share[kBlock];  // p x / F
  double product[kLanes];
  std::fill(product, product + kLanes, 1.0);
  // At most 16 factors above 1e-16 a lane before the exponent is taken out.
  for (std::int64_t from = 0; from < count; from += 16 * kLanes) {
    const std::int64_t to = std::min(count, from + 16 * kLanes);
    std::int64_t i = from;
    for (; i + kLanes <= to; i += kLanes) {
      for (int l = 0; l < kLanes; ++l) {
        const double F = rest + p * x[i + l];
        product[l] *= F;
        share[i + l] = p * x[i + l] / F;
      }
    }
    for (; i < to; ++i) {
      const double F = rest + p * x[i];
      product[0] *= F;
      share[i] = p * x[i] / F;
    }
    for (double& part : product) {
      int exponent;
      node.mantissa *= std::frexp(part, &exponent);
      node.exponent += exponent;
      part = 1;
    }
    int exponent;
    node.mantissa = std::frexp(node.mantissa, &exponent);
    node.exponent += exponent;
  }
  for (std::int64_t c = 0; c < C; ++c) {
    const double* y = w.weighted + c * m + begin;
    double sum[kLanes] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (int l = 0; l < kLanes; ++l) sum[l] += share[i + l] * y[i + l];
    }
    double total = 0;
    for (; i < count; ++i) total += share[i] * y[i];
    for (int l = 0; l < kLanes; ++l) total += sum[l];
    R[c] += total;
  }
}

// Adds to a block of items what all nodes of one u give them.
void give(const Memory& w, std::int64_t Q, double u_weight, std::int64_t C, std::int64_t m,
          std::int64_t begin, std::int64_t count) {
  const double* x = w.x + begin;
  const double* q = w.q + begin;
  double A[kBlock], sum[kBlock] = {}, shared[kBlock] = {};
  for (std::int64_t c = 0; c < C; ++c) {
    double taken[kBlock] = {};  // sum over nodes of A R
    for (std::int64_t node = 0; node < Q; ++node) {
      const Node& own = w.nodes[node];
      // P / F_i is at most P / (1 - p).
      if (own.log_P - std::log(own.rest) < kNegligible) continue;
      const double p = own.p, rest = own.rest, R = w.R[node * C + c];
      const double scale = std::exp(own.log_P / 2), weight = own.weight * u_weight;
      for (std::int64_t i = 0; i < count; ++i) {
        const double F = rest + p * x[i];
        A[i] = weight * scale / F * scale;
      }
      for (std::int64_t i = 0; i < count; ++i) taken[i] += A[i] * R;
      if (c > 0) continue;
      for (std::int64_t i = 0; i < count; ++i) {
        sum[i] += A[i];
        shared[i] += A[i] * p * x[i] / (rest + p * x[i]);
      }
    }
    const double* y = w.weighted + c * m + begin;
    double* found = w.found + c * m + begin;
    for (std::int64_t i = 0; i < count; ++i) {
      found[i] += (sum[i] * x[i] + shared[i] * q[i]) * y[i] - q[i] * taken[i];
    }
  }
}

// Sums the integrand over even nodes into w.found; returns how many there are.
std::int64_t trapezoidal(const Memory& w, std::int64_t C, std::int64_t m, double least,
                         double step) {
  const std::int64_t Q = lay_nodes(m, step, w.nodes);
  std::fill(w.found, w.found + C * m, 0.0);
  const std::int64_t first = static_cast<std::int64_t>(std::floor((-kBend - kTail) / step));
  const std::int64_t last = static_cast<std::int64_t>(std::ceil((std::log(40.0) - least) / step));
  for (std::int64_t k = first; k <= last; ++k) {
    const double t = static_cast<double>(k) * step, left = std::exp(-kBend - t);
    const double log_u = t - left, u_weight = (1 + left) * step;
    double total = 0;
    for (std::int64_t i = 0; i < m; ++i) {
      const double y = std::min(std::exp(log_u + w.logs[i]), 1e4);
      w.x[i] = std::exp(-y);
      w.q[i] = -std::expm1(-y);
      total += w.q[i];
      for (std::int64_t c = 0; c < C; ++c) w.weighted[c * m + i] = y * w.terms[c * m + i];
    }
    // ln P <= -p sum q: beyond that a node, and all with larger p, are nothing.
    std::int64_t some = 0;
    while (some < Q && -w.nodes[some].p * total - std::log(w.nodes[some].rest) > kNegligible) {
      ++some;
    }
    std::fill(w.R, w.R + some * C, 0.0);
    for (std::int64_t node = 0; node < some; ++node) {
      w.nodes[node].mantissa = 1;
      w.nodes[node].exponent = 0;
    }
    for (std::int64_t begin = 0; begin < m; begin += kBlock) {
      const std::int64_t count = std::min(kBlock, m - begin);
      for (std::int64_t node = 0; node < some; ++node) {
        gather(w, w.nodes[node], C, m, begin, count, w.R + node * C);
      }
    }
    for (std::int64_t node = 0; node < some; ++node) {
      Node& own = w.nodes[node];
      own.log_P = std::log(own.mantissa) +
                  static_cast<double>(own.exponent) * 0.693147180559945309417232121458;
    }
    for (std::int64_t begin = 0; begin < m; begin += kBlock) {
      give(w, some, u_weight, C, m, begin, std::min(kBlock, m - begin));
    }
  }
  return Q * (last - first + 1);
}

void write(const ShapleyParams& p, std::int64_t b, double error, double efficiency,
           std::int64_t nodes) {
  p.error[b] = error;
  p.efficiency[b] = efficiency;
  p.nodes[b] = nodes;
}

void shapley_instance(const ShapleyParams& p, std::int64_t b, char* memory) {
  const std::int64_t first = p.offsets[b], n = p.offsets[b + 1] - first, C = p.C;
  double* values = p.values + first * C;
  if ((p.status[b] & (kNonFinite | kInvalid)) != 0) {  // scores may span any range
    const double nan = std::numeric_limits<double>::quiet_NaN();
    std::fill(values, values + n * C, nan);
    write(p, b, nan, nan, -1);
    return;
  }
  std::fill(values, values + n * C, 0.0);
  Scratch scratch(memory);
  const Memory w = lay_out(p, n, scratch);
  const double inf = std::numeric_limits<double>::infinity();
  std::int64_t m = 0;
  double top = -inf;
  for (std::int64_t i = 0; i < n; ++i) {
    if (!(p.log_weights[first + i] > -inf)) continue;
    w.own[m++] = i;
    top = std::max(top, p.log_weights[first + i]);
  }
  if (m == 0) {
    write(p, b, 0, 0, 0);
    return;
  }
  double mass = 0;
  for (std::int64_t j = 0; j < m; ++j) mass += std::exp(p.log_weights[first + w.own[j]] - top);
  double least = 0;
  for (std::int64_t j = 0; j < m; ++j) {
    w.logs[j] = p.log_weights[first + w.own[j]] - top - std::log(mass);
    least = std::min(least, w.logs[j]);
    for (std::int64_t c = 0; c < C; ++c) {
      w.terms[c * m + j] = p.contributions[(first + w.own[j]) * C + c];
    }
  }
  std::fill(w.before, w.before + C * m, inf);
  double change = inf, gap = inf;
  std::int64_t nodes = 0;
  for (const double step : kSteps) {
    nodes = trapezoidal(w, C, m, least, step);
    change = gap = 0;
    double largest = 0;
    for (std::int64_t c = 0; c < C; ++c) {
      double sum = 0, whole = 0;
      for (std::int64_t j = 0; j < m; ++j) {
        const double value = w.found[c * m + j];
        change = std::max(change, std::abs(value - w.before[c * m + j]));
        largest = std::max(largest, std::abs(value));
        sum += value;
        whole += std::exp(w.logs[j]) * w.terms[c * m + j];
      }
      gap = std::max(gap, std::abs(sum - whole));
    }
    std::copy(w.found, w.found + C * m, w.before);
    if (std::max(change, gap) <= *p.tolerance * largest) break;
  }
  for (std::int64_t j = 0; j < m; ++j) {
    for (std::int64_t c = 0; c < C; ++c) values[w.own[j] * C + c] = w.before[c * m + j];
  }
  write(p, b, change, gap, nodes);
}

}  // namespace

std::int64_t shapley_workspace_bytes(const ShapleyParams& p) {
  return threads_of(p) * bytes_of(p) + kLine;
}

void shapley(const ShapleyParams& p) {
  for_each_instance(p, bytes_of(p),
                    [&](std::int64_t b, char* memory) { shapley_instance(p, b, memory); });
}

}  // namespace fae::cpu
