// The table of results of a sweep: the native form of `Outputs` in fastattnerase/problem.py, which
// has the same lines (a test compares them). The fields of `SweepParams`, the reading of their
// keywords and what is written for an invalid instance follow from it.
//
// X(name, type, axes): type Integer (int64), Real (float64 where the values are, else float32) or
// Double (float64); axes B instances, C classes, H heads, T items, R rankings and P = T + B curve
// points, of which instance b has n_b + 1, the first at offsets[b] + b.
#pragma once

#include <cstdint>

#define FAE_SWEEP_OUTPUTS(X)                                                            \
  X(label, Integer, B)                                                                  \
  X(probabilities, Real, BC)                                                            \
  X(status, Integer, B)                                                                 \
  X(first_flip, Integer, RB)                                                            \
  X(flip_label, Integer, RB)                                                            \
  X(removed_mass, Double, RB)                                                           \
  X(curve_js, Real, RP)                                                                 \
  X(curve_kl, Real, RP)                                                                 \
  X(curve_label_prob, Real, RP)                                                         \
  X(curve_mass, Double, RP)                                                             \
  X(curve_decision, Integer, RP)                                                        \
  X(curve_logits, Real, RPC)                                                            \
  X(order, Integer, RT)            /* the orders used, positions within the instance */ \
  X(logits, Real, BC)              /* of the original decision */                       \
  X(weights, Double, TH)           /* normalised; NaN where not finite */               \
  X(single_flip_label, Integer, T) /* -1 where erasing the item alone does not flip */  \
  X(single_js, Real, T)                                                                 \
  X(single_kl, Real, T)                                                                 \
  X(single_drop, Real, T)                                                               \
  X(minimal_size, Integer, B)                                                           \
  X(minimal_flip_label, Integer, B)                                                     \
  X(minimal_order, Integer, T)

namespace fae {

enum class OutputType { kInteger, kReal, kDouble };
enum class OutputAxes { kB, kBC, kRB, kRP, kRPC, kRT, kT, kTH };

// What the fields of `SweepParams` point to.
using IntegerOutput = std::int64_t;
using RealOutput = void;
using DoubleOutput = double;

}  // namespace fae
