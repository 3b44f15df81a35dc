// Neighbouring short instances projected together: one alone would waste lanes of its last block.
#pragma once

#include "cpu/usual/projection.h"

namespace fae::cpu {
namespace {

constexpr std::int64_t kRun = 4096;     // items, or instances, projected together
constexpr std::int64_t kRunItems = 64;  // longer instances are projected alone
constexpr std::int64_t kRunPitch = kRun + 16;

// What a thread keeps for runs of short instances.
struct RunMemory {
  float* columns;  // [C, kRunPitch]
  float* norm2;    // [kRunPitch]
  float* scores;   // [kRunPitch] scores or weights, where floats hold them
};

inline RunMemory lay_out_run(const SweepParams& p, Arena& arena) {
  RunMemory run{};
  run.columns = arena.take<float>(p.C * kRunPitch);
  run.norm2 = arena.take<float>(kRunPitch);
  run.scores = arena.take<float>(kRunPitch);
  return run;
}

// Projects the run of instances [b, end) that ends before a long one, after kRun items or instances
// or with the chunk; returns the run's end, b itself where instance b is to be projected alone.
inline std::int64_t project_run(const SweepParams& p, const float* packed_weights,
                                const RunMemory& run, std::int64_t b, std::int64_t end) {
  std::int64_t to = b;
  if (end - b > kRun) end = b + kRun;
  while (to < end && p.offsets[to + 1] - p.offsets[to] <= kRunItems &&
         p.offsets[to + 1] - p.offsets[b] <= kRun) {
    ++to;
  }
  if (to == b) return b;
  alignas(64) float converted[kItems * kMaxSpan];
  const std::int64_t first = p.offsets[b], items = p.offsets[to] - first;
  memset(run.columns, 0, (items + 16) * sizeof *run.columns);  // class 0
  const Projection out{packed_weights, run.columns, kRunPitch, converted, run.norm2};
  project_columns_for(p.C, false)(p, out, first, first + items, 0);
  if (p.attention_dtype == kFloat32 && p.attention_stride_t == 1) {
    memcpy(run.scores, static_cast<const float*>(p.attention) + first, items * sizeof *run.scores);
  } else {
    load_elements(p.attention, p.attention_dtype, first * p.attention_stride_t,
                  p.attention_stride_t, items, run.scores);
  }
  return to;
}

}  // namespace
}  // namespace fae::cpu
