// A native test for the sanitizers: sweeps, permutations, other weights and pooled prefixes of a
// ragged batch on several threads, from several callers at once, must equal what one thread
// computes, bit for bit, in every variant.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "cpu/engine.h"
#include "fastattnerase/math.h"

namespace {

struct Batch {
  std::int64_t D, C, H, R;
  std::vector<std::int64_t> offsets{0}, ids, order;
  std::vector<float> values, scores, weight, bias;
  std::vector<std::int32_t> rankings;
  std::vector<std::int64_t> args;
  std::vector<const std::int64_t*> orders;
  std::int64_t B() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  std::int64_t T() const { return offsets.back(); }
};

float draw(std::uint64_t* counter) {
  const std::uint64_t word = fae::random_key(7, static_cast<std::int64_t>((*counter)++));
  return static_cast<float>(word >> 40) / static_cast<float>(1 << 23) - 1.0f;
}

Batch make(const std::vector<std::int64_t>& lengths, std::int64_t D, std::int64_t C, std::int64_t H,
           std::vector<std::int32_t> rankings) {
  Batch b{D,  C,  H, static_cast<std::int64_t>(rankings.size()), {0}, {}, {}, {}, {}, {}, {},
          {}, {}, {}};
  std::uint64_t counter = 0;
  for (const std::int64_t n : lengths) {
    b.ids.push_back(static_cast<std::int64_t>(b.ids.size()));
    b.offsets.push_back(b.offsets.back() + n);
    for (std::int64_t i = 0; i < n; ++i) b.order.push_back(n - 1 - i);
  }
  for (std::int64_t i = 0; i < b.T() * H * D; ++i) b.values.push_back(draw(&counter));
  for (std::int64_t i = 0; i < b.T() * H; ++i) b.scores.push_back(3 * draw(&counter));
  for (std::int64_t i = 0; i < C * H * D; ++i) b.weight.push_back(draw(&counter));
  for (std::int64_t i = 0; i < C; ++i) b.bias.push_back(0.1f * draw(&counter));
  b.rankings = std::move(rankings);
  b.args.assign(b.rankings.size(), 0);
  b.orders = {b.order.data()};
  return b;
}

// A sweep of the batch without rankings.
fae::SweepParams items_of(const Batch& b, std::int32_t threads) {
  fae::SweepParams p{};
  p.B = b.B();
  p.T = b.T();
  p.H = b.H;
  p.D = b.D;
  p.C = b.C;
  p.values = b.values.data();
  p.values_stride_t = b.H * b.D;
  p.values_stride_h = b.D;
  p.offsets = b.offsets.data();
  p.attention = b.scores.data();
  p.attention_stride_t = b.H;
  p.attention_stride_h = 1;
  p.is_scores = 1;
  p.head_weight = b.weight.data();
  p.head_bias = b.bias.data();
  p.ids = b.ids.data();
  p.validate = 1;
  p.num_threads = threads;
  return p;
}

// The results of one sweep, laid out in one piece of memory so that two are compared at once.
std::vector<std::int64_t> sweep(const Batch& b, std::int32_t threads, bool everything) {
  const std::int64_t points = b.R * (b.T() + b.B());
  fae::SweepParams p = items_of(b, threads);
  p.R = b.R;
  p.rankings = b.rankings.data();
  p.ranking_args = b.args.data();
  p.orders = b.orders.data();
  p.num_orders = 1;
  std::vector<std::int64_t> results(
      static_cast<std::size_t>(b.B() * (2 + b.C) + 3 * b.R * b.B() + b.R * b.T() + 6 * points +
                               points * b.C + 6 * b.T() + b.T() * b.H + 2 * b.B() + b.B() * b.C));
  std::int64_t* at = results.data();
  const auto take = [&](std::int64_t count) {
    std::int64_t* const from = at;
    at += count;
    return from;
  };
  p.label = take(p.B);
  p.status = take(p.B);
  p.probabilities = take(p.B * p.C);
  p.first_flip = take(p.R * p.B);
  p.flip_label = take(p.R * p.B);
  p.removed_mass = reinterpret_cast<double*>(take(p.R * p.B));
  p.order = take(p.R * p.T);
  if (everything) {
    p.curve_js = take(points);
    p.curve_kl = take(points);
    p.curve_label_prob = take(points);
    p.curve_mass = reinterpret_cast<double*>(take(points));
    p.single_flip_label = take(p.T);
    p.single_js = take(p.T);
    p.single_kl = take(p.T);
    p.single_drop = take(p.T);
    p.logits = take(p.B * p.C);
    p.weights = reinterpret_cast<double*>(take(p.T * p.H));
    if (p.H == 1) {
      p.minimal_size = take(p.B);
      p.minimal_flip_label = take(p.B);
      p.minimal_order = take(p.T);
    } else {
      p.curve_decision = take(points);
      p.curve_logits = take(points * p.C);
    }
  }
  p.workspace_bytes = fae::cpu::sweep_workspace_bytes(p);
  std::vector<char> workspace(static_cast<std::size_t>(p.workspace_bytes));
  p.workspace = workspace.data();
  const fae::cpu::Error error = fae::cpu::sweep(p);
  if (error.fault != fae::cpu::Fault::kNone) results.clear();
  return results;
}

// The results of 11 permutations, in one piece of memory.
std::vector<std::int64_t> permute(const Batch& b, std::int32_t threads) {
  fae::PermuteParams q{};
  q.items = items_of(b, threads);
  q.P = 11;
  const std::int64_t B = b.B();
  std::vector<std::int64_t> results(static_cast<std::size_t>(B * (3 + b.C + q.P)));
  q.items.label = results.data();
  q.items.status = q.items.label + B;
  q.flips = q.items.status + B;
  q.items.probabilities = q.flips + B;
  q.tvd = q.flips + B * (1 + b.C);
  q.items.workspace_bytes = fae::cpu::permute_workspace_bytes(q);
  std::vector<char> workspace(static_cast<std::size_t>(q.items.workspace_bytes));
  q.items.workspace = workspace.data();
  const fae::cpu::Error error = fae::cpu::permute(q);
  if (error.fault != fae::cpu::Fault::kNone) results.clear();
  return results;
}

// The logits of five rows of weights.
std::vector<float> reweigh(const Batch& b, std::int32_t threads) {
  fae::ReweighParams q{};
  q.items = items_of(b, threads);
  q.items.is_scores = 0;
  q.R = 5;
  q.row_stride = 1;  // rows overlap, as those of a view may
  std::vector<float> weights(b.scores.size() + 4);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 7);
  q.items.attention = weights.data();
  std::vector<float> logits(static_cast<std::size_t>(q.R * b.B() * b.C));
  q.logits = logits.data();
  q.items.workspace_bytes = fae::cpu::reweigh_workspace_bytes(q);
  std::vector<char> workspace(static_cast<std::size_t>(q.items.workspace_bytes));
  q.items.workspace = workspace.data();
  const fae::cpu::Error error = fae::cpu::reweigh(q);
  if (error.fault != fae::cpu::Fault::kNone) logits.clear();
  return logits;
}

std::vector<float> pool(const Batch& b, std::int32_t threads) {
  fae::PooledParams p{};
  p.B = b.B();
  p.T = b.T();
  p.H = b.H;
  p.D = b.D;
  p.M = p.T + p.B;
  p.values = b.values.data();
  p.values_stride_t = b.H * b.D;
  p.values_stride_h = b.D;
  p.offsets = b.offsets.data();
  p.attention = b.scores.data();
  p.attention_stride_t = b.H;
  p.attention_stride_h = 1;
  p.is_scores = 1;
  p.order = b.order.data();
  p.num_threads = threads;
  std::vector<float> pooled(static_cast<std::size_t>(p.M * p.H * p.D));
  p.pooled = pooled.data();
  p.workspace_bytes = fae::cpu::pooled_workspace_bytes(p);
  std::vector<char> workspace(static_cast<std::size_t>(p.workspace_bytes));
  p.workspace = workspace.data();
  fae::cpu::pooled_prefixes(p);
  return pooled;
}

int failures = 0;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  ++failures;
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
}

void check(const Batch& b, const std::string& what) {
  for (const bool everything : {false, true}) {
    const std::vector<std::int64_t> one = sweep(b, 1, everything);
    expect(!one.empty(), what + ": sweep");
    for (const std::int32_t threads : {2, 4}) {
      expect(sweep(b, threads, everything) == one, what + ": threads");
    }
    // Two callers at once share the waiting threads.
    std::vector<std::int64_t> left, right;
    std::thread other([&] { left = sweep(b, 3, everything); });
    right = sweep(b, 3, everything);
    other.join();
    expect(left == one && right == one, what + ": two callers");
  }
  const std::vector<std::int64_t> permuted = permute(b, 1);
  expect(!permuted.empty(), what + ": permute");
  for (const std::int32_t threads : {2, 4}) {
    expect(permute(b, threads) == permuted, what + ": threads that permute");
  }
  const std::vector<float> weighed = reweigh(b, 1), by_three = reweigh(b, 3);
  expect(!weighed.empty() && weighed.size() == by_three.size() &&
             std::memcmp(weighed.data(), by_three.data(), weighed.size() * sizeof(float)) == 0,
         what + ": reweigh");
  const std::vector<float> one = pool(b, 1);
  const std::vector<float> four = pool(b, 4);
  expect(std::memcmp(one.data(), four.data(), one.size() * sizeof(float)) == 0, what + ": pooled");
}

}  // namespace

int main() {
  const std::vector<std::int64_t> ragged = {0,  1,  2,  7,  8,   9,   15,  16, 17,
                                            31, 33, 64, 65, 127, 129, 300, 513};
  for (const std::string& variant : fae::cpu::variants_built()) {
    const std::vector<std::string> here = fae::cpu::variants();
    if (std::find(here.begin(), here.end(), variant) == here.end()) {
      std::printf("not run: cpu-%s: built, not on this machine\n", variant.c_str());
      continue;
    }
    expect(fae::cpu::select_variant(variant), variant);
    std::vector<std::int64_t> many = ragged;
    for (int k = 0; k < 3; ++k) many.insert(many.end(), ragged.begin(), ragged.end());
    check(make(many, 20, 5, 1, {0, 1, 2, 4}), variant + " four rankings");
    check(make(many, 131, 11, 1, {0, 3, 5, 6, 8, 9}), variant + " all rankings");
    check(make(many, 3, 19, 1, {0, 1, 4}), variant + " many classes");
    check(make({1, 5, 40}, 6, 3, 1, {7, 9}), variant + " greedy");
    check(make(many, 4, 3, 2, {0, 2, 4}), variant + " two heads");
    check(make({9000, 3}, 16, 4, 1, {0, 1, 2, 4, 9}), variant + " long");
  }
  std::printf("%s\n", failures == 0 ? "ok" : "failed");
  return failures == 0 ? 0 : 1;
}
