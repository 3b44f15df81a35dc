// Plain parameter structs of the native operators: addresses, sizes, strides and dtype tags.
// Every backend (CPU engine, CUDA kernels, the CUDA host emulator) takes the same struct, so that
// one Python adapter and one set of contract tests serve them all. All strides are in elements.
#pragma once

#include <cstdint>

#include "fastattnerase/math.h"
#include "fastattnerase/outputs.h"

namespace fae {

enum DType : std::int32_t { kFloat32 = 0, kFloat64 = 1, kBFloat16 = 2, kFloat16 = 3 };

// How the items of an instance are ordered (engine contract, section 5).
enum RankingKind : std::int32_t {
  kAttention = 0,
  kGradient = 1,
  kProduct = 2,
  kRenormalizedGradient = 3,
  kRandom = 4,           // ranking_args[r] = order number
  kLeaveOneOut = 5,      // JS divergence of erasing the item alone
  kLeaveOneOutDrop = 6,  // drop of the label's probability of erasing the item alone
  kGreedy = 7,
  kMinimal = 8,
  kGivenOrder = 9,  // ranking_args[r] = row in `orders`
  kGivenKeys = 10,  // ranking_args[r] = row in `keys`
};

// Bits of the `status` result (engine contract, section 7).
enum StatusBit : std::int64_t {
  kEmpty = 1,
  kSingle = 2,
  kZeroMass = 4,
  kNonFinite = 8,
  kUnderflow = 16,
  kNearTie = 32,
  kInvalid = 64,
};

// Finite scores that span more than this are exponentiated against a running maximum.
constexpr double kUnderflowSpan = 600;
// Compared sums nearer to zero than this, relative to the scale of the logits, are near-ties.
constexpr double kNearTieTolerance = 3e-6;

// One fused sweep over a ragged batch. Axes: B instances, T items, H attention heads, D features a
// head, C classes, R rankings. "Real" results are float64 where `values` is float64, else float32.
// An output whose address is null is not wanted.
struct SweepParams {
  // Sizes.
  std::int64_t B, T, H, D, C, R;

  // Inputs.
  const void* values;            // [T, H, D], unit last stride
  std::int64_t values_stride_t;  // elements from one item to the next
  std::int64_t values_stride_h;  // elements from one head to the next
  std::int32_t values_dtype;     // DType, any of the four
  const std::int64_t* offsets;   // [B + 1], contiguous
  const void* attention;         // [T, H], scores or weights
  std::int64_t attention_stride_t;
  std::int64_t attention_stride_h;
  std::int32_t attention_dtype;  // DType, any of the four
  std::int32_t is_scores;        // 1: scores (softmax here), 0: weights (divided by their sum here)
  const void* head_weight;       // [C, H, D], contiguous; float64 where values are, else float32
  const void* head_bias;         // [C] or [B, C], unit last stride
  std::int64_t head_bias_stride_b;    // 0 for a shared bias
  std::int32_t head_bias_dtype;       // kFloat32 or kFloat64
  const std::int64_t* ids;            // [B], what random orders depend on
  const std::int32_t* rankings;       // [R], RankingKind, in host memory
  const std::int64_t* ranking_args;   // [R], in host memory
  const std::int64_t* const* orders;  // addresses of [T] int64 orders, the array in host memory
  const void* const* keys;            // addresses of [T] ranking scores, the array in host memory
  const std::int32_t* keys_dtype;     // DType (kFloat32 or kFloat64) of each row of `keys`
  std::int64_t num_orders, num_keys;
  std::uint64_t seed;
  std::int32_t keep;      // 0: erase the first k, 1: keep only the first k
  std::int32_t validate;  // 1: stop at the first invalid instance and say which

  // Outputs, contiguous; see outputs.h for their types and axes.
#define FAE_FIELD(name, type, axes) type##Output* name;
  FAE_SWEEP_OUTPUTS(FAE_FIELD)
#undef FAE_FIELD

  // Scratch memory, sized by the operator's workspace query.
  void* workspace;
  std::int64_t workspace_bytes;
  std::int32_t num_threads;  // CPU only
};

// Says whether any output of a set is wanted.
template <std::uint64_t kSet>
FAE_HD bool wants_any(const SweepParams& p) {
#define FAE_WANTED(name, type, axes) \
  if ((kSet & output_set(OutputPlace::name)) != 0 && p.name != nullptr) return true;
  FAE_SWEEP_OUTPUTS(FAE_WANTED)
#undef FAE_WANTED
  return false;
}

// Where an output has the elements of one instance: `rows` stretches of `count` elements, the first
// at `begin`, then one every `stride`.
struct OutputPart {
  std::int64_t rows, stride, begin, count;
};

// Finds the part of instance `b`, whose `items` items begin at `first` and whose `points` curve
// points begin at first + b, in an output with these axes; of the rankings, `rows` from `row` on.
FAE_HD OutputPart output_part(const SweepParams& p, OutputAxes axes, std::int64_t b,
                              std::int64_t first, std::int64_t items, std::int64_t points,
                              std::int64_t row, std::int64_t rows) {
  const std::int64_t P = p.T + p.B;
  switch (axes) {
    case OutputAxes::kB:
      return {1, 0, b, 1};
    case OutputAxes::kBC:
      return {1, 0, b * p.C, p.C};
    case OutputAxes::kRB:
      return {rows, p.B, row * p.B + b, 1};
    case OutputAxes::kRP:
      return {rows, P, row * P + first + b, points};
    case OutputAxes::kRPC:
      return {rows, P * p.C, (row * P + first + b) * p.C, points * p.C};
    case OutputAxes::kRT:
      return {rows, p.T, row * p.T + first, items};
    case OutputAxes::kT:
      return {1, 0, first, items};
    case OutputAxes::kTH:
      return {1, 0, first * p.H, items * p.H};
  }
  return {0, 0, 0, 0};
}

// Writes what stands for "invalid" in an output: -1 in integers, NaN in other numbers.
FAE_HD void write_invalid_element(void* output, OutputType type, bool real_is_double,
                                  std::int64_t at) {
  if (type == OutputType::kInteger) {
    static_cast<std::int64_t*>(output)[at] = -1;
  } else if (type == OutputType::kDouble || real_is_double) {
    static_cast<double*>(output)[at] = not_a_number();
  } else {
    static_cast<float*>(output)[at] = static_cast<float>(not_a_number());
  }
}

// Permutation p of an instance's weights is the random order of this number and p, which no ranking
// asks for.
constexpr std::int64_t kFirstPermutation = std::int64_t{1} << 33;

// The weights of every instance permuted P times, for a linear head.
struct PermuteParams {
  SweepParams items;  // without rankings; of its outputs label, probabilities and status
  std::int64_t P;
  void* tvd;            // [P, B], float64 where values are, else float32
  std::int64_t* flips;  // [B] permutations with another decision
};

// The logits of R rows of other weights of every instance's items, for a linear head.
struct ReweighParams {
  SweepParams items;  // without rankings and outputs; their weights are those of the first row
  std::int64_t R;
  std::int64_t row_stride;  // elements from one row of weights to the next
  void* logits;             // [R, B, C], float64 where values are, else float32
};

// Pooled vectors of consecutive points of one ranking, for heads that are any callable:
// pooled[m] = sum over the survivors of the renormalised weight times the value.
struct PooledParams {
  std::int64_t B, T, H, D, M;
  const void* values;
  std::int64_t values_stride_t, values_stride_h;
  std::int32_t values_dtype;
  const std::int64_t* offsets;
  const void* attention;
  std::int64_t attention_stride_t, attention_stride_h;
  std::int32_t attention_dtype;
  std::int32_t is_scores;
  const std::int64_t* order;  // [T]
  std::int32_t keep;
  // Points are the contiguous range [point_begin, point_begin + M) of the curve layout
  // (instance b owns offsets[b] + b … offsets[b + 1] + b, both ends included).
  std::int64_t point_begin;
  void* pooled;  // [M, H, D], float64 where values are, else float32; zero where no mass survives
  void* workspace;
  std::int64_t workspace_bytes;
  std::int32_t num_threads;
};

}  // namespace fae
