// The mathematics that host and device share: the random generator, order-preserving keys and the
// divergences of one class.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define FAE_HD __host__ __device__ inline
#else
#define FAE_HD static inline  // internal: a unit built for one instruction set must not export it
#endif

namespace fae {

constexpr double kLn2 = 0.693147180559945309417;

// The finaliser of splitmix64 (Steele, Lea & Flood 2014): a bijection of 64-bit words.
FAE_HD std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

FAE_HD double not_a_number() { return __builtin_huge_val() - __builtin_huge_val(); }

// The part of the random key that all items of one instance share.
FAE_HD std::uint64_t random_stream(std::uint64_t seed, std::int64_t order, std::int64_t id) {
  constexpr std::uint64_t kGamma = 0x9E3779B97F4A7C15ull;
  std::uint64_t x = mix64(seed + kGamma);
  x = mix64(x + static_cast<std::uint64_t>(order) + kGamma);
  return mix64(x + static_cast<std::uint64_t>(id) + kGamma);
}

// The key of the item at `position`; random rankings sort these descending, as unsigned numbers.
FAE_HD std::uint64_t random_key(std::uint64_t stream, std::int64_t position) {
  return mix64(stream + (static_cast<std::uint64_t>(position) + 1) * 0x9E3779B97F4A7C15ull);
}

// Maps a double to an unsigned word such that larger numbers give larger words, -0 equals +0 and
// NaN is above everything: built-in rankings put items with NaN keys first.
FAE_HD std::uint64_t ordered_bits(double key) {
  if (key != key) return ~0ull;
  key += 0.0;  // -0 becomes +0
  std::uint64_t bits;
  std::memcpy(&bits, &key, sizeof bits);
  return (bits >> 63) ? ~bits : bits | (1ull << 63);
}

// The shares of one class in the Jensen-Shannon divergence, natural logarithm,
//   JS = 1/2 KL(p || m) + 1/2 KL(q || m),  m = (p + q) / 2,
// in two forms: a thread of a kernel has probabilities, for which the first takes two logarithms at
// most; the CPU has their logarithms too, and the second takes one and an exponential.

// Returns 1/2 [p log(p / m) + q log(q / m)]
//   = 1/4 (p + q) [(1 + x) log(1 + x) + (1 - x) log(1 - x)],  x = (p - q) / (p + q).
// The bracket is never negative; near 0 its series, the sum of x^{2k} / (k (2k - 1)), does not
// cancel.
FAE_HD double js_term(double p, double q) {
  const double s = p + q;
  if (!(s > 0)) return 0;
  const double x = (p - q) / s;
  const double x2 = x * x;
  double bracket;
  if (x2 < 0.0025) {
    bracket = x2 * (1 + x2 * (1.0 / 6 + x2 * (1.0 / 15 + x2 * (1.0 / 28 + x2 * (1.0 / 45)))));
  } else {
    const double up = 1 + x, down = 1 - x;
    bracket = (up > 0 ? up * log1p(x) : 0.0) + (down > 0 ? down * log1p(-x) : 0.0);
  }
  return 0.25 * s * bracket;
}

// Returns p log(p / m) + q log(q / m) from p, q and their logarithms, through
// log m = max(log p, log q) + log1p(exp(-|log p - log q|)) - log 2.
FAE_HD double twice_js_term(double p, double q, double log_p, double log_q) {
  const double difference = log_q - log_p;
  const double magnitude = difference < 0 ? -difference : difference;
  const double log_m = (difference > 0 ? log_q : log_p) + (log1p(exp(-magnitude)) - kLn2);
  return p * (log_p - log_m) + q * (log_q - log_m);
}

// Returns the share of one class in KL(q || p).
FAE_HD double kl_term(double q, double log_q, double log_p) { return q * (log_q - log_p); }

}  // namespace fae
