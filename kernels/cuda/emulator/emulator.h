// A small CUDA for the host: enough of the language that the kernels of this folder compile with an
// ordinary C++ compiler and run in tests without a GPU.
//
// One fiber is one thread; the fibers of a block run one at a time and change only at barriers and
// warp intrinsics, in an order that tests choose (`Schedule`): a value that another thread has not
// written yet, because a barrier is missing, is then read too early under at least one order.
// Blocks run one after the other in a chosen order. Shared memory is one buffer a block, filled
// with 0xFF (a NaN in every float type) before each block, with guard bytes behind it.
//
// What it cannot see: races inside one fiber's uninterrupted run, memory models weaker than
// sequential consistency, partial warps (every warp intrinsic must name all 32 lanes), bank
// conflicts and speed.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

namespace emu {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

// Threads take turns from barrier to barrier, in ascending, descending or a random order; or a warp
// goes on alone for as long as it waits for no other, the warps in a random order.
enum class Order : int { kForward = 0, kBackward = 1, kShuffled = 2, kByWarp = 3 };

// The order in which runnable fibers and blocks are taken; tests write it.
struct Schedule {
  Order order = Order::kForward;
  std::uint64_t seed = 0;
};

// Returns the schedule of the process.
Schedule& schedule();

// Counts how often threads met at a barrier or a warp intrinsic since the start of the process.
std::uint64_t meetings();

const Dim3& thread_index();
const Dim3& block_index();
const Dim3& block_size();
const Dim3& grid_size();
unsigned char* dynamic_shared();

void block_barrier();
// Hands `mine` to the warp and returns what lane `source` handed in. All 32 lanes take part.
std::uint64_t warp_exchange(unsigned mask, std::uint64_t mine, int source);
unsigned warp_ballot(unsigned mask, bool mine);
void warp_barrier(unsigned mask);

// Runs `kernel` once a thread of the grid. Throws when a barrier is not reached by all threads or
// the guard bytes behind shared memory were written.
void launch(Dim3 grid, Dim3 block, std::size_t shared_bytes, const std::function<void()>& kernel);

template <typename T>
T exchange(unsigned mask, T value, int source) {
  static_assert(sizeof(T) <= 8);
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(T));
  word = warp_exchange(mask, word, source);
  std::memcpy(&value, &word, sizeof(T));
  return value;
}

inline int lane() { return static_cast<int>(thread_index().x & 31u); }

}  // namespace emu

#define threadIdx (emu::thread_index())
#define blockIdx (emu::block_index())
#define blockDim (emu::block_size())
#define gridDim (emu::grid_size())

struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};

inline void __syncthreads() { emu::block_barrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { emu::warp_barrier(mask); }
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask) {
  return emu::exchange(mask, value, emu::lane() ^ lane_mask);
}
template <typename T>
T __shfl_sync(unsigned mask, T value, int source) {
  return emu::exchange(mask, value, source & 31);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, int delta) {
  const int source = emu::lane() - delta;
  return emu::exchange(mask, value, source < 0 ? emu::lane() : source);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, int delta) {
  const int source = emu::lane() + delta;
  return emu::exchange(mask, value, source > 31 ? emu::lane() : source);
}
inline unsigned __ballot_sync(unsigned mask, bool value) { return emu::warp_ballot(mask, value); }

template <typename T>
T __ldg(const T* address) {
  return *address;
}
template <typename T>
T __ldcs(const T* address) {
  return *address;
}
inline int __ffs(unsigned x) { return __builtin_ffs(static_cast<int>(x)); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clzll(long long x) {
  return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64;
}
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline float __uint_as_float(unsigned x) {
  float y;
  std::memcpy(&y, &x, 4);
  return y;
}
// Fibers never run at the same time, so a plain read-modify-write is atomic.
template <typename T>
T atomicAdd(T* address, T value) {
  const T old = *address;
  *address += value;
  return old;
}
template <typename T>
T atomicOr(T* address, T value) {
  const T old = *address;
  *address |= value;
  return old;
}
template <typename T>
T atomicMax(T* address, T value) {
  const T old = *address;
  if (value > old) *address = value;
  return old;
}
