// Shares a batch out among threads: chunks of instances, a long instance in parts.
//
// An instance's results do not depend on which thread, chunk or part computes it, so that neither
// the thread count nor the batch around it can change a bit of them.
#include "cpu/engine.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>

#include "cpu/threads.h"
#include "cpu/variant.h"

namespace fae::cpu {
namespace {

// Below this many features and sums a thread's wake-up costs more than it saves.
constexpr std::int64_t kWorkPerThread = 200'000;
// Shorter instances are never split.
constexpr std::int64_t kLong = 8192;
constexpr std::int64_t kSplit = 4096;  // items of a long instance projected at a time

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

template <class Params>
bool valid_range(const Params& p, std::int64_t b) {
  return p.offsets[b] >= 0 && p.offsets[b] <= p.offsets[b + 1] && p.offsets[b + 1] <= p.T;
}

template <class Params>
std::int64_t longest(const Params& p) {
  std::int64_t n = 0;
  for (std::int64_t b = 0; b < p.B; ++b) {
    if (valid_range(p, b)) n = std::max(n, p.offsets[b + 1] - p.offsets[b]);
  }
  return n;
}

template <class Params>
Error check_offsets(const Params& p) {
  if (p.offsets[0] != 0) return {Fault::kOffsets, 0, 0, -1, double(p.offsets[0])};
  for (std::int64_t b = 0; b < p.B; ++b) {
    if (!valid_range(p, b)) return {Fault::kOffsets, b, 1, -1, double(p.offsets[b + 1])};
  }
  if (p.offsets[p.B] != p.T) return {Fault::kOffsets, p.B, 0, -1, double(p.offsets[p.B])};
  return {};
}

std::int64_t work_of(const SweepParams& p, std::int64_t permutations) {
  const double items = static_cast<double>(p.T + p.B);
  const double orders = static_cast<double>(p.R) + static_cast<double>(permutations) + 1;
  const double work =
      items * (static_cast<double>(p.H * p.D) + 8.0 * orders * static_cast<double>(p.C + 8));
  return work > 1e18 ? static_cast<std::int64_t>(1e18) : static_cast<std::int64_t>(work);
}

std::int32_t threads_for(std::int64_t work, std::int32_t limit) {
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(work / kWorkPerThread, 1, std::max(limit, 1)));
}

template <class T>
double largest_row_norm(const void* weight, std::int64_t rows, std::int64_t columns) {
  const T* w = static_cast<const T*>(weight);
  double largest = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (std::int64_t k = 0; k < columns; ++k) {
      sum += static_cast<double>(w[r * columns + k]) * static_cast<double>(w[r * columns + k]);
    }
    largest = std::max(largest, sum);
  }
  return std::sqrt(largest);
}

constexpr std::int64_t kAlign = 64;

char* aligned(void* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  return reinterpret_cast<char*>((address + kAlign - 1) / kAlign * kAlign);
}

struct Memory {
  char* base;
  std::int64_t shared, work;  // bytes a thread
  char* shared_of(std::int32_t thread) const { return base + thread * (shared + work); }
  char* work_of(std::int32_t thread) const { return shared_of(thread) + shared; }
};

// A call's sweep, and its permutations where it has them.
struct Call {
  const SweepParams& p;
  const PermuteParams* permuted;
  const Variant& v = selected_variant();
  std::int32_t threads() const {
    return threads_for(work_of(p, permuted != nullptr ? permuted->P : 0), p.num_threads);
  }
};

Memory memory_of(const Call& call) {
  const std::int64_t n = longest(call.p);
  const std::int64_t more = call.permuted != nullptr ? call.v.permute_bytes(call.p, n) : 0;
  return {aligned(call.p.workspace), call.v.shared_bytes(call.p, n) + more,
          call.v.work_bytes(call.p, n)};
}

// The error of the first instance that has one, whatever the threads' timing.
class FirstError {
 public:
  bool before(std::int64_t instance) const { return instance_.load() < instance; }
  void report(const Error& error) {
    if (error.fault == Fault::kNone) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error.instance < instance_.load()) {
      instance_ = error.instance;
      error_ = error;
    }
  }
  Error get() const { return error_; }

 private:
  std::atomic<std::int64_t> instance_{kNone};
  std::mutex mutex_;
  Error error_;
};

// One instance, its items projected and its rankings done by all threads.
void sweep_long(const Context& c, const Variant& v, const Memory& m, std::int32_t threads,
                std::int64_t b, FirstError& errors) {
  char* shared = m.shared_of(0);
  const std::int64_t n = c.p.offsets[b + 1] - c.p.offsets[b];
  const Error error = v.load(c, b, shared);
  if (error.fault != Fault::kNone) {
    errors.report(error);
    return;
  }
  std::atomic<std::int64_t> next{0};
  run_on_threads(threads, [&](std::int32_t) {
    for (std::int64_t i = kSplit * next++; i < n; i = kSplit * next++) {
      v.project(c, shared, i, std::min(n, i + kSplit));
    }
  });
  v.originate(c, shared, m.work_of(0));
  // Groups of rankings, then the minimal set; a group is what one thread scans together.
  const std::int64_t group = std::clamp<std::int64_t>((c.p.R + threads - 1) / threads, 1, kGroup);
  const std::int64_t groups = (c.p.R + group - 1) / group;
  const bool minimal = c.p.minimal_size != nullptr || c.p.minimal_flip_label != nullptr ||
                       c.p.minimal_order != nullptr;
  std::atomic<std::int64_t> status{0};
  Error first;
  std::int64_t first_group = kNone;
  std::mutex mutex;
  next = 0;
  run_on_threads(threads, [&](std::int32_t thread) {
    for (std::int64_t g = next++; g < groups + (minimal ? 1 : 0); g = next++) {
      std::int64_t bits = 0;
      Error found;
      if (g < groups) {
        found = v.rank(c, shared, m.work_of(thread), g * group, std::min(c.p.R, (g + 1) * group),
                       &bits);
      } else {
        v.minimal(c, shared, m.work_of(thread), &bits);
      }
      status |= bits;
      const std::lock_guard<std::mutex> lock(mutex);
      if (found.fault != Fault::kNone && g < first_group) {
        first = found;
        first_group = g;
      }
    }
  });
  errors.report(first);
  if (first.fault == Fault::kNone) v.finish(c, shared, status);
}

// Asks for large pages where a piece of memory is about to be written for the first time: a page
// fault every 4 KiB costs as much as the results themselves, and random reads of the rows of a long
// instance miss the translation cache. Only whole large pages inside the piece are meant.
void prefer_large_pages(const void* memory, std::int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr std::uintptr_t kLargePage = 1 << 21;
  const auto begin =
      (reinterpret_cast<std::uintptr_t>(memory) + kLargePage - 1) & ~(kLargePage - 1);
  const auto end = (reinterpret_cast<std::uintptr_t>(memory) + bytes) & ~(kLargePage - 1);
  // A hint: where the kernel refuses it, nothing is lost.
  if (memory != nullptr && begin < end) {
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  }
#else
  static_cast<void>(memory);
  static_cast<void>(bytes);
#endif
}

void prefer_large_pages(const SweepParams& p) {
  prefer_large_pages(p.workspace, p.workspace_bytes);
}

// Writes -1 and NaN into all results of a batch whose offsets are wrong, until valid instances
// overwrite theirs.
void write_all_invalid(const SweepParams& p) {
  const auto write = [&](void* output, OutputType type, OutputAxes axes) {
    if (output == nullptr || output == p.status) return;
    // All instances as one: what there is of B instances with T items and T + B points.
    const std::int64_t instances =
        axes == OutputAxes::kB || axes == OutputAxes::kBC || axes == OutputAxes::kRB ? p.B : 1;
    const OutputPart part = output_part(p, axes, 0, 0, p.T, p.T + p.B, 0, p.R);
    const std::int64_t count = part.rows * part.count * instances;
    for (std::int64_t i = 0; i < count; ++i) {
      write_invalid_element(output, type, p.values_dtype == kFloat64, i);
    }
  };
#define FAE_WRITE(name, type, axes) write(p.name, OutputType::k##type, OutputAxes::k##axes);
  FAE_SWEEP_OUTPUTS(FAE_WRITE)
#undef FAE_WRITE
  if (p.status != nullptr) std::fill(p.status, p.status + p.B, kInvalid);
}

void write_all_invalid(const PermuteParams& q) {
  for (std::int64_t i = 0; i < q.P * q.items.B; ++i) {
    write_invalid_element(q.tvd, OutputType::kReal, q.items.values_dtype == kFloat64, i);
  }
  std::fill(q.flips, q.flips + q.items.B, -1);
}

std::int64_t workspace_bytes(const Call& call) {
  if (call.p.B == 0) return 0;
  const Memory m = memory_of(call);
  return call.threads() * (m.shared + m.work) + kAlign;
}

Error run(const Call& call) {
  const SweepParams& p = call.p;
  if (p.B == 0) return {};
  const Error offsets = check_offsets(p);
  if (offsets.fault != Fault::kNone) {
    if (p.validate != 0) return offsets;
    write_all_invalid(p);
    if (call.permuted != nullptr) write_all_invalid(*call.permuted);
  }
  prefer_large_pages(p);
  const Variant& v = call.v;
  const Memory m = memory_of(call);
  const std::int32_t threads = call.threads();
  Context c{p,
            p.values_dtype == kFloat64 ? largest_row_norm<double>(p.head_weight, p.C, p.H * p.D)
                                       : largest_row_norm<float>(p.head_weight, p.C, p.H * p.D),
            call.permuted};

  // Chunks of consecutive instances of about equal work; a long instance is a chunk of its own.
  const std::int64_t items = std::max<std::int64_t>(1, (p.T + p.B) / (threads * 16));
  const auto is_long = [&](std::int64_t b) {
    if (threads == 1 || call.permuted != nullptr || !valid_range(p, b)) return false;
    const std::int64_t n = p.offsets[b + 1] - p.offsets[b];
    return n >= kLong && n > p.T / (2 * threads);
  };
  FirstError errors;
  std::int64_t next_instance = 0;
  std::mutex mutex;
  const auto grab = [&](std::int64_t* begin, std::int64_t* end) {
    const std::lock_guard<std::mutex> lock(mutex);
    std::int64_t b = next_instance;
    while (b < p.B && (is_long(b) || !valid_range(p, b))) ++b;
    *begin = b;
    std::int64_t size = 0;
    while (b < p.B && size < items && valid_range(p, b) && !is_long(b)) {
      size += p.offsets[b + 1] - p.offsets[b] + 1;
      ++b;
    }
    *end = next_instance = b;
    return *begin < *end;
  };
  run_on_threads(threads, [&](std::int32_t thread) {
    std::int64_t begin, end;
    while (grab(&begin, &end)) {
      if (errors.before(begin)) return;
      errors.report(v.run(c, begin, end, m.shared_of(thread), m.work_of(thread)));
    }
  });
  for (std::int64_t b = 0; threads > 1 && b < p.B; ++b) {
    if (is_long(b) && !errors.before(b)) sweep_long(c, v, m, threads, b, errors);
  }
  return errors.get();
}

}  // namespace

std::int64_t sweep_workspace_bytes(const SweepParams& p) { return workspace_bytes({p, nullptr}); }
Error sweep(const SweepParams& p) { return run({p, nullptr}); }

std::int64_t permute_workspace_bytes(const PermuteParams& p) {
  return workspace_bytes({p.items, &p});
}
Error permute(const PermuteParams& p) { return run({p.items, &p}); }

std::int64_t reweigh_workspace_bytes(const ReweighParams& q) {
  if (q.items.B == 0) return 0;
  const std::int64_t bytes = selected_variant().reweigh_bytes(q.items, longest(q.items));
  return threads_for(work_of(q.items, q.R), q.items.num_threads) * bytes + kAlign;
}

Error reweigh(const ReweighParams& q) {
  const SweepParams& p = q.items;
  if (p.B == 0) return {};
  const Error offsets = check_offsets(p);
  if (offsets.fault != Fault::kNone) {
    if (p.validate != 0) return offsets;
    for (std::int64_t i = 0; i < q.R * p.B * p.C; ++i) {
      write_invalid_element(q.logits, OutputType::kReal, p.values_dtype == kFloat64, i);
    }
  }
  const Variant& v = selected_variant();
  const std::int64_t bytes = v.reweigh_bytes(p, longest(p));
  char* const base = aligned(p.workspace);
  FirstError errors;
  std::atomic<std::int64_t> next{0};
  run_on_threads(threads_for(work_of(p, q.R), p.num_threads), [&](std::int32_t thread) {
    for (std::int64_t b = next++; b < p.B; b = next++) {
      if (!valid_range(p, b) || errors.before(b)) continue;
      errors.report(v.reweigh(q, b, base + thread * bytes));
    }
  });
  return errors.get();
}

std::int64_t pooled_workspace_bytes(const PooledParams& p) {
  if (p.M == 0) return 0;
  const std::int64_t bytes = selected_variant().pooled_work_bytes(p, longest(p));
  return std::max(p.num_threads, 1) * bytes + kAlign;
}

Error pooled_prefixes(const PooledParams& p) {
  if (p.M == 0) return {};
  const Error offsets = check_offsets(p);
  if (offsets.fault != Fault::kNone) return offsets;
  for (std::int64_t b = 0; b < p.B; ++b) {
    const std::int64_t n = p.offsets[b + 1] - p.offsets[b];
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t given = p.order[p.offsets[b] + i];
      if (given < 0 || given >= n) return {Fault::kNotPermutation, b, i, -1, double(given)};
    }
  }
  const Variant& v = selected_variant();
  const std::int64_t bytes = v.pooled_work_bytes(p, longest(p));
  char* const base = aligned(p.workspace);
  // The instances that own points of [point_begin, point_begin + M).
  const auto first_point = [&](std::int64_t b) { return p.offsets[b] + b; };
  std::int64_t begin = 0;
  while (first_point(begin + 1) <= p.point_begin) ++begin;
  std::int64_t end = begin;
  while (end < p.B && first_point(end) < p.point_begin + p.M) ++end;
  const double work = static_cast<double>(p.M) * static_cast<double>(p.H * p.D);
  const std::int32_t threads =
      threads_for(static_cast<std::int64_t>(std::min(work, 1e18)), p.num_threads);
  std::atomic<std::int64_t> next{begin};
  run_on_threads(threads, [&](std::int32_t thread) {
    for (std::int64_t b = next++; b < end; b = next++) v.pooled(p, b, base + thread * bytes);
  });
  return {};
}

}  // namespace fae::cpu
