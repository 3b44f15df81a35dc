// Greedy removal: at each step the item whose erasure leaves the least margin over any rival.
//
// With Z and N the sums of a and of t = a m over the survivors, item i leaves (N - t_i) / (Z -
// a_i): the slope of the line from (a_i, t_i) to (Z, N), least at a vertex of the points' upper
// hull. The items stand in blocks by weight, each with a hull a rival; a step searches every hull
// in logarithmic time and rebuilds those of the block that lost an item. O(n sqrt(n) log n) in all.
//
// Sums are of blocks, added anew, never reduced by what was removed; the one item that may hold
// most of the mass is judged by the sum of the others.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/exact/exact.h"
#include "cpu/exact/share.h"

namespace fae::cpu {
namespace {

constexpr std::int64_t kLeastBlock = 16;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::int64_t block_of(std::int64_t n) {
  const double root = std::sqrt(static_cast<double>(n));
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(2 * root), kLeastBlock, 1024);
}

struct Memory {
  std::int64_t* by_weight;  // [n] items, ascending
  std::int64_t* place;      // [n] of an item in by_weight
  double* a;                // [n] in that order
  double* t;                // [K, n]
  unsigned char* gone;      // [n] in that order
  std::int64_t* hull;       // [K, n] places of each block's vertices
  std::int64_t* vertices;   // [K, blocks] how many
  double* block_sum;        // [K + 1, blocks], the last of a
  double* sum;              // [K + 1] of the survivors
  double* rest;             // [K + 1]
};

Memory lay_out(const GreedyParams& p, std::int64_t n, Scratch& scratch) {
  const std::int64_t blocks = n / kLeastBlock + 1;  // never less for a longer instance
  Memory w{};
  w.by_weight = scratch.take<std::int64_t>(n);
  w.place = scratch.take<std::int64_t>(n);
  w.a = scratch.take<double>(n);
  w.t = scratch.take<double>(p.K * n);
  w.gone = scratch.take<unsigned char>(n);
  w.hull = scratch.take<std::int64_t>(p.K * n);
  w.vertices = scratch.take<std::int64_t>(p.K * blocks);
  w.block_sum = scratch.take<double>((p.K + 1) * blocks);
  w.sum = scratch.take<double>(p.K + 1);
  w.rest = scratch.take<double>(p.K + 1);
  return w;
}

std::int64_t bytes_of(const GreedyParams& p) {
  Scratch scratch(nullptr);
  lay_out(p, longest_instance(p), scratch);
  return scratch.used();
}

// The place of an item and the margin that its erasure leaves.
struct Candidate {
  double margin = kInfinity;
  std::int64_t place = -1;
};

class Greedy {
 public:
  Greedy(const GreedyParams& p, std::int64_t b, const Memory& w)
      : w_(w),
        n_(p.offsets[b + 1] - p.offsets[b]),
        K_(p.K),
        size_(block_of(n_)),
        blocks_((n_ + size_ - 1) / size_),
        empty_(p.empty + b * p.K) {
    const double* a = p.weights + p.offsets[b];
    for (std::int64_t i = 0; i < n_; ++i) w_.by_weight[i] = i;
    std::sort(w_.by_weight, w_.by_weight + n_,
              [a](std::int64_t x, std::int64_t y) { return a[x] != a[y] ? a[x] < a[y] : x < y; });
    for (std::int64_t j = 0; j < n_; ++j) {
      const std::int64_t i = w_.by_weight[j];
      w_.place[i] = j;
      w_.a[j] = a[i];
      w_.gone[j] = 0;
      with_mass_ += a[i] > 0;
      for (std::int64_t k = 0; k < K_; ++k) {
        w_.t[k * n_ + j] = a[i] * p.margins[(p.offsets[b] + i) * K_ + k];
      }
    }
    for (std::int64_t block = 0; block < blocks_; ++block) rebuild(block);
    top_ = n_ - 1;
    add_up();
  }

  // Whether what survives is another class's; `wins` [K] at ties.
  bool flipped(const std::int64_t* wins) const {
    bool some = false;
    for (std::int64_t k = 0; k < K_; ++k) {
      const double lead = w_.sum[K_] > 0 ? w_.sum[k] : empty_[k];
      some = some || lead < 0 || (lead == 0 && wins[k] != 0);
    }
    return some;
  }

  // The item to remove, ties by position.
  Candidate best() {
    while (top_ >= 0 && w_.gone[top_] != 0) --top_;
    Candidate best, second;
    std::int64_t block = -1;
    if (with_mass_ > 0) heavy_ = w_.a[top_] > w_.sum[K_] / 4 ? top_ : -1;
    if (with_mass_ <= 1) heavy_ = with_mass_ == 1 ? top_ : -1;
    for (std::int64_t at = 0; at < blocks_; ++at) {
      Candidate own = search(at);
      if (heavy_ >= 0 && heavy_ / size_ == at) own = lower(own, {without(heavy_), heavy_});
      if (own.place < 0) continue;
      if (better(own, best)) {
        second = best;
        best = own;
        block = at;
      } else if (better(own, second)) {
        second = own;
      }
    }
    second_ = second;
    block_ = block;
    return best;
  }

  // Removes the best and returns how far the next one was from it.
  double remove(const Candidate& best) {
    w_.gone[best.place] = 1;
    with_mass_ -= w_.a[best.place] > 0;
    rebuild(block_);
    const std::int64_t heavy = heavy_;
    Candidate next = lower(search(block_), second_);
    if (heavy >= 0 && heavy != best.place && heavy / size_ == block_) {
      next = lower(next, {without_known_, heavy});
    }
    add_up();
    return next.place < 0 ? kInfinity : next.margin - best.margin;
  }

  std::int64_t item(std::int64_t place) const { return w_.by_weight[place]; }
  bool has_mass() const { return with_mass_ > 0; }

 private:
  bool better(const Candidate& x, const Candidate& y) const {
    if (y.place < 0) return x.place >= 0;
    if (x.margin != y.margin) return x.margin < y.margin;
    return w_.by_weight[x.place] < w_.by_weight[y.place];
  }
  Candidate lower(const Candidate& x, const Candidate& y) const {
    if (x.place < 0) return y;
    return better(x, y) ? x : y;
  }

  double margin_of(const double* sums) const {
    double least = kInfinity;
    for (std::int64_t k = 0; k < K_; ++k) {
      least = std::min(least, sums[K_] > 0 ? sums[k] / sums[K_] : empty_[k]);
    }
    return least;
  }

  // What is left without an item, by additions alone.
  double without(std::int64_t place) {
    std::fill(w_.rest, w_.rest + K_ + 1, 0.0);
    if (with_mass_ > 1 || w_.a[place] == 0) {
      for (std::int64_t at = 0; at < blocks_; ++at) {
        if (at == place / size_) continue;
        for (std::int64_t k = 0; k <= K_; ++k) w_.rest[k] += w_.block_sum[k * blocks_ + at];
      }
      const std::int64_t begin = place / size_ * size_, end = std::min(n_, begin + size_);
      for (std::int64_t j = begin; j < end; ++j) {
        if (w_.gone[j] != 0 || j == place) continue;
        for (std::int64_t k = 0; k < K_; ++k) w_.rest[k] += w_.t[k * n_ + j];
        w_.rest[K_] += w_.a[j];
      }
    }
    return without_known_ = margin_of(w_.rest);
  }

  void add_up() {
    std::fill(w_.sum, w_.sum + K_ + 1, 0.0);
    for (std::int64_t k = 0; k <= K_; ++k) {
      for (std::int64_t at = 0; at < blocks_; ++at) w_.sum[k] += w_.block_sum[k * blocks_ + at];
    }
    if (with_mass_ == 0) std::fill(w_.sum, w_.sum + K_ + 1, 0.0);
  }

  // Builds the hulls and sums of a block. Points on an edge are vertices: they tie.
  void rebuild(std::int64_t block) {
    const std::int64_t begin = block * size_, end = std::min(n_, begin + size_);
    double mass = 0;
    for (std::int64_t j = begin; j < end; ++j) mass += w_.gone[j] != 0 ? 0.0 : w_.a[j];
    w_.block_sum[K_ * blocks_ + block] = mass;
    for (std::int64_t k = 0; k < K_; ++k) {
      const double* t = w_.t + k * n_;
      std::int64_t* hull = w_.hull + k * n_ + begin;
      std::int64_t count = 0;
      double sum = 0;
      for (std::int64_t j = begin; j < end; ++j) {
        if (w_.gone[j] != 0) continue;
        sum += t[j];
        // Of equal weights the largest t, of equal points the first.
        if (count > 0 && w_.a[hull[count - 1]] == w_.a[j]) {
          if (t[hull[count - 1]] >= t[j]) continue;
          --count;
        }
        while (count > 1) {
          const std::int64_t x = hull[count - 2], y = hull[count - 1];
          const double left = (t[y] - t[x]) * (w_.a[j] - w_.a[y]);
          const double right = (t[j] - t[y]) * (w_.a[y] - w_.a[x]);
          if (!(left < right)) break;
          --count;
        }
        hull[count++] = j;
      }
      w_.vertices[k * blocks_ + block] = count;
      w_.block_sum[k * blocks_ + block] = sum;
    }
  }

  // The best of a block but the heavy item, over all rivals.
  Candidate search(std::int64_t block) const {
    Candidate best;
    for (std::int64_t k = 0; k < K_; ++k) {
      const std::int64_t count = w_.vertices[k * blocks_ + block];
      if (count == 0) continue;
      const std::int64_t* hull = w_.hull + k * n_ + block * size_;
      const double N = w_.sum[k], Z = w_.sum[K_];
      const double* t = w_.t + k * n_;
      const auto left = [&](std::int64_t j) {
        const std::int64_t place = hull[j];
        if (!(Z > 0)) return empty_[k];
        return (N - t[place]) / (Z - w_.a[place]);
      };
      std::int64_t last = count - 1;
      if (hull[last] == heavy_) --last;
      if (last < 0) continue;
      // The slope falls to the tangent and rises from there.
      std::int64_t low = 0, high = last;
      while (low < high) {
        const std::int64_t middle = (low + high) / 2;
        const std::int64_t x = hull[middle], y = hull[middle + 1];
        // Not by values, of which those of light items are all alike.
        const double edge = (t[y] - t[x]) * (Z - w_.a[y]);
        if (edge > (N - t[y]) * (w_.a[y] - w_.a[x])) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      for (std::int64_t j = std::max<std::int64_t>(0, low - 1); j <= std::min(last, low + 1); ++j) {
        best = lower({left(j), hull[j]}, best);
      }
    }
    return best;
  }

  const Memory& w_;
  std::int64_t n_, K_, size_, blocks_;
  const double* empty_;
  std::int64_t with_mass_ = 0, top_ = -1, heavy_ = -1, block_ = -1;
  double without_known_ = kInfinity;
  Candidate second_;
};

void greedy_instance(const GreedyParams& p, std::int64_t b, char* memory) {
  const std::int64_t first = p.offsets[b], n = p.offsets[b + 1] - first;
  std::int64_t* order = p.order + first;
  p.removed[b] = p.certain[b] = -1;
  for (std::int64_t i = 0; i < n; ++i) order[i] = i;
  if ((p.status[b] & kUnanswered) != 0 || n == 0) return;
  Scratch scratch(memory);
  const Memory w = lay_out(p, n, scratch);
  Greedy greedy(p, b, w);
  const std::int64_t most = p.steps < 0 ? n : std::min(p.steps, n);
  std::int64_t step = 0, certain = -1;
  for (; step < most; ++step) {
    const Candidate best = greedy.best();
    order[step] = greedy.item(best.place);
    const double apart = greedy.remove(best);
    if (certain < 0 && apart < p.tolerance[b]) certain = step;
    if (p.until_flip != 0 && greedy.flipped(p.wins + b * p.K)) {
      ++step;
      break;
    }
  }
  p.removed[b] = step;
  p.certain[b] = certain < 0 ? step : certain;
  // The rest by position.
  std::int64_t at = step;
  for (std::int64_t i = 0; i < n; ++i) {
    if (w.gone[w.place[i]] == 0) order[at++] = i;
  }
}

}  // namespace

std::int64_t greedy_workspace_bytes(const GreedyParams& p) {
  return threads_of(p) * bytes_of(p) + kLine;
}

std::int64_t greedy_items_bytes(std::int64_t n, std::int64_t K) {
  GreedyParams p{};
  p.K = K;
  Scratch scratch(nullptr);
  lay_out(p, n, scratch);
  return scratch.used();
}

void greedy_items(const double* weights, const double* margins, const double* empty, std::int64_t n,
                  std::int64_t K, std::uint32_t* order, char* memory) {
  const std::int64_t offsets[] = {0, n};
  GreedyParams p{};
  p.B = 1;
  p.T = n;
  p.K = K;
  p.offsets = offsets;
  p.weights = weights;
  p.margins = margins;
  p.empty = empty;
  Scratch scratch(memory);
  const Memory w = lay_out(p, n, scratch);
  Greedy greedy(p, 0, w);
  for (std::int64_t step = 0; step < n; ++step) {
    const Candidate best = greedy.best();
    order[step] = static_cast<std::uint32_t>(greedy.item(best.place));
    greedy.remove(best);
  }
}

void greedy(const GreedyParams& p) {
  for_each_instance(p, bytes_of(p),
                    [&](std::int64_t b, char* memory) { greedy_instance(p, b, memory); });
}

}  // namespace fae::cpu
