// Weights, original decision and probabilities of an instance (engine contract, sections 1, 2, 7).
//
// Mapping: a thread an item for the weights; for class sums a group of class_lanes(C) lanes a
// contiguous chunk of items, a lane a class, chunks added in order: the result depends on n and C
// alone. No device memory is touched but n attention values, C biases and the results.
#pragma once

#include "layout.cuh"

namespace fae {

// A superset: the row norms are float32 sums.
constexpr double kTieTolerance = kNearTieTolerance * 1.0001;

// Returns the status bit where `on`, else none.
FAE_DEV std::int64_t flag(bool on, StatusBit bit) {
  return on ? static_cast<std::int64_t>(bit) : 0;
}

// Counts the terms that a group of lanes adds up before the sums of groups are added.
FAE_DEV int class_chunk(int m, int C, int size) {
  const int chunk = ceil_div(m, size / class_lanes(C));
  return chunk < 8 ? 8 : chunk;
}

// Sums term(j, c) over j < m into out[c], chunk by chunk; at most eight terms, or one chunk, are
// added one after the other.
template <bool kWarp, typename S, typename Idx, typename Term>
FAE_DEV void class_sums(const Team<kWarp>& team, const View<S, Idx>& v, int m, double* out,
                        Term term) {
  const int lanes = class_lanes(v.C);
  const int group = team.rank / lanes;
  const int chunk = class_chunk(m, v.C, team.size);
  const int chunks = m > 0 ? ceil_div(m, chunk) : 0;
  if (group < chunks) {
    const int begin = group * chunk;
    const int end = begin + chunk < m ? begin + chunk : m;
#pragma unroll 1
    for (int c = team.rank % lanes; c < v.C; c += lanes) {
      double sum = 0;
      // Unrolled for device memory, where several loads have to be in flight.
#pragma unroll(sizeof(Idx) == 4 ? 8 : 2)
      for (int j = begin; j < end; ++j) sum += term(j, c);
      v.sums[static_cast<std::int64_t>(group) * v.C + c] = sum;
    }
  }
  team.sync();
#pragma unroll 1
  for (int c = team.rank; c < v.C; c += team.size) {
    double sum = 0;
#pragma unroll 1
    for (int k = 0; k < chunks; ++k) sum += v.sums[static_cast<std::int64_t>(k) * v.C + c];
    out[c] = sum;
  }
  team.sync();
}

// Finds the lowest class with the largest value.
FAE_DEV int argmax(const double* values, int C) {
  int best = 0;
#pragma unroll 1
  for (int c = 1; c < C; ++c) {
    if (values[c] > values[best]) best = c;
  }
  return best;
}

// Checks for a given order that is no permutation, a ranking score that is NaN or a negative
// weight. The weights' memory, not yet in use, marks the items seen.
template <bool kWarp, typename S, typename Idx>
FAE_NOINLINE __device__ bool has_invalid() {
  const PartView<kWarp, S, Idx> part = part_view<kWarp, S, Idx>();
  const Team<kWarp>& team = part.team;
  const View<S, Idx>& v = part.view;
  unsigned* const marks = reinterpret_cast<unsigned*>(v.a);
  bool wrong = false;
  if (!v.launch.p.is_scores) {
#pragma unroll 1
    for (int i = team.rank; i < v.n; i += team.size) wrong = wrong || v.attention(i) < 0;
  }
#pragma unroll 1
  for (int r = 0; r < v.launch.R; ++r) {
    const DeviceRanking& ranking = v.launch.rankings[r];
    if (ranking.kind == kGivenKeys) {
#pragma unroll 1
      for (int i = team.rank; i < v.n; i += team.size) {
        wrong = wrong || is_nan(load_real(ranking.data, ranking.dtype, v.t0 + i));
      }
    }
    if (ranking.kind != kGivenOrder) continue;
    const std::int64_t* order = static_cast<const std::int64_t*>(ranking.data) + v.t0;
#pragma unroll 1
    for (int w = team.rank; w < (v.n + 31) / 32; w += team.size) marks[w] = 0;
    team.sync();
#pragma unroll 1
    for (int j = team.rank; j < v.n; j += team.size) {
      const std::int64_t i = order[j];
      if (i < 0 || i >= v.n) {
        wrong = true;
      } else {
        const unsigned bit = 1u << (i & 31);
        wrong = wrong || (atomicOr(&marks[i >> 5], bit) & bit) != 0;
      }
    }
    team.sync();
  }
  return team.any(wrong);
}

// Finds normalised weights, bad items, class sums, label, probabilities and status. `norm2` is the
// largest squared norm of a row, the same on all threads.
template <bool kWarp, typename S, typename Idx>
FAE_DEV Facts find_facts(const Team<kWarp>& team, const View<S, Idx>& v, double norm2) {
  const SweepParams& p = v.launch.p;
  const int n = v.n, C = v.C;
  Facts f{};
  double top = -infinity(), bottom = infinity();
  bool bad = false;
#pragma unroll 1
  for (int i = team.rank; i < n; i += team.size) {
    const double e = v.attention(i);
    const bool lost = is_nan(e) || e == infinity() || (!p.is_scores && e == -infinity());
    if (lost) v.bad[i] |= 2;
    bad = bad || v.bad[i] != 0;
    if (lost || e == -infinity()) continue;
    top = e > top ? e : top;
    bottom = e < bottom ? e : bottom;
  }
  bool bias_bad = false;
  double largest_bias = 0, head_norm = 0;
#pragma unroll 1
  for (int c = team.rank; c < C; c += team.size) {
    v.bias[c] = load_real(p.head_bias, p.head_bias_dtype, v.b * p.head_bias_stride_b + c);
    bias_bad = bias_bad || !is_finite(v.bias[c]);
    const double norm = v.launch.class_norms[c];
    head_norm = norm > head_norm ? norm : head_norm;
    largest_bias = fabs(v.bias[c]) > largest_bias ? fabs(v.bias[c]) : largest_bias;
  }
  bad = team.any(bad);
  f.bias_finite = !team.any(bias_bad);
  f.finite = !bad && f.bias_finite;
  largest_bias = team.max(largest_bias);
  head_norm = team.max(head_norm);
  f.top_score = team.max(top);
  f.underflow = p.is_scores && f.top_score - team.min(bottom) > kUnderflowSpan;

  double total = 0;
#pragma unroll 1
  for (int i = team.rank; i < n; i += team.size) {
    double w = 0;
    if ((v.bad[i] & 2) == 0) {
      const double e = v.attention(i);
      w = !p.is_scores ? e : e > -infinity() ? exp(e - f.top_score) : 0.0;
    }
    v.a[i] = w;
    total += w;
  }
  total = team.sum(total);
  double mass = 0;
  int positives = 0;
#pragma unroll 1
  for (int i = team.rank; i < n; i += team.size) {
    const double w = total > 0 ? v.a[i] / total : 0.0;
    v.a[i] = w;
    mass += w;
    if (f.underflow ? v.score(i) > -infinity() : w > 0) ++positives;
  }
  f.mass = team.sum(mass);
  f.positives = team.sum(positives);
  f.has_mass = f.positives > 0;
  int top_item = n;
  if (f.underflow) {
#pragma unroll 1
    for (int i = n - 1 - team.rank; i >= 0; i -= team.size) {
      if (v.score(i) == f.top_score) top_item = i;
    }
  }
  f.top_item = team.min(top_item);

  f.bias_label = f.bias_finite ? argmax(v.bias, C) : -1;
  f.label = -1;
  f.status = flag(n == 0, kEmpty) | flag(n == 1, kSingle) | flag(!f.finite, kNonFinite) |
             flag(n > 0 && !f.has_mass && !bad, kZeroMass) | flag(f.underflow, kUnderflow);
  if (!f.finite) return f;

  class_sums(team, v, n, v.logits, [&](int i, int c) { return v.a[i] * v.contribution(i, c); });
#pragma unroll 1
  for (int c = team.rank; c < C; c += team.size) {
    v.logits[c] = v.bias[c] + (f.mass > 0 ? v.logits[c] / f.mass : 0.0);
  }
  team.sync();
  f.label = argmax(v.logits, C);
  const double highest = v.logits[f.label];
#pragma unroll 1
  for (int c = team.rank; c < C; c += team.size) v.prob[c] = exp(v.logits[c] - highest);
  team.sync();
  double z = 0;
#pragma unroll 1
  for (int c = 0; c < C; ++c) z += v.prob[c];
  team.sync();
  const double log_z = log(z);
#pragma unroll 1
  for (int c = team.rank; c < C; c += team.size) {
    v.prob[c] /= z;
    v.log_prob[c] = v.logits[c] - highest - log_z;
  }
  const int y = f.label;
  class_sums(team, v, n, v.margin, [&](int i, int c) { return v.a[i] * v.difference(i, y, c); });
  f.tolerance = kTieTolerance * (sqrt(norm2) * head_norm + largest_bias);
  if (f.has_mass) {
#pragma unroll 1
    for (int c = 0; c < C; ++c) {
      if (c != y && fabs(v.margin[c]) < f.tolerance) f.status |= kNearTie;
    }
  }
  return f;
}

// Finds the Facts, keeps them in the State and writes label, probabilities, logits and weights. The
// status is written when all results are known.
template <bool kWarp, typename S, typename Idx>
FAE_DEV void weigh(double norm2) {
  const PartView<kWarp, S, Idx> part = part_view<kWarp, S, Idx>();
  const View<S, Idx>& v = part.view;
  const SweepParams& p = v.launch.p;
  const Facts f = find_facts(part.team, v, norm2);
  if (part.team.leads()) {
    part.facts = f;
    write_int(p.label, v.b, f.label);
  }
#pragma unroll 1
  for (int c = part.team.rank; c < v.C; c += part.team.size) {
    write_real(p.probabilities, sizeof(S) == 8, v.b * p.C + c,
               f.finite ? v.prob[c] : not_a_number());
    write_real(p.logits, sizeof(S) == 8, v.b * p.C + c, f.finite ? v.logits[c] : not_a_number());
  }
#pragma unroll 1
  for (int i = part.team.rank; p.weights != nullptr && i < v.n; i += part.team.size) {
    p.weights[v.t0 + i] = (v.bad[i] & 2) != 0 ? not_a_number() : v.a[i];
  }
  part.team.sync();
}

// Records in the loop state that this thread saw a near-tie.
template <bool kWarp, typename S, typename Idx>
FAE_DEV void note_near(const PartView<kWarp, S, Idx>& part, bool near) {
  if (near) atomicOr(&part.state.loop.near, 1);
}

// Writes the status, with the bits of the launches before this one.
template <bool kWarp>
FAE_DEV void write_status(const Team<kWarp>& team, const Launch& launch, std::int64_t b,
                          std::int64_t status) {
  if (!team.leads() || launch.p.status == nullptr) return;
  launch.p.status[b] = status | (launch.accumulate ? launch.p.status[b] : 0);
}

// Writes -1 and NaN into everything that belongs to an instance that cannot be used; n = 0 and not
// located where the offsets do not say where its items are.
template <bool kWarp>
FAE_NOINLINE __device__ void write_invalid(const Launch& launch, bool is_double, std::int64_t b,
                                           std::int64_t t0, std::int64_t n, bool located) {
  const Team<kWarp> team(nullptr);
  const SweepParams& p = launch.p;
  const auto write = [&](void* output, OutputType type, OutputAxes axes) {
    if (output == nullptr || output == p.status) return;
    const OutputPart part =
        output_part(p, axes, b, t0, n, located ? n + 1 : 0, launch.row0, launch.R);
#pragma unroll 1
    for (std::int64_t row = 0; row < part.rows; ++row) {
#pragma unroll 1
      for (std::int64_t i = team.rank; i < part.count; i += team.size) {
        write_invalid_element(output, type, is_double, part.begin + row * part.stride + i);
      }
    }
  };
#define FAE_WRITE(name, type, axes) write(p.name, OutputType::k##type, OutputAxes::k##axes);
  FAE_SWEEP_OUTPUTS(FAE_WRITE)
#undef FAE_WRITE
  write_status(team, launch, b, kInvalid | flag(located && n == 1, kSingle));
}

}  // namespace fae
