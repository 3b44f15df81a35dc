// Plain parameter structs of the native operators: addresses, sizes, strides and dtype tags.
// Every backend (CPU engine, CUDA kernels, the CUDA host emulator) takes the same struct, so that
// one Python adapter and one set of contract tests serve them all. All strides are in elements.
#pragma once

#include <cstdint>

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

  // Outputs, contiguous.
  std::int64_t* label;           // [B]
  void* probabilities;           // real [B, C]
  std::int64_t* status;          // [B]
  std::int64_t* first_flip;      // [R, B]
  std::int64_t* flip_label;      // [R, B]
  double* removed_mass;          // [R, B]
  void* curve_js;                // real [R, T + B]: point k of instance b is at offsets[b] + b + k
  void* curve_kl;                // real [R, T + B]
  void* curve_label_prob;        // real [R, T + B]
  double* curve_mass;            // [R, T + B]
  std::int64_t* curve_decision;  // [R, T + B]
  void* curve_logits;            // real [R, T + B, C]
  std::int64_t* order;           // [R, T]: the orders used, positions within the instance
  std::int64_t* single_flip_label;   // [T], -1 where erasing the item alone does not flip
  void* single_js;                   // real [T]
  void* single_drop;                 // real [T]
  std::int64_t* minimal_size;        // [B]
  std::int64_t* minimal_flip_label;  // [B]
  std::int64_t* minimal_order;       // [T]

  // Scratch memory, sized by the operator's workspace query.
  void* workspace;
  std::int64_t workspace_bytes;
  std::int32_t num_threads;  // CPU only
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
