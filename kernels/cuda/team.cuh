// A team: the threads that work on one instance, a warp or a whole block. Every method is called
// by all threads of the team; results are the same on all of them, and bitwise the same whatever
// the timing. After a method returns, its scratch memory may be used again at once.
#pragma once

#include "runtime.cuh"

namespace fae {

constexpr int kTeamScratchBytes = 2 * 32 * 8;  // two words a warp

template <bool kWarp>
struct Team {
  int rank;       // this thread's number in the team
  int size;       // a multiple of 32
  double* words;  // kTeamScratchBytes of shared memory, unused by a warp

  FAE_DEV explicit Team(double* scratch)
      : rank(kWarp ? launder(static_cast<int>(threadIdx.x)) & 31
                   : launder(static_cast<int>(threadIdx.x))),
        size(kWarp ? 32 : launder(static_cast<int>(blockDim.x))),
        words(scratch) {}

  // Says whether this thread is the team's first.
  FAE_DEV bool leads() const { return launder(rank) == 0; }
  FAE_DEV int lane() const { return rank & 31; }
  FAE_DEV int warp() const { return rank >> 5; }
  FAE_DEV int warps() const { return size >> 5; }

  FAE_DEV void sync() const {
    if (kWarp) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }

  // Returns x, which is equal on all threads; the vote tells the compiler so, and a loop over calls
  // needs no convergence barrier, whose state it would spill.
  FAE_DEV bool make_uniform(bool x) const { return __ballot_sync(kAllLanes, x) != 0; }

  // Reduces `value` over the team, lanes by a butterfly and then warps one after the other: always
  // in the same order.
  template <typename T, typename Op>
  FAE_DEV T reduce(T value, Op op) const {
    static_assert(sizeof(T) <= 8);
#pragma unroll 1
    for (int o = 16; o > 0; o >>= 1) value = op(value, __shfl_xor_sync(kAllLanes, value, o));
    if (kWarp) return value;
    T* slots = reinterpret_cast<T*>(words);
    if (lane() == 0) slots[warp()] = value;
    __syncthreads();
    value = slots[0];
#pragma unroll 1
    for (int w = 1; w < warps(); ++w) value = op(value, slots[w]);
    __syncthreads();
    return value;
  }
  FAE_DEV double sum(double x) const {
    return reduce(x, [](double a, double b) { return a + b; });
  }
  FAE_DEV int sum(int x) const {
    return reduce(x, [](int a, int b) { return a + b; });
  }
  FAE_DEV double max(double x) const {
    return reduce(x, [](double a, double b) { return a > b ? a : b; });
  }
  FAE_DEV double min(double x) const {
    return reduce(x, [](double a, double b) { return a < b ? a : b; });
  }
  FAE_DEV int min(int x) const {
    return reduce(x, [](int a, int b) { return a < b ? a : b; });
  }
  FAE_DEV bool any(bool x) const {
    return reduce(x ? 1 : 0, [](int a, int b) { return a | b; }) != 0;
  }

  // Returns the exclusive prefix sum of `value` over the threads; `total` is the sum over all.
  FAE_DEV double prefix_sum(double value, double& total) const {
    double up = value;
#pragma unroll 1
    for (int o = 1; o < 32; o <<= 1) {
      const double from_below = __shfl_up_sync(kAllLanes, up, o);
      if (lane() >= o) up += from_below;
    }
    double sum = __shfl_up_sync(kAllLanes, up, 1);
    if (lane() == 0) sum = 0;
    total = __shfl_sync(kAllLanes, up, 31);
    if (kWarp) return sum;
    if (lane() == 31) words[warp()] = up;
    __syncthreads();
    double before = 0;
    total = 0;
#pragma unroll 1
    for (int w = 0; w < warps(); ++w) {
      if (w == warp()) before = total;
      total += words[w];
    }
    __syncthreads();
    return before + sum;
  }

  // Finds the exclusive prefix and suffix sums of `value` over the threads, never by subtraction.
  FAE_DEV void prefix_suffix_sums(double value, double& below, double& above) const {
    double up = value, down = value;
#pragma unroll 1
    for (int o = 1; o < 32; o <<= 1) {
      const double from_below = __shfl_up_sync(kAllLanes, up, o);
      const double from_above = __shfl_down_sync(kAllLanes, down, o);
      if (lane() >= o) up += from_below;
      if (lane() + o < 32) down += from_above;
    }
    below = __shfl_up_sync(kAllLanes, up, 1);
    above = __shfl_down_sync(kAllLanes, down, 1);
    if (lane() == 0) below = 0;
    if (lane() == 31) above = 0;
    if (kWarp) return;
    if (lane() == 31) words[warp()] = up;
    __syncthreads();
    double before = 0, behind = 0;
#pragma unroll 1
    for (int w = 0; w < warp(); ++w) before += words[w];
#pragma unroll 1
    for (int w = warps() - 1; w > warp(); --w) behind += words[w];
    below = before + below;
    above = behind + above;
    __syncthreads();
  }
};

}  // namespace fae
