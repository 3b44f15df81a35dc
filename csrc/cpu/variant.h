// What one instruction-set variant of the engine offers to the code that shares out the work.
#pragma once

#include <cstdint>

#include "cpu/engine.h"

namespace fae::cpu {

// One sweep's parameters and what is computed once for all instances.
struct Context {
  SweepParams p;
  double max_head_norm;                     // max_c ||W_c||
  const PermuteParams* permuted = nullptr;  // where weights are permuted
};

constexpr std::int64_t kGroup = 4;  // rankings that are scanned together

// An instance passes through: load, project (any split of its items), originate, then in any order
// and on any thread the rankings and the minimal set. `shared` holds the instance, `work` what one
// thread needs beside it. All addresses are aligned to 64 bytes.
struct Variant {
  const char* name;
  std::int64_t (*shared_bytes)(const SweepParams& p, std::int64_t n);
  std::int64_t (*work_bytes)(const SweepParams& p, std::int64_t n);
  // Instances [begin, end), start to end.
  Error (*run)(const Context& c, std::int64_t begin, std::int64_t end, char* shared, char* work);
  // One long instance in parts. `originate` also does the single items.
  Error (*load)(const Context& c, std::int64_t instance, char* shared);
  void (*project)(const Context& c, char* shared, std::int64_t begin, std::int64_t end);
  void (*originate)(const Context& c, char* shared, char* work);
  // Rankings [begin, end), at most kGroup of them; adds status bits.
  Error (*rank)(const Context& c, char* shared, char* work, std::int64_t begin, std::int64_t end,
                std::int64_t* status);
  void (*minimal)(const Context& c, char* shared, char* work, std::int64_t* status);
  void (*finish)(const Context& c, char* shared, std::int64_t status);

  // Of `shared` behind the instance, where weights are permuted.
  std::int64_t (*permute_bytes)(const SweepParams& p, std::int64_t n);

  // All rows of weights of an instance; `work` has reweigh_bytes.
  std::int64_t (*reweigh_bytes)(const SweepParams& p, std::int64_t n);
  Error (*reweigh)(const ReweighParams& q, std::int64_t instance, char* work);

  std::int64_t (*pooled_work_bytes)(const PooledParams& p, std::int64_t n);
  void (*pooled)(const PooledParams& p, std::int64_t instance, char* work);
};

// The targets, each compiled where the build has it (engine.cmake).
extern const Variant kPlain;
extern const Variant kAvx2;
extern const Variant kAvx512;
extern const Variant kNeon;
extern const Variant kWide;

const Variant& selected_variant();

}  // namespace fae::cpu
