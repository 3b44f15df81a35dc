// Projection of an instance's rows on the classes: s[i, c] = Σ_d values[i, d] W[c, d].
//
// Mapping where D <= kFloatSpan and rows are whole 16-byte vectors: a lane a row, see
// project_lanes. Else a group of L lanes (8, 16 or 32, a function of the number of rows and of D
// alone) reads one row: lane q takes the vectors q, q + L, … of 16 bytes, so that a group's load is
// L·16 contiguous bytes. A group works on kRows rows and kClasses classes at once: kRows
// independent 16-byte loads are in flight before the first is used, each W vector (read through L1,
// where it stays: values bypass it) serves kRows rows, each value vector kClasses classes. The
// partial sums of the lanes are added in float64 by a reduce-scatter: log2(L) exchanges that halve
// the array.
//
// Traffic. n·D·sizeof(V) bytes once from device memory for C <= kClasses, from L1/L2 again for each
// further tile of classes. Accuracy: a float32 partial sum spans D / L <= 128 features; longer rows
// and rows that 16-byte vectors do not fit are accumulated in float64.
//
// Ladder: v1 a thread a row, W in shared memory: uncoalesced, 4 times the sectors. v2 groups of
// lanes. v3 (D <= kFloatSpan) a lane a row that arrives through shared memory: no sums across
// lanes, which took 700 of 1,600 instructions of 16 rows at D = 100, C = 10.
#pragma once

#include "layout.cuh"

namespace fae {

#if !defined(FAE_ROWS)
#define FAE_ROWS 4
#endif
constexpr int kRows = FAE_ROWS;  // rows that a group of lanes projects at once
constexpr int kPackRows = 1024;  // rows for which packs choose their lanes, whatever they have

template <typename V, int kVec>
struct Vector {
  V item[kVec];
};

// Loads `kVec` consecutive elements that are read once, past L1.
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

// Loads `kVec` consecutive elements of the head through L1.
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

// Sums this lane's features over kRows rows and classes c0 … c0 + kClasses - 1.
template <typename V, typename S, typename Acc, int kVec, int kClasses>
FAE_DEV void project_features(const RowBlock& rows, const V* const (&row)[kRows], int q, int c0,
                              Acc (&sums)[kRows * kClasses], Acc (&squares)[kRows]) {
  // Features converted at a time: the other 16-bit values of a vector wait packed.
  constexpr int kPart = kVec < 4 ? kVec : 4;
  const S* head = static_cast<const S*>(rows.head) + launder(q * kVec);  // one address that moves
  const int D = rows.D;
  const int step = rows.lanes * kVec;
  int head_row[kClasses];
#pragma unroll
  for (int c = 0; c < kClasses; ++c) {
    head_row[c] = (c0 + c < rows.C ? c0 + c : rows.C - 1) * D;
  }
#pragma unroll 1
  for (int d = q * kVec; d < D; d += step, head += step) {
    // 32-bit offsets, which the compiler is not to widen ahead of the loop: 64 bits take twice the
    // registers, and adding them up is one instruction either way.
    const int at = launder(d);
    Vector<V, kVec> x[kRows];
#pragma unroll
    for (int k = 0; k < kRows; ++k) x[k] = load_stream<V, kVec>(row[k] + at);
#pragma unroll
    for (int part = 0; part < kVec; part += kPart) {
      Acc v[kRows][kPart];
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
#pragma unroll
        for (int e = 0; e < kPart; ++e) {
          v[k][e] = to_real(x[k].item[part + e]);
          squares[k] = fma(v[k][e], v[k][e], squares[k]);
        }
      }
#pragma unroll
      for (int c = 0; c < kClasses; ++c) {
        const Vector<S, kPart> w = load_head<S, kPart>(head + launder(head_row[c]) + part);
#pragma unroll
        for (int k = 0; k < kRows; ++k) {
#pragma unroll
          for (int e = 0; e < kPart; ++e) {
            sums[k * kClasses + c] =
                fma(v[k][e], static_cast<Acc>(w.item[e]), sums[k * kClasses + c]);
          }
        }
      }
    }
  }
}

// Projects rows, a group of lanes a row. Returns the largest squared norm among the rows this
// thread's group read; each lane has it. Each variant is a call, so that it has registers of its
// own; what it needs outside the loop over features it reads from shared memory again.
template <typename V, typename S, typename Acc, int kVec, int kClasses>
FAE_NOINLINE __device__ double project_tile(int at) {
  FAE_SHARED(shared);
  const RowBlock& rows = *reinterpret_cast<const RowBlock*>(shared + at);
  const int rank = static_cast<int>(threadIdx.x) & (rows.size - 1);
  const int q = rank & (rows.lanes - 1);
  double largest = 0;
#pragma unroll 1
  for (int base = 0; base < rows.n; base += rows.groups * kRows) {
    const int first = base + rank / rows.lanes;
    const V* row[kRows];
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      int i = first + k * rows.groups;
      i = i < rows.n ? i : rows.n - 1;
      if (rows.items != nullptr) i = rows.items[i];
      row[k] = launder(static_cast<const V*>(rows.values) + i * rows.stride);
    }
#pragma unroll 1
    for (int c0 = 0; c0 < rows.C; c0 += kClasses) {
      Acc sums[kRows * kClasses] = {};
      Acc squares[kRows] = {};
      project_features<V, S, Acc, kVec, kClasses>(rows, row, q, c0, sums, squares);
      reduce_scatter<kRows * kClasses, 5>(sums, 0, rows.lanes >> 1, q, [&](int index, double sum) {
        const int i = first + index / kClasses * rows.groups;
        const int c = c0 + index % kClasses;
        if (i >= rows.n || c >= rows.C) return;
        const S rounded = static_cast<S>(sum);
        static_cast<S*>(rows.s)[static_cast<std::int64_t>(i) * rows.s_stride + c] = rounded;
        if (!is_finite(rounded)) rows.bad[i] = 1;
      });
      if (c0 != 0) continue;
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        double square = squares[k];
        if (sizeof(Acc) == 4 && !(square > 1e-25 && square < 1e35)) {
          // A float32 square may have left its range: once more in float64.
          square = 0;
#pragma unroll 1
          for (int u = q; u < rows.D; u += rows.lanes) {
            const double v = to_real(row[k][u]);
            square = fma(v, v, square);
          }
        }
#pragma unroll 1
        for (int o = rows.lanes >> 1; o > 0; o >>= 1) {
          square += __shfl_xor_sync(kAllLanes, square, o);
        }
        largest = square > largest ? square : largest;
        const int i = first + k * rows.groups;
        if (q == 0 && rows.squares != nullptr && i < rows.n) rows.squares[i] = square;
      }
    }
  }
  return largest;
}

// Projects rows of up to kFloatSpan features, a lane a row, so that nothing is added across lanes.
// 64 bytes of each row at a time, and the head's of the same features, are in flight to registers
// while those before them are in shared memory, whence a lane reads 16 of its own and all lanes the
// same 16 of the head. Returns the largest squared norm among this lane's rows.
template <typename V, int kClasses>
FAE_NOINLINE __device__ double project_lanes(int at) {
  FAE_SHARED(shared);
  constexpr int kVec = 16 / static_cast<int>(sizeof(V));
  constexpr int kLoads = 4;
  constexpr int kChunk = kLoads * kVec;          // features at a time
  constexpr int kHeadVectors = kClasses * kVec;  // of 16 bytes, a chunk
  constexpr int kHeadLoads = (kHeadVectors + 31) / 32;
  constexpr int kHeadAt = 32 * kStageRow;
  const RowBlock& rows = *reinterpret_cast<const RowBlock*>(shared + at);
  const int rank = static_cast<int>(threadIdx.x) & (rows.size - 1);
  const int lane = rank & 31, D = rows.D;
  unsigned char* const stage = shared + rows.stage + (rank >> 5) * (kHeadAt + kHeadVectors * 16);
  const auto row_of = [&](int i) {
    i = i < rows.n ? i : rows.n - 1;
    if (rows.items != nullptr) i = rows.items[i];
    return static_cast<const V*>(rows.values) + i * rows.stride;
  };
  double largest = 0;
#pragma unroll 1
  for (int base = rank - lane; base < rows.n; base += rows.size) {
    const int i = base + lane;
    // A load is of 64 bytes of eight rows.
    const V* row[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      row[k] = launder(row_of(base + 8 * k + lane / 4) + lane % 4 * kVec);
    }
#pragma unroll 1
    for (int c0 = 0; c0 < rows.C; c0 += kClasses) {
      const float* head[kHeadLoads];
#pragma unroll
      for (int h = 0; h < kHeadLoads; ++h) {
        const int c = c0 + (lane + 32 * h) / kVec;
        head[h] = launder(static_cast<const float*>(rows.head) + (c < rows.C ? c : rows.C - 1) * D +
                          lane % kVec * 4);
      }
      uint4 values[kLoads] = {};
      float4 weights[kHeadLoads] = {};
      const auto load = [&](int d) {
#pragma unroll
        for (int k = 0; k < kLoads; ++k) {
          if (d + lane % 4 * kVec < D) {
            values[k] = __ldcs(reinterpret_cast<const uint4*>(row[k] + d));
          }
        }
#pragma unroll
        for (int h = 0; h < kHeadLoads; ++h) {
          if (d + lane % kVec * 4 < D) {
            weights[h] = __ldg(reinterpret_cast<const float4*>(head[h] + d));
          }
        }
      };
      float sums[kClasses] = {};
      float squares = 0;
      load(0);
#pragma unroll 1
      for (int d = 0; d < D; d += kChunk) {
        __syncwarp();
#pragma unroll
        for (int k = 0; k < kLoads; ++k) {
          unsigned char* const to = stage + (8 * k + lane / 4) * kStageRow + lane % 4 * 16;
          *reinterpret_cast<uint4*>(to) = values[k];
        }
#pragma unroll
        for (int h = 0; h < kHeadLoads; ++h) {
          if (lane + 32 * h < kHeadVectors) {
            *reinterpret_cast<float4*>(stage + kHeadAt + (lane + 32 * h) * 16) = weights[h];
          }
        }
        __syncwarp();
        load(launder(d) + kChunk);
        const int vectors = D - d < kChunk ? (D - d) / kVec : kLoads;
#pragma unroll 1
        for (int u = 0; u < vectors; ++u) {
          const uint4 raw = *reinterpret_cast<const uint4*>(stage + lane * kStageRow + u * 16);
          Vector<V, kVec> x;
          memcpy(&x, &raw, 16);
#pragma unroll
          for (int part = 0; part < kVec / 4; ++part) {
            float v[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              v[e] = to_real(x.item[4 * part + e]);
              squares = fma(v[e], v[e], squares);
            }
            const unsigned char* const of_part = stage + kHeadAt + u * (kVec * 4) + part * 16;
#pragma unroll
            for (int c = 0; c < kClasses; ++c) {
              const float4 w = *reinterpret_cast<const float4*>(of_part + c * (kVec * 16));
              sums[c] = fma(v[0], w.x, sums[c]);
              sums[c] = fma(v[1], w.y, sums[c]);
              sums[c] = fma(v[2], w.z, sums[c]);
              sums[c] = fma(v[3], w.w, sums[c]);
            }
          }
        }
      }
      if (i >= rows.n) continue;
      float* const s = static_cast<float*>(rows.s) + static_cast<std::int64_t>(i) * rows.s_stride;
      bool finite = true;
#pragma unroll
      for (int c = 0; c < kClasses; ++c) {
        if (c0 + c < rows.C) s[c0 + c] = sums[c];
        finite = finite & (fabsf(sums[c]) <= FLT_MAX);
      }
      if (!finite) rows.bad[i] = 1;
      if (c0 != 0) continue;
      double square = squares;
      if (!(squares > 1e-25f && squares < 1e35f)) {
        // A float32 square may have left its range: once more in float64.
        const V* const own = row_of(i);
        square = 0;
#pragma unroll 1
        for (int d = 0; d < D; ++d) {
          const double v = to_real(own[d]);
          square = fma(v, v, square);
        }
      }
      largest = square > largest ? square : largest;
      if (rows.squares != nullptr) rows.squares[i] = square;
    }
  }
  return largest;
}

// Chooses the lanes a row: as few steps as possible for this number of rows, then as few lanes as
// possible.
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

// Chooses the threads a row, and the width of a load: what `vector` allows, one element, added in
// float64, where the float32 sums of a lane would span more than kFloatSpan features.
template <typename S>
FAE_DEV void choose_path(RowBlock& rows, int vector) {
  // Short instances are read as packs are, so that both give the same bits.
  const int n = rows.items != nullptr || rows.n <= kMostPacked ? kPackRows : rows.n;
  rows.vector = vector;
  rows.lanes = choose_lanes(n, rows.D / vector, rows.size);
  if (sizeof(S) == 4 && vector > 1 && rows.D > kFloatSpan * rows.lanes) {
    rows.vector = 1;
    rows.lanes = choose_lanes(n, rows.D, rows.size);
  }
  rows.groups = rows.size / rows.lanes;
}

// Projects the rows of the State at `at` on the classes. 16-bit values take five classes at a time:
// ten spill, since the values are in registers twice, packed and not; they are read from L2 again
// instead, half as many bytes as float32 ones.
template <typename S>
FAE_DEV double project_rows(int at, std::int32_t dtype) {
  FAE_SHARED(shared);
  const RowBlock& rows = *reinterpret_cast<const RowBlock*>(shared + at);
  const int vector = rows.vector, C = rows.C;
  if constexpr (sizeof(S) == 8) {
    if (vector == 2) return project_tile<double, double, double, 2, 5>(at);
    return project_tile<double, double, double, 1, 5>(at);
  } else if (rows.stage >= 0) {
    switch (dtype) {
      case kFloat32:
        if (C <= 2) return project_lanes<float, 2>(at);
        if (C <= 5) return project_lanes<float, 5>(at);
        return project_lanes<float, 10>(at);
      case kBFloat16:
        if (C <= 2) return project_lanes<BFloat16, 2>(at);
        return project_lanes<BFloat16, 5>(at);
      default:
        if (C <= 2) return project_lanes<Float16, 2>(at);
        return project_lanes<Float16, 5>(at);
    }
  } else {
    switch (dtype) {
      case kFloat32:
        if (vector == 1) return project_tile<float, float, double, 1, 5>(at);
        if (C <= 2) return project_tile<float, float, float, 4, 2>(at);
        if (C <= 5) return project_tile<float, float, float, 4, 5>(at);
        return project_tile<float, float, float, 4, 10>(at);
      case kBFloat16:
        if (vector == 1) return project_tile<BFloat16, float, double, 1, 5>(at);
        if (vector == 4) return project_tile<BFloat16, float, float, 4, 5>(at);
        if (C <= 2) return project_tile<BFloat16, float, float, 8, 2>(at);
        return project_tile<BFloat16, float, float, 8, 5>(at);
      default:
        if (vector == 1) return project_tile<Float16, float, double, 1, 5>(at);
        if (vector == 4) return project_tile<Float16, float, float, 4, 5>(at);
        if (C <= 2) return project_tile<Float16, float, float, 8, 2>(at);
        return project_tile<Float16, float, float, 8, 5>(at);
    }
  }
}

// Describes n rows from `row` on, or those that `items` counts from there; `stage` is the byte of
// shared memory where they may be staged, with `room` bytes for the team.
template <typename S>
FAE_DEV RowBlock row_block(const Launch& launch, std::int64_t row, int n, int size, int s_stride,
                           S* s, unsigned char* bad, int stage, std::int64_t room,
                           const int* items = nullptr, double* squares = nullptr) {
  const SweepParams& p = launch.p;
  const int bytes = p.values_dtype == kFloat32 ? 4 : p.values_dtype == kFloat64 ? 8 : 2;
  RowBlock rows{};
  rows.values = static_cast<const unsigned char*>(p.values) + row * p.values_stride_t * bytes;
  rows.stride = p.values_stride_t;
  rows.head = p.head_weight;
  rows.s = s;
  rows.bad = bad;
  rows.items = items;
  rows.squares = squares;
  rows.n = n;
  rows.D = static_cast<int>(p.D);
  rows.C = static_cast<int>(p.C);
  rows.s_stride = s_stride;
  rows.size = size;
  choose_path<S>(rows, launch.vector);
  const int staged = launch.needs.stage;
  const bool stages = staged > 0 && launch.vector * bytes == 16 && room >= size / 32 * staged;
  rows.stage = stages ? stage : -1;
  return rows;
}

}  // namespace fae
