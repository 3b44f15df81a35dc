// Projection of an instance's rows on the classes: s[i, c] = Σ_d values[i, d] W[c, d].
//
// Mapping. A group of L lanes (8, 16 or 32, a function of the number of rows and of D alone) reads
// one row: lane q takes the vectors q, q + L, … of 16 bytes, so that a group's load is L·16
// contiguous bytes. A group works on kRows rows and kClasses classes at once: kRows independent
// 16-byte loads are in flight before the first is used, each W vector (read through L1, where it
// stays: values bypass it) serves kRows rows, each value vector kClasses classes. The partial sums
// of the lanes are added in float64 by a reduce-scatter: log2(L) exchanges that halve the array.
//
// Traffic. n·D·sizeof(V) bytes once from device memory for C <= kClasses, from L1/L2 again for each
// further tile of classes. Accuracy: a float32 partial sum spans D / L <= 128 features; longer rows
// and rows that 16-byte vectors do not fit are accumulated in float64.
//
// Ladder: v1 a thread a row, W in shared memory: uncoalesced, 4 times the sectors. v2 this.
#pragma once

#include "runtime.cuh"

namespace fae {

#if !defined(FAE_ROWS)
#define FAE_ROWS 4
#endif
constexpr int kRows = FAE_ROWS;
constexpr int kFloatSpan = 128;

template <typename V, int kVec>
struct Vector {
  V item[kVec];
};

// `kVec` consecutive elements, read once and not kept in L1.
template <typename V, int kVec>
FAE_DEV Vector<V, kVec> load_stream(const V* address) {
  Vector<V, kVec> result;
  if constexpr (sizeof(V) * kVec == 16) {
    const uint4 raw = __ldcs(reinterpret_cast<const uint4*>(address));
    memcpy(&result, &raw, 16);
  } else if constexpr (sizeof(V) * kVec == 8 && kVec > 1) {
    const uint2 raw = __ldcs(reinterpret_cast<const uint2*>(address));
    memcpy(&result, &raw, 8);
  } else {
    for (int e = 0; e < kVec; ++e) result.item[e] = address[e];
  }
  return result;
}

template <typename S, int kVec>
FAE_DEV Vector<S, kVec> load_head(const S* address) {
  Vector<S, kVec> result;
  if constexpr (sizeof(S) == 4 && kVec % 4 == 0) {
    for (int e = 0; e < kVec; e += 4) {
      const float4 raw = __ldg(reinterpret_cast<const float4*>(address + e));
      memcpy(result.item + e, &raw, 16);
    }
  } else if constexpr (sizeof(S) == 8 && kVec % 2 == 0) {
    for (int e = 0; e < kVec; e += 2) {
      const double2 raw = __ldg(reinterpret_cast<const double2*>(address + e));
      memcpy(result.item + e, &raw, 16);
    }
  } else {
    for (int e = 0; e < kVec; ++e) result.item[e] = __ldg(address + e);
  }
  return result;
}

// Adds `sums` over the lanes of a group, in float64; each lane ends with its share, handed to
// `write(index, sum)` with the index in the array it started from.
template <int kCount, int kDepth, typename Acc, typename Write>
FAE_DEV void reduce_scatter(const Acc (&sums)[kCount], int first, int offset, int lane,
                            Write write) {
  // A group has 8 lanes at least, hence three exchanges.
  if constexpr (kDepth <= 2) {
    if (offset == 0) {
#pragma unroll
      for (int j = 0; j < kCount; ++j) write(first + j, sums[j]);
      return;
    }
  }
  if constexpr (kDepth > 0) {
    constexpr int kHalf = (kCount + 1) / 2;
    const bool high = (lane & offset) != 0;
    double half[kHalf];
#pragma unroll
    for (int j = 0; j < kHalf; ++j) {
      const Acc upper = kHalf + j < kCount ? sums[(kHalf + j) % kCount] : Acc(0);
      const Acc keep = high ? upper : sums[j];
      const Acc send = high ? sums[j] : upper;
      half[j] =
          static_cast<double>(keep) + static_cast<double>(__shfl_xor_sync(kAllLanes, send, offset));
    }
    // An index that the padding made is beyond every index of the high half's owner.
    const int last = first + kCount;
    reduce_scatter<kHalf, kDepth - 1>(half, high ? first + kHalf : first, offset >> 1, lane,
                                      [&](int index, double sum) {
                                        if (index < last) write(index, sum);
                                      });
  }
}

struct RowBlock {
  const void* values;   // the first row
  std::int64_t stride;  // elements
  int n, D, C;
  const void* head;    // [C, D]
  int lanes;           // L
  int rank, size;      // of the team
  int s_stride;        // elements from one row of s to the next
  unsigned char* bad;  // [n], set to 1 where a contribution is not finite
};

// Returns the largest squared norm among the rows this thread's group read; each lane has it.
template <typename V, typename S, typename Acc, int kVec, int kClasses>
FAE_DEV double project_tile(const RowBlock& rows, S* s) {
  const V* values = static_cast<const V*>(rows.values);
  const S* head = static_cast<const S*>(rows.head);
  const int q = rows.rank % rows.lanes;
  const int group = rows.rank / rows.lanes;
  const int groups = rows.size / rows.lanes;
  const int vectors = rows.D / kVec;
  double largest = 0;
  for (int base = 0; base < rows.n; base += groups * kRows) {
    const V* row[kRows];
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      const int i = base + k * groups + group;
      row[k] = values + (i < rows.n ? i : rows.n - 1) * rows.stride;
    }
    for (int c0 = 0; c0 < rows.C; c0 += kClasses) {
      Acc sums[kRows * kClasses] = {};
      Acc squares[kRows] = {};
      int head_row[kClasses];
#pragma unroll
      for (int c = 0; c < kClasses; ++c) {
        head_row[c] = (c0 + c < rows.C ? c0 + c : rows.C - 1) * rows.D;
      }
#pragma unroll 1
      for (int u = q; u < vectors; u += rows.lanes) {
        Vector<V, kVec> x[kRows];
#pragma unroll
        for (int k = 0; k < kRows; ++k) x[k] = load_stream<V, kVec>(row[k] + u * kVec);
#pragma unroll
        for (int k = 0; k < kRows; ++k) {
#pragma unroll
          for (int e = 0; e < kVec; ++e) {
            const Acc v = to_real(x[k].item[e]);
            squares[k] = fma(v, v, squares[k]);
          }
        }
#pragma unroll
        for (int c = 0; c < kClasses; ++c) {
          const Vector<S, kVec> w = load_head<S, kVec>(head + (head_row[c] + u * kVec));
#pragma unroll
          for (int k = 0; k < kRows; ++k) {
#pragma unroll
            for (int e = 0; e < kVec; ++e) {
              sums[k * kClasses + c] = fma(static_cast<Acc>(to_real(x[k].item[e])),
                                           static_cast<Acc>(w.item[e]), sums[k * kClasses + c]);
            }
          }
        }
      }
      reduce_scatter<kRows * kClasses, 5>(sums, 0, rows.lanes >> 1, q, [&](int index, double sum) {
        const int i = base + index / kClasses * groups + group;
        const int c = c0 + index % kClasses;
        if (i >= rows.n || c >= rows.C) return;
        const S rounded = static_cast<S>(sum);
        s[static_cast<std::int64_t>(i) * rows.s_stride + c] = rounded;
        if (!is_finite(rounded)) rows.bad[i] = 1;
      });
      if (c0 == 0) {
#pragma unroll
        for (int k = 0; k < kRows; ++k) {
          double square = squares[k];
          if (sizeof(Acc) == 4 && !(square > 1e-25 && square < 1e35)) {
            // A float32 square may have left its range: once more in float64.
            square = 0;
#pragma unroll 1
            for (int u = q * kVec; u < vectors * kVec; u += rows.lanes * kVec) {
#pragma unroll 1
              for (int e = 0; e < kVec; ++e) {
                const double v = to_real(row[k][u + e]);
                square = fma(v, v, square);
              }
            }
          }
          for (int o = rows.lanes >> 1; o > 0; o >>= 1) {
            square += __shfl_xor_sync(kAllLanes, square, o);
          }
          largest = square > largest ? square : largest;
        }
      }
    }
  }
  return largest;
}

// The lanes a row: as few steps as possible for this number of rows, then as few lanes as possible.
FAE_DEV int choose_lanes(int n, int vectors, int size) {
  int best = 8, best_steps = 0x7fffffff;
  for (int lanes = 8; lanes <= 32; lanes <<= 1) {
    const int steps = ceil_div(n, size / lanes * kRows) * ceil_div(vectors, lanes);
    if (steps < best_steps) {
      best = lanes;
      best_steps = steps;
    }
  }
  return best;
}

// Projects on the widest path the addresses allow. `vector` is how many elements a load may have.
template <typename S>
FAE_NOINLINE __device__ double project_rows(RowBlock rows, std::int32_t dtype, int vector, S* s) {
  rows.lanes = choose_lanes(rows.n, rows.D / vector, rows.size);
  const bool wide = rows.D > kFloatSpan * rows.lanes;
  if constexpr (sizeof(S) == 8) {
    if (vector == 2) return project_tile<double, double, double, 2, 5>(rows, s);
    return project_tile<double, double, double, 1, 5>(rows, s);
  } else {
    switch (dtype) {
      case kFloat32:
        if (vector == 1 || wide) {
          rows.lanes = choose_lanes(rows.n, rows.D, rows.size);
          return project_tile<float, float, double, 1, 5>(rows, s);
        }
        if (rows.C <= 2) return project_tile<float, float, float, 4, 2>(rows, s);
        if (rows.C <= 5) return project_tile<float, float, float, 4, 5>(rows, s);
        return project_tile<float, float, float, 4, 10>(rows, s);
      case kBFloat16:
        if (vector == 1 || wide) {
          rows.lanes = choose_lanes(rows.n, rows.D, rows.size);
          return project_tile<BFloat16, float, double, 1, 5>(rows, s);
        }
        if (vector == 4) return project_tile<BFloat16, float, float, 4, 10>(rows, s);
        if (rows.C <= 2) return project_tile<BFloat16, float, float, 8, 2>(rows, s);
        return project_tile<BFloat16, float, float, 8, 10>(rows, s);
      default:
        if (vector == 1 || wide) {
          rows.lanes = choose_lanes(rows.n, rows.D, rows.size);
          return project_tile<Float16, float, double, 1, 5>(rows, s);
        }
        if (vector == 4) return project_tile<Float16, float, float, 4, 10>(rows, s);
        if (rows.C <= 2) return project_tile<Float16, float, float, 8, 2>(rows, s);
        return project_tile<Float16, float, float, 8, 10>(rows, s);
    }
  }
}

}  // namespace fae
