// The sums over all items of a list but one, for every one of them in turn.
//
//   sums without item j = (items before j) + (items after j)
//
// Never a subtraction, which would cancel where one item holds most of the mass. The sums after j
// come from one pass from the back that keeps a checkpoint every block of items, and are spread out
// again block by block on the way forward. Memory: one state a block and one an item of a block.
#pragma once

#include "cpu/state.h"

namespace fae::cpu {
namespace {

inline std::int64_t excluded_block(std::int64_t C) { return C <= 256 ? 64 : 256; }

struct Excluded {
  double* after;   // [block, state] sums after each item of the block
  double* blocks;  // [ceil(n / block) + 1, state] sums from the block's first item on
  double* before;  // [state]
  double* sums;    // [state]
};

inline Excluded lay_out_excluded(const SweepParams& p, std::int64_t n, Arena& arena) {
  const std::int64_t block = excluded_block(p.C);
  const std::int64_t size = p.H * (p.C + 3);
  Excluded x{};
  x.after = arena.take<double>((block < n ? block : n) * size);
  x.blocks = arena.take<double>(((n + block - 1) / block + 1) * size);
  x.before = arena.take<double>(size);
  x.sums = arena.take<double>(size);
  return x;
}

// Calls visit(j, sums) for j = 0 … n - 1; the list's item j is `items[j]`.
template <class Visit>
inline void for_each_excluded(const StateShape& shape, const Instance& I, Excluded x,
                              const std::uint32_t* items, std::int64_t n, Visit visit) {
  const std::int64_t block = excluded_block(shape.C);
  const std::int64_t size = shape.size();
  const std::int64_t blocks = (n + block - 1) / block;
  double* last = x.blocks + blocks * size;
  clear(shape, last);
  for (std::int64_t b = blocks - 1; b >= 0; --b) {
    double* sums = x.blocks + b * size;
    memcpy(sums, sums + size, size * sizeof(double));
    const std::int64_t end = n < (b + 1) * block ? n : (b + 1) * block;
    for (std::int64_t j = end - 1; j >= b * block; --j) add(shape, I, items[j], sums);
  }
  clear(shape, x.before);
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t begin = b * block;
    const std::int64_t end = n < begin + block ? n : begin + block;
    memcpy(x.after + (end - 1 - begin) * size, x.blocks + (b + 1) * size, size * sizeof(double));
    for (std::int64_t j = end - 1; j > begin; --j) {
      double* after = x.after + (j - 1 - begin) * size;
      memcpy(after, after + size, size * sizeof(double));
      add(shape, I, items[j], after);
    }
    for (std::int64_t j = begin; j < end; ++j) {
      merge(shape, x.before, x.after + (j - begin) * size, x.sums);
      visit(j, x.sums);
      add(shape, I, items[j], x.before);
    }
  }
}

}  // namespace
}  // namespace fae::cpu
