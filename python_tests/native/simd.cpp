// Every form of a register's operations that a target has of its own against the generic form, and
// vectors against loops over their lanes. Prints what differs; compiled once per target.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>

#include "cpu/simd/lanes.h"
#include "cpu/simd/math.h"
#include "cpu/simd/transpose.h"
#include "cpu/usual/network.h"
#include "fastattnerase/math.h"

namespace {

using namespace fae::cpu;

int failures = 0;

void check(bool right, const char* what, int bytes) {
  if (right) return;
  ++failures;
  std::printf("%s differs in registers of %d bytes\n", what, bytes);
}

// Numbers with a part of zeros, negative zeros, infinities and NaN.
template <class T>
T draw(std::int64_t* counter) {
  const std::uint64_t word = fae::random_key(3, (*counter)++);
  if constexpr (T(0.5) != T(0)) {
    switch (word % 16) {
      case 0:
        return T(0);
      case 1:
        return -T(0);
      case 2:
        return std::numeric_limits<T>::infinity();
      case 3:
        return std::numeric_limits<T>::quiet_NaN();
      default:
        return T(static_cast<std::int64_t>(word)) * T(0x1p-60);
    }
  } else {
    return static_cast<T>(word);
  }
}

template <class R>
R random_register(std::int64_t* counter) {
  R x;
  for (int l = 0; l < kLanesOf<R>; ++l) x[l] = draw<LaneOf<R>>(counter);
  return x;
}

template <class R>
bool same(R a, R b) {  // NaN of any kind equals NaN
  for (int l = 0; l < kLanesOf<R>; ++l) {
    const LaneOf<R> x = a[l], y = b[l];
    if (x != x && y != y) continue;
    if (std::memcmp(&x, &y, sizeof x) != 0) return false;
  }
  return true;
}

template <class R>
void check_register() {
  constexpr int kBytes = sizeof(R), kLanes = kLanesOf<R>;
  constexpr std::uint32_t kAll = static_cast<std::uint32_t>((std::uint64_t{1} << kLanes) - 1);
  std::int64_t counter = kBytes;
  for (int round = 0; round < 200; ++round) {
    const R a = random_register<R>(&counter), b = round % 3 ? random_register<R>(&counter) : a;
    const R c = random_register<R>(&counter);
    check(same(native::min(a, b), generic::min(a, b)), "min", kBytes);
    check(same(native::max(a, b), generic::max(a, b)), "max", kBytes);
    const auto less = native::less(a, b);
    check(native::mask_bits(less) == generic::mask_bits(generic::less(a, b)), "less", kBytes);
    check(native::mask_bits(native::less_equal(a, b)) ==
              generic::mask_bits(generic::less_equal(a, b)),
          "less_equal", kBytes);
    check(native::mask_bits(native::equal(a, b)) == generic::mask_bits(generic::equal(a, b)),
          "equal", kBytes);
    check(same(native::select(less, a, c), generic::select(generic::less(a, b), a, c)), "select",
          kBytes);
    check(same(native::zero_unless(less, c), generic::zero_unless(generic::less(a, b), c)),
          "zero_unless", kBytes);
    const auto bits = static_cast<std::uint32_t>(fae::random_key(5, round)) & kAll;
    check(native::mask_bits(native::mask_of_bits(a, bits)) == bits, "mask_of_bits", kBytes);
    for (int n = -1; n <= kLanes + 1; ++n) {
      const std::uint32_t first = n <= 0 ? 0 : n >= kLanes ? kAll : (1u << n) - 1;
      check(native::mask_bits(native::first_lanes(a, n)) == first, "first_lanes", kBytes);
      LaneOf<R> memory[kLanes], to[kLanes] = {}, expected[kLanes] = {};
      std::memcpy(memory, &a, sizeof a);
      check(same(native::load_first(a, memory, n), generic::load_first(a, memory, n)), "load_first",
            kBytes);
      native::store_first(a, to, n);
      generic::store_first(a, expected, n);
      check(std::memcmp(to, expected, sizeof to) == 0, "store_first", kBytes);
    }
    if constexpr (LaneOf<R>(0.5) != LaneOf<R>(0)) {
      check(native::signs(a) == generic::signs(a), "signs", kBytes);
      check(same(native::abs(a), generic::abs(a)), "abs", kBytes);
      check(same(native::mul_add(a, b, c), generic::mul_add(a, b, c)), "mul_add", kBytes);
    }
    if constexpr (kBytes > 16) {
      check(same(native::lower(a), generic::lower(a)), "lower", kBytes);
      check(same(native::upper(a), generic::upper(a)), "upper", kBytes);
      check(same(native::combine(native::lower(a), native::upper(a)), a), "combine", kBytes);
    }
  }
}

template <int kBytes>
void check_conversions() {
  using F = Register<float, kBytes>;
  using D = Register<double, kBytes>;
  std::int64_t counter = 0;
  for (int round = 0; round < 200; ++round) {
    const F x = random_register<F>(&counter);
    const D a = random_register<D>(&counter), b = random_register<D>(&counter);
    D low, high;
    F both;
    for (int l = 0; l < kLanesOf<D>; ++l) {
      low[l] = x[l];
      high[l] = x[kLanesOf<D> + l];
      both[l] = static_cast<float>(a[l]);
      both[kLanesOf<D> + l] = static_cast<float>(b[l]);
    }
    check(same(native::widen_lower(x), low), "widen_lower", kBytes);
    check(same(native::widen_upper(x), high), "widen_upper", kBytes);
    check(same(native::narrow_both(a, b), both), "narrow_both", kBytes);
  }
}

template <class V, class F, class Reference>
void check_function(const char* what, F f, double from, double to, double error,
                    Reference reference) {
  typename V::Lane x[V::kLanes], y[V::kLanes];
  for (int i = 0; i < 20000; i += V::kLanes) {
    for (int l = 0; l < V::kLanes; ++l) {
      x[l] = static_cast<typename V::Lane>(from + (to - from) * (i + l) / 20000);
    }
    Store(f(Load<V>(x)), y);
    for (int l = 0; l < V::kLanes; ++l) {
      const double right = reference(static_cast<double>(x[l]));
      check(std::fabs(static_cast<double>(y[l]) - right) <= error * (1 + std::fabs(right)), what,
            sizeof(typename V::Part));
    }
  }
}

void check_vectors() {
  constexpr int kBytes = Target::kBytes;
  float m[16][16], t[16];
  double d[8][8], u[8];
  F16 r[16], quarter[4], column[4];
  D8 s[8];
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) m[i][j] = static_cast<float>(16 * i + j);
    r[i] = Load<F16>(m[i]);
    if (i < 4) quarter[i] = r[i];
  }
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) d[i][j] = 8 * i + j;
    s[i] = Load<D8>(d[i]);
  }
  Transpose16(r);
  Transpose8(s);
  TransposeQuarters(quarter, column);
  for (int i = 0; i < 16; ++i) {
    Store(r[i], t);
    for (int j = 0; j < 16; ++j) check(t[j] == m[j][i], "Transpose16", kBytes);
  }
  for (int i = 0; i < 8; ++i) {
    Store(s[i], u);
    for (int j = 0; j < 8; ++j) check(u[j] == d[j][i], "Transpose8", kBytes);
  }
  for (int k = 0; k < 4; ++k) {
    Store(column[k], t);
    for (int l = 0; l < 16; ++l)
      check(t[l] == m[l % 4][l / 4 * 4 + k], "TransposeQuarters", kBytes);
  }
  Store(LoadQuarters<F16>([&](int q) { return &m[q][4]; }), t);
  for (int l = 0; l < 16; ++l) check(t[l] == m[l / 4][4 + l % 4], "LoadQuarters", kBytes);

  // Sums by halves: ((0 + 8) + (4 + 12)) + …, whatever the registers.
  std::int64_t counter = 0;
  for (float& x : t) x = static_cast<float>(fae::random_key(9, counter++) % 1000) * 0.1f;
  float tree[16];
  std::memcpy(tree, t, sizeof t);
  for (int half = 8; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) tree[l] += tree[l + half];
  }
  check(ReduceSum(Load<F16>(t)) == tree[0], "ReduceSum", kBytes);
  check(ReduceMax(Iota<U16>(3)) == 18, "ReduceMax", kBytes);
  check(ReduceMin(Iota<U16>(3)) == 3, "ReduceMin", kBytes);
  check(BitsFromMask(MaskFromBits<F16>(0xBEEF) & FirstN<F16>(13)) == 0x1EEF, "masks", kBytes);
  check(BitsFromMask(Not(MaskFromBits<D8>(0x2A))) == 0xD5, "Not", kBytes);
  const auto wide_mask = PromoteMaskTo(MaskFromBits<F16>(0xBEEF));
  check(BitsFromMask(wide_mask) == 0xBEEF, "PromoteMaskTo", kBytes);
  check(BitsFromMask(DemoteMaskTo(wide_mask)) == 0xBEEF, "DemoteMaskTo", kBytes);
  const unsigned char bytes[8] = {1, 0, 0xFE, 0xFF, 0, 1, 0xFE, 0xFF};
  check(BitsFromMask(MaskFromBytes(bytes)) == 0xA9, "MaskFromBytes", kBytes);
  std::uint32_t words[32] = {};
  check(CompressStore(Iota<U16>(), MaskFromBits<U16>(0x8421), words) == 4, "CompressStore", kBytes);
  check(words[0] == 0 && words[1] == 5 && words[2] == 10 && words[3] == 15, "CompressStore",
        kBytes);
  const F16 joined =
      OrderedDemote2To(PromoteLowerTo(Load<F16>(m[2])), PromoteUpperTo(Load<F16>(m[2])));
  check(BitsFromMask(joined == Load<F16>(m[2])) == 0xFFFF, "OrderedDemote2To", kBytes);

  const auto exponential = [](D8 x) { return Exp(x); };
  check_function<D8>("Exp", exponential, -30, 0, 2.3e-16, [](double x) { return std::exp(x); });
  const double far[8] = {-INFINITY, -1e9, -800, -744, -710, -600, -1, 0};
  Store(Exp(Load<D8>(far)), u);
  for (int l = 0; l < 8; ++l) {
    check(std::fabs(u[l] - std::exp(far[l])) <= 5e-16 * std::exp(far[l]) + 5e-324, "Exp", kBytes);
  }
  check_function<F16>(
      "Exp2Near", [](F16 x) { return Exp2Near(x); }, -20, 20, 2e-7,
      [](double x) { return std::exp2(x); });
  const Log2OfHalf logarithm;
  check_function<F16>("Log2OfHalf", logarithm, 1e-3, 4, 4e-7,
                      [](double x) { return std::log2(x / 2); });
}

// Sorts of all lengths that a network has, and of some beyond, beside insertion by the exact key:
// distinct keys, few keys, keys that shorten to the same word, keys with NaN.
void check_sorts() {
  constexpr int kMost = 2500;
  static double keys[kMost];
  static std::uint32_t approximate[kMost + 64], packed[kMost + 64], order[kMost + 64], right[kMost];
  static std::uint64_t pair_keys[2][kMost];
  static std::uint32_t positions[2][kMost];
  const SortBuffers pairs{{pair_keys[0], pair_keys[1]}, {positions[0], positions[1]}};
  std::int64_t counter = 0;
  for (int n = 1; n <= kMost; n += n < 70 ? 1 : n < 600 ? 59 : 317) {
    for (int kind = 0; kind < 4; ++kind) {
      for (int i = 0; i < n; ++i) {
        const std::uint64_t word = fae::random_key(11, counter++);
        const double x = static_cast<double>(word >> 11) * 0x1p-53;
        keys[i] = kind == 0   ? x - 0.5
                  : kind == 1 ? static_cast<double>(word % 7) - 3
                  : kind == 2 ? 1 + static_cast<double>(word % 3) * 1e-12
                              : (word % 5 == 0 ? std::numeric_limits<double>::quiet_NaN() : x);
      }
      for (int i = 0; i < n; ++i) {
        int j = i;
        const std::uint64_t key = fae::ordered_bits(keys[i]);
        for (; j > 0 && fae::ordered_bits(keys[right[j - 1]]) < key; --j) right[j] = right[j - 1];
        right[j] = static_cast<std::uint32_t>(i);
      }
      const KeyRange range = approximate_keys(keys, n, approximate);
      sort_items({keys, nullptr, approximate, range, packed, pairs}, n, order);
      check(std::memcmp(order, right, sizeof(*order) * static_cast<std::size_t>(n)) == 0,
            "sort_items", Target::kBytes);
    }
  }
}

}  // namespace

int main() {
  check_register<Register<float>>();
  check_register<Register<double>>();
  check_register<Register<std::int32_t>>();
  check_register<Register<std::uint32_t>>();
  check_register<Register<std::int64_t>>();
  check_register<Register<float, 16>>();
  check_register<Register<double, 16>>();
  if constexpr (Target::kBytes > 32) {
    check_register<Register<float, 32>>();
    check_register<Register<double, 32>>();
  }
  check_conversions<Target::kBytes>();
  check_vectors();
  check_sorts();
  std::printf("%d failures in registers of %d bytes\n", failures, Target::kBytes);
  return failures != 0;
}
