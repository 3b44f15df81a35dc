// The mathematics that host and device share: the random generator and order-preserving keys.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define FAE_HD __host__ __device__ inline
#else
#define FAE_HD static inline  // internal: a unit built for one instruction set must not export it
#endif

namespace fae {

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

}  // namespace fae
