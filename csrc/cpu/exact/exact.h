// Answers that need no search, from what an instance's items contribute: envelopes of all rankings,
// Shapley values, sufficient sets, greedy removal. Each takes weights and contributions as they
// stand, in float64, so that nothing here depends on the values' type or width, nor on an
// instruction set.
//
// Axes: B instances, T items, C classes, K outputs (margins of the label over each rival, or one
// output), P points, R rankings. None allocates: scratch memory is asked for and passed in.
#pragma once

#include <cstdint>

#include "fastattnerase/params.h"

namespace fae::cpu {

// Bits of `status` whose instances have no answer: every result is NaN, or -1.
constexpr std::int64_t kUnanswered = kNonFinite | kUnderflow | kInvalid;

struct EnvelopeParams {
  std::int64_t B, T, K, P, R;
  const std::int64_t* offsets;        // [B + 1]
  const std::int64_t* status;         // [B]
  const double* weights;              // [T], 0 or more
  const double* outputs;              // [T, K] what each item gives alone
  const double* empty;                // [B, K] what is there without mass
  const std::int64_t* point_offsets;  // [B + 1]
  const std::int64_t* kept;           // [P] items kept at a point, 0 … n
  const std::int64_t* orders;         // [R, T], most important first
  std::int32_t keep;                  // 1: the first items of an order are kept, 0: the last
  double* lower;                      // [P, K]
  double* upper;                      // [P, K]
  double* curves;                     // [R, P] the least output over K
  void* workspace;
  std::int64_t workspace_bytes;
  std::int32_t num_threads;
};

struct ShapleyParams {
  std::int64_t B, T, C;
  const std::int64_t* offsets;  // [B + 1]
  const std::int64_t* status;   // [B]
  const double* log_weights;    // [T], -inf for none
  const double* contributions;  // [T, C]
  const double* tolerance;      // [1] of the largest value
  double* values;               // [T, C]
  double* error;                // [B] the largest change by the last refinement
  double* efficiency;           // [B] the largest |sum of values - whole| over classes
  std::int64_t* nodes;          // [B] of the last refinement
  void* workspace;
  std::int64_t workspace_bytes;
  std::int32_t num_threads;
};

struct SufficientParams {
  std::int64_t B, T, K;
  const std::int64_t* offsets;  // [B + 1]
  const std::int64_t* status;   // [B]
  const double* weights;        // [T], 0 or more
  const double* margins;        // [T, K] of the label over each rival, biases included
  const std::int64_t* wins;     // [B, K] 1 where the rival wins a tie
  const double* tolerance;      // [B] of near-ties, per unit of mass
  std::int64_t* size;           // [B]
  std::int64_t* least;          // [B] no smaller set suffices
  std::int64_t* near;           // [B] 1 where a sum that decided is nearer to zero than tolerance
  std::int64_t* order;          // [T] the set, then the rest by position
  void* workspace;
  std::int64_t workspace_bytes;
  std::int32_t num_threads;
};

struct GreedyParams {
  std::int64_t B, T, K;
  const std::int64_t* offsets;  // [B + 1]
  const std::int64_t* status;   // [B]
  const double* weights;        // [T], 0 or more
  const double* margins;        // [T, K] of the label over each rival, biases included
  const double* empty;          // [B, K] what is there without mass
  const std::int64_t* wins;     // [B, K] 1 where the rival wins a tie
  const double* tolerance;      // [B] of near-ties, per unit of mass
  std::int64_t steps;           // items removed at most, -1: all
  std::int32_t until_flip;      // 1: no further than the first flip
  std::int64_t* order;          // [T] those removed, then the rest by position
  std::int64_t* removed;        // [B]
  std::int64_t* certain;        // [B] steps before the first whose next best is within tolerance
  void* workspace;
  std::int64_t workspace_bytes;
  std::int32_t num_threads;
};

std::int64_t envelope_workspace_bytes(const EnvelopeParams& p);
void envelope(const EnvelopeParams& p);
std::int64_t shapley_workspace_bytes(const ShapleyParams& p);
void shapley(const ShapleyParams& p);
std::int64_t sufficient_workspace_bytes(const SufficientParams& p);
void sufficient(const SufficientParams& p);
std::int64_t greedy_workspace_bytes(const GreedyParams& p);
void greedy(const GreedyParams& p);

// The ranking greedy of one instance within a sweep; `memory` is aligned to 64 bytes.
std::int64_t greedy_items_bytes(std::int64_t n, std::int64_t K);
void greedy_items(const double* weights, const double* margins, const double* empty, std::int64_t n,
                  std::int64_t K, std::uint32_t* order, char* memory);

}  // namespace fae::cpu
