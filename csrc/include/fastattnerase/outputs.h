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

// The place of each output in the table, and sets of outputs: the bit at each one's place.
enum class OutputPlace {
#define FAE_PLACE(name, type, axes) name,
  FAE_SWEEP_OUTPUTS(FAE_PLACE)
#undef FAE_PLACE
};
template <class... Places>
constexpr std::uint64_t output_set(Places... places) {
  return ((1ull << static_cast<int>(places)) | ...);
}
constexpr std::uint64_t kSingleOutputs =
    output_set(OutputPlace::single_flip_label, OutputPlace::single_js, OutputPlace::single_kl,
               OutputPlace::single_drop);
constexpr std::uint64_t kMinimalOutputs = output_set(
    OutputPlace::minimal_size, OutputPlace::minimal_flip_label, OutputPlace::minimal_order);
// A value for every prefix of every ranking.
constexpr std::uint64_t kCurveOutputs =
#define FAE_CURVE(name, type, axes)                                                  \
  (OutputAxes::k##axes == OutputAxes::kRP || OutputAxes::k##axes == OutputAxes::kRPC \
       ? output_set(OutputPlace::name)                                               \
       : 0) |
    FAE_SWEEP_OUTPUTS(FAE_CURVE) 0;
#undef FAE_CURVE

// What the fields of `SweepParams` point to.
using IntegerOutput = std::int64_t;
using RealOutput = void;
using DoubleOutput = double;

}  // namespace fae
