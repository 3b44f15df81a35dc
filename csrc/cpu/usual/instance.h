// What the usual way keeps of an instance: contributions by class, each less that to class 0, and
// rows of margins in the place of those of contributions.
#pragma once

#include "cpu/instance.h"
#include "cpu/simd/register.h"

namespace fae::cpu {
namespace {

struct UsualInstance : Instance {
  bool usual;             // whether the instance takes this way, else the general one
  bool compact;           // whether these are floats
  bool bounded;           // whether norm2 and with it the tolerance are upper bounds
  double lowering;        // what margins in rows are lowered by, per unit of mass
  double slack;           // error of sums of rows
  double least;           // of the weights that are not zero
  double row_sum[16];     // of all rows
  float* columns;         // [C, pitch], null where no instance takes this way
  float* packed_weights;  // [D, made a multiple of 4, at most C + 2, kWeightCopies]
  std::int64_t pitch;
};

// Packed weights fill a register each where they would not be broadcast on their way to it.
constexpr int kWeightCopies = Target::kBroadcastsLoads ? 1 : Target::kFloats;

// The curves and single results that the usual way gives; it leaves calls that want others alone.
constexpr std::uint64_t kUsualOutputs =
    output_set(OutputPlace::curve_js, OutputPlace::curve_kl, OutputPlace::curve_label_prob,
               OutputPlace::curve_mass) |
    output_set(OutputPlace::single_flip_label, OutputPlace::single_js, OutputPlace::single_kl,
               OutputPlace::single_drop);

// Whether instances of this call may take the usual way, and how wide its rows are.
inline bool usual_possible(const SweepParams& p) {
  if (p.H != 1 || p.C < 2 || p.C > 16 || p.keep != 0 || p.values_dtype == kFloat64 ||
      wants_any<(kCurveOutputs | kSingleOutputs) & ~kUsualOutputs>(p)) {
    return false;
  }
  for (std::int64_t r = 0; r < p.R; ++r) {
    switch (p.rankings[r]) {
      case kGreedy:
      case kLeaveOneOut:  // attention over many items changes so little that floats do not rank it
      case kLeaveOneOutDrop:
        return false;
      default:
        break;
    }
  }
  return true;
}

inline std::int64_t row_width(std::int64_t C) { return C <= 8 ? 8 : 16; }

// A null `columns` where no instance of the call takes this way.
inline UsualInstance lay_out_usual(const SweepParams& p, std::int64_t n, Arena& arena) {
  const bool usual = usual_possible(p);
  UsualInstance I{};
  I.packed_weights = arena.take<float>(usual ? (p.D + 3) * (p.C + 2) * kWeightCopies : 0);
  lay_out(p, n, usual ? row_width(p.C) : p.H * p.C, arena, I);
  I.pitch = ((n + 15) / 16 | 1) * 16;  // odd in cache lines, so that classes share no set
  I.columns = arena.take<float>(usual ? I.pitch * p.C : 0);
  if (!usual) I.columns = nullptr;
  return I;
}

// The largest norm of an item, or the bound of it that the projection left; read where that is no
// float32 square.
inline double largest_usual_norm(const SweepParams& p, UsualInstance& I) {
  const double norm = largest_norm(I);
  if (norm > 1e-15 && norm < 3e18) return norm;
  I.bounded = false;
  return read_norm(p, I);
}

}  // namespace
}  // namespace fae::cpu
