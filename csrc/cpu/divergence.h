// Divergences of a distribution q from the original p, natural logarithm.
//
//   JS = 1/2 KL(p || m) + 1/2 KL(q || m),  m = (p + q) / 2        KL = KL(q || p)
//
// From logits through log-sum-exp; the shares of one class are in fastattnerase/math.h.
#pragma once

#include "cpu/instance.h"

namespace fae::cpu {
namespace {

struct Divergence {
  double js, kl, label_probability;
};

// log q and q from logits relative to any reference.
inline void softmax(const double* logits, std::int64_t C, double* q, double* log_q) {
  double high = logits[0];
  for (std::int64_t c = 1; c < C; ++c) high = logits[c] > high ? logits[c] : high;
  double sum = 0;
  for (std::int64_t c = 0; c < C; ++c) {
    q[c] = exp(logits[c] - high);
    sum += q[c];
  }
  const double log_sum = log(sum);
  for (std::int64_t c = 0; c < C; ++c) {
    q[c] /= sum;
    log_q[c] = logits[c] - high - log_sum;
  }
}

// `q` and `log_q` are scratch memory for [C].
inline Divergence diverge(const Instance& I, std::int64_t C, const double* logits, double* q,
                          double* log_q) {
  softmax(logits, C, q, log_q);
  double js = 0;
  double kl = 0;
  for (std::int64_t c = 0; c < C; ++c) {
    const double log_p = I.log_probability[c];
    js += twice_js_term(I.probability[c], q[c], log_p, log_q[c]);
    if (q[c] > 0) kl += kl_term(q[c], log_q[c], log_p);
  }
  js *= 0.5;
  js = js > 0 ? js : 0;
  js = js < kLn2 ? js : kLn2;
  return {js, kl > 0 ? kl : 0, q[I.label]};
}

}  // namespace
}  // namespace fae::cpu
