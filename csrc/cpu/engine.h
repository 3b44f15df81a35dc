// The CPU engine: one fused sweep over a ragged batch, permuted and other weights, and pooled
// prefixes for callable heads. All are complete for every input of the engine contract; neither
// allocates memory that grows with the problem.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fastattnerase/params.h"

namespace fae::cpu {

// What the caller did wrong, found with `validate`.
enum class Fault : std::int32_t { kNone, kOffsets, kNegativeWeight, kNotPermutation, kNanKey };

struct Error {
  Fault fault = Fault::kNone;
  std::int64_t instance = -1;
  std::int64_t position = -1;  // within the instance
  std::int64_t row = -1;       // of `orders`, `keys` or weights
  double value = 0;            // what was given there
};

std::int64_t sweep_workspace_bytes(const SweepParams& p);
Error sweep(const SweepParams& p);

// `p.items` has the scratch memory and the threads.
std::int64_t permute_workspace_bytes(const PermuteParams& p);
Error permute(const PermuteParams& p);

// The same; a negative weight's error says in which row of weights it is.
std::int64_t reweigh_workspace_bytes(const ReweighParams& p);
Error reweigh(const ReweighParams& p);

std::int64_t pooled_workspace_bytes(const PooledParams& p);
Error pooled_prefixes(const PooledParams& p);

// The names of the variants that this machine can run, the fastest first.
std::vector<std::string> variants();
// The names of all variants of the build, the fastest first, whether this machine runs them or not.
std::vector<std::string> variants_built();
// The variant in use. FASTATTNERASE_CPU_ISA forces one at load time, `select_variant` later; it
// returns false for a name that this machine cannot run.
std::string variant();
bool select_variant(const std::string& name);

}  // namespace fae::cpu
