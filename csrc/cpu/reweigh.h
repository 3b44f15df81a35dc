// Logits of other weights on the items of an instance (engine contract, section 3b).
//
//   z_{r,c} = sum_i w_{r,i} s_{i,c} / sum_i w_{r,i} + b_c
//
// Items are projected once. Rows of weights go the general way one after the other: they are read
// and summed as those of an original decision, so that memory does not depend on their number.
#pragma once

#include "cpu/state.h"

namespace fae::cpu {
namespace {

struct ReweighMemory {
  Instance instance;
  double* state;   // [H * (C + 3)]
  double* logits;  // [C]
};

inline ReweighMemory lay_out_reweigh(const SweepParams& p, std::int64_t n, Arena& arena) {
  ReweighMemory m{};
  lay_out(p, n, p.H * p.C, arena, m.instance);
  m.state = arena.take<double>(p.H * (p.C + 3));
  m.logits = arena.take<double>(p.C);
  return m;
}

inline std::int64_t reweigh_bytes(const SweepParams& p, std::int64_t n) {
  Arena arena(nullptr);
  lay_out_reweigh(p, n, arena);
  return arena.used();
}

// All rows of weights of one instance.
inline Error reweigh(const ReweighParams& q, std::int64_t b, char* work) {
  SweepParams p = q.items;
  Arena arena(work);
  ReweighMemory m = lay_out_reweigh(p, p.offsets[b + 1] - p.offsets[b], arena);
  Instance& I = m.instance;
  load_frame(p, b, I);
  project_rows(p, I, 0, I.n);
  const bool bad = I.bad_bias || any_bad_item(I);
  const std::int64_t bytes = p.attention_dtype == kFloat64   ? 8
                             : p.attention_dtype == kFloat32 ? 4
                                                             : 2;
  for (std::int64_t r = 0; r < q.R; ++r) {
    p.attention = static_cast<const char*>(q.items.attention) + r * q.row_stride * bytes;
    if (I.n > 0) memset(I.bad, 0, I.n);
    const Error error = load_attention(p, I);
    const bool negative = error.fault != Fault::kNone;
    if (negative && p.validate != 0) return {error.fault, b, error.position, r, error.value};
    if (bad || negative || any_bad_item(I)) {
      for (std::int64_t c = 0; c < p.C; ++c) m.logits[c] = kNan;
    } else {
      weighted_logits(p, I, I.a, m.state, m.logits);
    }
    for (std::int64_t c = 0; c < p.C; ++c) {
      store_real(q.logits, p.values_dtype == kFloat64, (r * p.B + b) * p.C + c, m.logits[c]);
    }
  }
  return {};
}

}  // namespace
}  // namespace fae::cpu
