// Shares instances out among threads, each with scratch memory of its own.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "cpu/threads.h"

namespace fae::cpu {

constexpr std::int64_t kLine = 64;

// Hands out consecutive parts of a piece of memory; with a null base it only counts.
class Scratch {
 public:
  explicit Scratch(char* base) : base_(base) {}
  template <class T>
  T* take(std::int64_t count) {
    char* const at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (count * static_cast<std::int64_t>(sizeof(T)) + kLine - 1) / kLine * kLine;
    return reinterpret_cast<T*>(at);
  }
  std::int64_t used() const { return used_; }

 private:
  char* base_;
  std::int64_t used_ = 0;
};

template <class Params>
std::int64_t longest_instance(const Params& p) {
  std::int64_t n = 0;
  for (std::int64_t b = 0; b < p.B; ++b) n = std::max(n, p.offsets[b + 1] - p.offsets[b]);
  return n;
}

template <class Params>
std::int32_t threads_of(const Params& p) {
  // Below some thousand items a thread's wake-up costs more than it saves.
  const std::int64_t most = std::min<std::int64_t>(p.B, p.T / 4096);
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(most, 1, std::max(p.num_threads, 1)));
}

// Calls body(instance, scratch of `bytes`) for every instance; results depend on it alone.
template <class Params, class Body>
void for_each_instance(const Params& p, std::int64_t bytes, Body body) {
  const auto address = reinterpret_cast<std::uintptr_t>(p.workspace);
  char* const base = reinterpret_cast<char*>((address + kLine - 1) / kLine * kLine);
  std::atomic<std::int64_t> next{0};
  run_on_threads(threads_of(p), [&](std::int32_t thread) {
    for (std::int64_t b = next++; b < p.B; b = next++) body(b, base + thread * bytes);
  });
}

}  // namespace fae::cpu
