// Which instruction-set variant runs: the widest that processor and operating system offer, unless
// FASTATTNERASE_CPU_ISA or `select_variant` says otherwise.
#include <atomic>
#include <cstdlib>
#include <stdexcept>

#include "cpu/variant.h"

namespace fae::cpu {
namespace {

// One variant of the build, and whether this processor and operating system run it.
struct Offer {
  const Variant* variant;
  bool runs;
};

// Whether AVX2, the fused multiply-add and what came with them are there; a build of other targets
// does not ask. Compilers before GCC 11 do not know F16C and LZCNT by name: no processor has BMI2
// without them.
[[maybe_unused]] bool runs_avx2() {
#if defined(__x86_64__)
  // The compiler's run-time support asks CPUID and, through XGETBV, the operating system.
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
#else
  return true;
#endif
}

// Every variant of the build, the fastest first; that of the tests last.
std::vector<Offer> offers() {
  std::vector<Offer> list;
#if defined(FAE_HAS_AVX512)
  list.push_back({&kAvx512, runs_avx2() && __builtin_cpu_supports("avx512f") &&
                                __builtin_cpu_supports("avx512bw") &&
                                __builtin_cpu_supports("avx512dq") &&
                                __builtin_cpu_supports("avx512vl")});
#endif
#if defined(FAE_HAS_AVX2)
  list.push_back({&kAvx2, runs_avx2()});
#endif
#if defined(FAE_HAS_NEON)
  list.push_back({&kNeon, true});
#endif
#if defined(FAE_HAS_PLAIN)
  list.push_back({&kPlain, true});
#endif
#if defined(FAE_HAS_WIDE)
  list.push_back({&kWide, runs_avx2()});
#endif
  return list;
}

std::vector<const Variant*> runnable() {
  std::vector<const Variant*> list;
  for (const Offer& offer : offers()) {
    if (offer.runs) list.push_back(offer.variant);
  }
  return list;
}

const Variant* find(const std::string& given) {
  const std::string name = given == "baseline" ? "plain" : given;  // what plain was called
  for (const Variant* variant : runnable()) {
    if (name == variant->name) return variant;
  }
  return nullptr;
}

std::atomic<const Variant*>& current() {
  static std::atomic<const Variant*> variant = [] {
    const char* forced = std::getenv("FASTATTNERASE_CPU_ISA");
    if (forced == nullptr || *forced == '\0') return runnable().front();
    const Variant* found = find(forced);
    if (found == nullptr) {
      std::string names;
      for (const std::string& name : variants()) names += " " + name;
      throw std::invalid_argument(std::string("FASTATTNERASE_CPU_ISA: given ") + forced +
                                  ", needed one that this machine runs:" + names);
    }
    return found;
  }();
  return variant;
}

}  // namespace

std::vector<std::string> variants() {
  std::vector<std::string> names;
  for (const Variant* variant : runnable()) names.emplace_back(variant->name);
  return names;
}

std::vector<std::string> variants_built() {
  std::vector<std::string> names;
  for (const Offer& offer : offers()) names.emplace_back(offer.variant->name);
  return names;
}

const Variant& selected_variant() { return *current().load(); }

std::string variant() { return selected_variant().name; }

bool select_variant(const std::string& name) {
  const Variant* found = find(name);
  if (found != nullptr) current() = found;
  return found != nullptr;
}

}  // namespace fae::cpu
