// Divergences of a distribution q from the original p, natural logarithm.
//
//   JS = 1/2 KL(p || m) + 1/2 KL(q || m),  m = (p + q) / 2        KL = KL(q || p)
//
// From logits through log-sum-exp; log m = max(log p, log q) + log1p(exp(-|log p - log q|)) -
// log 2.

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
    const double lp = I.log_probability[c];
    const double lq = log_q[c];
    const double difference = lq - lp;
    const double magnitude = difference < 0 ? -difference : difference;
    const double log_m = (difference > 0 ? lq : lp) + (log1p(exp(-magnitude)) - kLog2);
    js += I.probability[c] * (lp - log_m) + q[c] * (lq - log_m);
    if (q[c] > 0) kl += q[c] * difference;
  }
  js *= 0.5;
  js = js > 0 ? js : 0;
  js = js < kLog2 ? js : kLog2;
  return {js, kl > 0 ? kl : 0, q[I.label]};
}
