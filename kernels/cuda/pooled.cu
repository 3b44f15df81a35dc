// Pooled vectors of consecutive points of one ranking's curve layout, for heads that are any
// callable: pooled[m, d] = Σ_{survivors j} a_j values[j, d] / Σ_{survivors j} a_j.
//
// Mapping: a block an (instance, tile of kThreads features); a thread scans one feature over the
// items in the order in which they join the survivors, in float64, and writes the points that are
// wanted. Weights are made a tile of items at a time in shared memory. Loads and stores of a block
// are contiguous along the features.
// Traffic: n D values and M D results; the scan starts at the tail even where only some points of
// an instance are wanted, so chunks should be large. Any strides and types, H = 1.
#include "launch.cuh"

namespace fae {
namespace {

constexpr int kThreads = 128;

// Writes the pooled vectors of the wanted points.
template <typename V, typename S>
__global__ void __launch_bounds__(kThreads) pool_prefixes(const FAE_PARAMETER PooledParams p) {
  FAE_SHARED(shared);
  const Team<false> team(reinterpret_cast<double*>(shared));
  double* const scores = reinterpret_cast<double*>(shared + kTeamScratchBytes);  // of the tile
  int* const items = reinterpret_cast<int*>(scores + kThreads);
  const std::int64_t tiles = (p.D + kThreads - 1) / kThreads;
  for (std::int64_t job = blockIdx.x; job < p.B * tiles; job += gridDim.x) {
    const std::int64_t b = job / tiles;
    const std::int64_t d = job % tiles * kThreads + team.rank;
    const std::int64_t t0 = p.offsets[b], t1 = p.offsets[b + 1];
    if (t0 < 0 || t1 < t0 || t1 > p.T) continue;
    const int n = static_cast<int>(t1 - t0);
    const std::int64_t first_point = t0 + b;
    if (first_point + n < p.point_begin || first_point >= p.point_begin + p.M) continue;
    const auto attention = [&](int i) {
      return load_real(p.attention, p.attention_dtype, (t0 + i) * p.attention_stride_t);
    };
    const auto lost = [&](double e) {
      return is_nan(e) || e == infinity() || (!p.is_scores && e == -infinity());
    };
    double top = -infinity(), bottom = infinity();
    for (int i = team.rank; i < n; i += team.size) {
      const double e = attention(i);
      if (lost(e) || e == -infinity()) continue;
      top = e > top ? e : top;
      bottom = e < bottom ? e : bottom;
    }
    top = team.max(top);
    bottom = team.min(bottom);
    const bool underflow = p.is_scores && top - bottom > kUnderflowSpan;
    double total = 0;
    for (int i = team.rank; i < n; i += team.size) {
      const double e = attention(i);
      if (!lost(e)) total += !p.is_scores ? e : e > -infinity() ? exp(e - top) : 0.0;
    }
    total = team.sum(total);

    double sum = 0, mass = 0, largest = -infinity();
    bool bad = false;
    const auto write = [&](int k) {
      const std::int64_t m = first_point + k - p.point_begin;
      if (m < 0 || m >= p.M || d >= p.D) return;
      const double pooled = bad ? not_a_number() : mass > 0 ? sum / mass : 0.0;
      static_cast<S*>(p.pooled)[m * p.D + d] = static_cast<S>(pooled);
    };
    write(p.keep ? 0 : n);
    for (int base = 0; base < n; base += kThreads) {
      const int count = n - base < kThreads ? n - base : kThreads;
      team.sync();
      if (team.rank < count) {
        const int t = base + team.rank;
        const std::int64_t i = p.order[t0 + (p.keep ? t : n - 1 - t)];
        const bool inside = i >= 0 && i < n;
        items[team.rank] = inside ? static_cast<int>(i) : 0;
        // The score itself where weights underflow and the largest survivor is the scale, else a
        // weight.
        double e = inside ? attention(static_cast<int>(i)) : not_a_number();
        if (lost(e)) {
          e = not_a_number();
        } else if (!underflow) {
          e = !p.is_scores ? e : e > -infinity() ? exp(e - top) : 0.0;
          e = total > 0 ? e / total : 0.0;
        }
        scores[team.rank] = e;
      }
      team.sync();
      for (int j = 0; j < count; ++j) {
        double w = scores[j];
        if (is_nan(w)) {
          bad = true;
        } else {
          if (underflow) {
            if (w > largest) {
              const double factor = exp(largest - w);
              sum *= factor;
              mass *= factor;
              largest = w;
            }
            w = w > -infinity() ? exp(w - largest) : 0.0;
          }
          mass += w;
          if (d < p.D) {
            sum += w * static_cast<double>(to_real(static_cast<const V*>(
                           p.values)[(t0 + items[j]) * p.values_stride_t + d]));
          }
        }
        const int t = base + j;
        write(p.keep ? t + 1 : n - 1 - t);
      }
    }
  }
}

}  // namespace

void launch_pooled(const PooledParams& p, const DeviceInfo& device, void* stream) {
  if (p.M == 0) return;
  const std::int64_t tiles = (p.D + kThreads - 1) / kThreads;
  const std::int64_t grid = std::min<std::int64_t>(p.B * tiles, device.multiprocessors * 16);
  constexpr int kShared = kTeamScratchBytes + kThreads * 12;
  const auto pool = [&](auto kernel) { FAE_LAUNCH(kernel, grid, kThreads, kShared, stream, p); };
  switch (p.values_dtype) {
    case kFloat32:
      pool(pool_prefixes<float, float>);
      break;
    case kFloat64:
      pool(pool_prefixes<double, double>);
      break;
    case kBFloat16:
      pool(pool_prefixes<BFloat16, float>);
      break;
    default:
      pool(pool_prefixes<Float16, float>);
  }
}

}  // namespace fae
