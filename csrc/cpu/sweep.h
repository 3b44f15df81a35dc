// The sweep of one instance, start to end: one body, compiled once per target (targets/),
// everything internal to that unit so that no wide code leaks out of it.
#pragma once

#include "cpu/blocks/sweep.h"
#include "cpu/minimal.h"
#include "cpu/permute.h"
#include "cpu/usual/runs.h"
#include "cpu/usual/sweep.h"

namespace fae::cpu {
namespace {

struct Shared {
  UsualInstance instance;
};

inline UsualInstance& instance_at(char* shared) {
  return reinterpret_cast<Shared*>(shared)->instance;
}

inline std::int64_t shared_bytes(const SweepParams& p, std::int64_t n) {
  Arena arena(nullptr);
  arena.take<Shared>(1);
  lay_out_usual(p, n, arena);
  return arena.used();
}

inline std::int64_t work_bytes(const SweepParams& p, std::int64_t n) {
  Arena arena(nullptr);
  lay_out_work(p, n, arena);
  if (usual_possible(p)) {
    lay_out_usual_work(p, n, arena);
    lay_out_run(p, arena);
  }
  return arena.used();
}

inline Work work_at(const SweepParams& p, std::int64_t n, char* work) {
  Arena arena(work);
  return lay_out_work(p, n, arena);
}

// Writes -1 and NaN into all results of an instance that cannot be used, and its status.
inline void write_invalid(const SweepParams& p, std::int64_t b, std::int64_t n) {
  const auto write = [&](void* output, OutputType type, OutputAxes axes) {
    if (output == nullptr || output == p.status) return;
    const OutputPart part = output_part(p, axes, b, p.offsets[b], n, n + 1, 0, p.R);
    for (std::int64_t row = 0; row < part.rows; ++row) {
      for (std::int64_t i = 0; i < part.count; ++i) {
        write_invalid_element(output, type, p.values_dtype == kFloat64,
                              part.begin + row * part.stride + i);
      }
    }
  };
#define FAE_WRITE(name, type, axes) write(p.name, OutputType::k##type, OutputAxes::k##axes);
  FAE_SWEEP_OUTPUTS(FAE_WRITE)
#undef FAE_WRITE
  if (p.status != nullptr) p.status[b] = n == 1 ? kInvalid | kSingle : kInvalid;
}

// Reads the instance's attention; `shared` must have been prepared.
inline Error load_prepared(const Context& c, std::int64_t index, char* shared) {
  const SweepParams& p = c.p;
  const std::int64_t n = p.offsets[index + 1] - p.offsets[index];
  Arena arena(shared);
  Shared* s = arena.take<Shared>(1);
  UsualInstance& I = s->instance = lay_out_usual(p, n, arena);
  load_frame(p, index, I);
  I.usual = I.columns != nullptr && n > 0 && load_usual(p, I);
  if (I.usual) return {};
  Error error = load_attention(p, I);
  if (error.fault != Fault::kNone && p.validate == 0) {
    I.invalid = true;
    error = {};
  }
  return error;
}

// What all instances of a thread share.
inline void prepare(const Context& c, char* shared) {
  if (!usual_possible(c.p)) return;
  Arena arena(shared);
  arena.take<Shared>(1);
  pack_weights(c.p, lay_out_usual(c.p, 0, arena).packed_weights);
}

inline Error load(const Context& c, std::int64_t index, char* shared) {
  prepare(c, shared);
  return load_prepared(c, index, shared);
}

inline void project(const Context& c, char* shared, std::int64_t begin, std::int64_t end) {
  UsualInstance& I = instance_at(shared);
  if (I.usual) {
    project_usual(c.p, I, begin, end);
    return;
  }
  project_rows(c.p, I, begin, end);
}

// Every item erased alone.
inline void single_items(const SweepParams& p, Instance& I, Work& w) {
  const bool wide = p.values_dtype == kFloat64;
  const StateShape shape = state_shape(p, I);
  const auto write = [&](std::int64_t i, std::int64_t label, double js, double kl, double drop) {
    if (p.single_flip_label != nullptr) p.single_flip_label[I.first + i] = label;
    if (p.single_js != nullptr) store_js(p.single_js, wide, I.first + i, js);
    if (p.single_kl != nullptr) store_real(p.single_kl, wide, I.first + i, kl);
    if (p.single_drop != nullptr) store_real(p.single_drop, wide, I.first + i, drop);
    I.single_js[i] = js;
    I.single_drop[i] = drop;
  };
  if (I.label < 0 || (I.status & kZeroMass) != 0) {
    const double real = I.label < 0 ? kNan : 0.0;
    for (std::int64_t i = 0; i < I.n; ++i) write(i, -1, real, real, real);
    return;
  }
  by_position(I.n, w.order);
  Judging& j = w.judging;
  bool near = false;
  for_each_excluded(shape, I, w.excluded, w.order, I.n, [&](std::int64_t i, const double* sums) {
    const Verdict v = judge(shape, I, sums, j.logits);
    near = near || v.near;
    state_logits(shape, I, sums, j.logits, j.relative);
    const Divergence d = diverge(I, p.C, j.relative, j.q, j.log_q);
    write(i, v.decision == I.label ? -1 : v.decision, d.js, d.kl,
          I.probability[I.label] - d.label_probability);
  });
  if (near && wants_single(p)) I.status |= kNearTie;
}

// Leaves the order of ranking r in w.order.
inline Error rank_items(const SweepParams& p, const Instance& I, std::int64_t r, Work& w) {
  const std::int64_t n = I.n;
  const std::int64_t row = p.ranking_args[r];
  switch (p.rankings[r]) {
    case kAttention:
      attention_keys(p, I, w.keys);
      order_by(w.keys, n, w.sort, w.order);
      break;
    case kGradient:
      order_by(I.gradient, n, w.sort, w.order);
      break;
    case kProduct:
      product_keys(p, I, w.keys);
      order_by(w.keys, n, w.sort, w.order);
      break;
    case kRenormalizedGradient:
      renormalized_keys(p, I, w);
      order_by(w.keys, n, w.sort, w.order);
      break;
    case kRandom: {
      const std::uint64_t stream = random_stream(p.seed, row, p.ids[I.index]);
      for (std::int64_t i = 0; i < n; ++i) w.sort.keys[0][i] = ~random_key(stream, i);
      sort_keys(w.sort, n);
      memcpy(w.order, w.sort.positions[0], n * sizeof *w.order);
      break;
    }
    case kLeaveOneOut:
      order_by(I.single_js, n, w.sort, w.order);
      break;
    case kLeaveOneOutDrop:
      order_by(I.single_drop, n, w.sort, w.order);
      break;
    case kGreedy:
      greedy_order(p, I, w);
      break;
    case kMinimal:
      minimal_set(p, I, w);
      break;
    default: {  // what the caller gives
      const Error error = given_keys(p, I, r, w);
      if (error.fault != Fault::kNone) return error;
      if (p.rankings[r] == kGivenKeys) order_by(w.keys, n, w.sort, w.order);
    }
  }
  return {};
}

// The original decision and what the rankings share.
inline void originate(const Context& c, char* shared, char* work) {
  const SweepParams& p = c.p;
  UsualInstance& I = instance_at(shared);
  if (I.invalid) return;
  I.head_norm = c.max_head_norm;
  if (I.usual) {
    if (originate_usual(p, I, work)) return;
    I.usual = I.bounded = false;
    I.label = -1;
    project_rows(p, I, 0, I.n);
  }
  Work w = work_at(p, I.n, work);
  const bool bad_item = any_bad_item(I);
  I.any_bad = bad_item || I.bad_bias;
  if (I.n > 0 && I.with_mass == 0 && !bad_item) I.status |= kZeroMass;
  if (I.any_bad) I.status |= kNonFinite;
  if (I.underflow) I.status |= kUnderflow;

  if (I.any_bad) {
    for (std::int64_t k = 0; k < p.C; ++k) {
      I.probability[k] = I.log_probability[k] = kNan;
      if (p.logits != nullptr) I.logits[k] = kNan;
    }
  } else {
    const StateShape plain{p.H, p.C, false};
    Judging& j = w.judging;
    clear(plain, j.state);
    for (std::int64_t i = 0; i < I.n; ++i) add(plain, I, i, j.state);
    plain_logits(plain, I, j.state, j.logits);
    if (p.logits != nullptr) memcpy(I.logits, j.logits, p.C * sizeof *I.logits);
    I.label = 0;
    for (std::int64_t k = 0; k < p.C; ++k) {
      if (j.logits[k] > j.logits[I.label]) I.label = k;
    }
    for (std::int64_t k = 0; k < p.C; ++k) j.relative[k] = j.logits[k] - j.logits[I.label];
    softmax(j.relative, p.C, I.probability, I.log_probability);
    I.tolerance = tolerance_of(p, I, largest_norm(I));
    // The compared sums of k = 0, in position order.
    const StateShape shape = state_shape(p, I);
    clear(shape, j.state);
    for (std::int64_t i = 0; i < I.n; ++i) add(shape, I, i, j.state);
    if (judge(shape, I, j.state, j.logits).near) I.status |= kNearTie;
  }
  const Wanted want = wanted(p);
  if (want.gradient) gradient_keys(p, I);
  if (want.single) single_items(p, I, w);
}

inline Error rank_one(const SweepParams& p, const Instance& I, std::int64_t r, Work& w,
                      std::int64_t* status) {
  const std::int64_t b = I.index;
  const Error error = rank_items(p, I, r, w);
  if (error.fault != Fault::kNone) return error;
  const Flip flip = scan(p, I, w.order, r, w.judging);
  if (flip.near) *status |= kNearTie;
  if (p.first_flip != nullptr) p.first_flip[r * p.B + b] = flip.first;
  if (p.flip_label != nullptr) p.flip_label[r * p.B + b] = flip.label;
  if (p.removed_mass != nullptr) {
    double mass = kNan;
    if (flip.first >= 0) {
      mass = p.keep != 0 ? erased_mass(I, w.order, flip.first, I.n)
                         : erased_mass(I, w.order, 0, flip.first);
    }
    p.removed_mass[r * p.B + b] = mass;
  }
  if (p.order != nullptr) write_order(I, w.order, p.order + r * p.T);
  return {};
}

inline Error rank(const Context& c, char* shared, char* work, std::int64_t begin, std::int64_t end,
                  std::int64_t* status) {
  const SweepParams& p = c.p;
  const UsualInstance& I = instance_at(shared);
  if (I.invalid) return {};
  Error error;
  if (I.usual) error = rank_group(p, I, work, begin, end, status);
  if (!I.usual) {
    Work w = work_at(p, I.n, work);
    for (std::int64_t r = begin; r < end && error.fault == Fault::kNone; ++r) {
      error = rank_one(p, I, r, w, status);
    }
  }
  if (error.fault != Fault::kNone && p.validate == 0) {
    *status |= kInvalid;
    error = {};
  }
  return error;
}

inline void minimal(const Context& c, char* shared, char* work, std::int64_t* status) {
  const SweepParams& p = c.p;
  const UsualInstance& I = instance_at(shared);
  if (I.invalid || !wants_minimal(p)) return;
  Work w = work_at(p, I.n, work);
  const Minimal m = I.usual ? minimal_of_usual(p, I, work, &w.order) : minimal_set(p, I, w);
  if (m.near) *status |= kNearTie;
  if (p.minimal_size != nullptr) p.minimal_size[I.index] = m.size;
  if (p.minimal_flip_label != nullptr) p.minimal_flip_label[I.index] = m.label;
  if (p.minimal_order != nullptr) write_order(I, w.order, p.minimal_order);
}

inline void finish(const Context& c, char* shared, std::int64_t status) {
  const SweepParams& p = c.p;
  const UsualInstance& I = instance_at(shared);
  if (I.invalid || (status & kInvalid) != 0) {
    write_invalid(p, I.index, I.n);
    return;
  }
  if (p.label != nullptr) p.label[I.index] = I.label;
  if (p.status != nullptr) p.status[I.index] = I.status | status;
  for (std::int64_t k = 0; p.probabilities != nullptr && k < p.C; ++k) {
    store_real(p.probabilities, p.values_dtype == kFloat64, I.index * p.C + k, I.probability[k]);
  }
  for (std::int64_t k = 0; p.logits != nullptr && k < p.C; ++k) {
    store_real(p.logits, p.values_dtype == kFloat64, I.index * p.C + k, I.logits[k]);
  }
  for (std::int64_t i = 0; p.weights != nullptr && i < I.n; ++i) {
    const bool given = (I.bad[i] & kBadAttention) == 0;
    for (std::int64_t h = 0; h < p.H; ++h) {
      p.weights[(I.first + i) * p.H + h] = given ? I.a[i * p.H + h] : kNan;
    }
  }
}

// Everything of one instance whose items are projected.
inline Error complete(const Context& c, char* shared, char* work) {
  originate(c, shared, work);
  std::int64_t status = 0;
  for (std::int64_t r = 0; r < c.p.R; r += kGroup) {
    const std::int64_t to = r + kGroup < c.p.R ? r + kGroup : c.p.R;
    const Error error = rank(c, shared, work, r, to, &status);
    if (error.fault != Fault::kNone) return error;
  }
  minimal(c, shared, work, &status);
  if (c.permuted != nullptr) {
    UsualInstance& I = instance_at(shared);
    status |= permute(*c.permuted, I, shared + shared_bytes(c.p, I.n));
  }
  finish(c, shared, status);
  return {};
}

inline Error run_alone(const Context& c, std::int64_t b, char* shared, char* work) {
  const Error error = load_prepared(c, b, shared);
  if (error.fault != Fault::kNone) return error;
  project(c, shared, 0, c.p.offsets[b + 1] - c.p.offsets[b]);
  return complete(c, shared, work);
}

// Instances projected in runs where they are short, and swept in registers where they are shorter.
inline Error run_usual(const Context& c, std::int64_t begin, std::int64_t end, char* shared,
                       char* work) {
  const SweepParams& p = c.p;
  Arena arena(shared);
  arena.take<Shared>(1);
  const float* packed_weights = lay_out_usual(p, 0, arena).packed_weights;
  Arena run_arena(work);
  const RunMemory run = lay_out_run(p, run_arena);
  char* const rest = work + run_arena.used();
  const bool in_blocks = c.permuted == nullptr && blocks_possible(p);
  unsigned char general[kRun];  // of the run's instances, whether they go one by one
  for (std::int64_t b = begin; b < end;) {
    const std::int64_t to = project_run(p, packed_weights, run, b, end);
    if (to == b) {
      const Error error = run_alone(c, b++, shared, rest);
      if (error.fault != Fault::kNone) return error;
      continue;
    }
    if (in_blocks) {
      sweep_short(c, run, b, to, general);
    } else {
      memset(general, 1, to - b);
    }
    const std::int64_t run_first = p.offsets[b], run_begin = b;
    for (; b < to; ++b) {
      if (general[b - run_begin] == 0) continue;
      const Error error = load_prepared(c, b, shared);
      if (error.fault != Fault::kNone) return error;
      UsualInstance& I = instance_at(shared);
      if (I.usual) {
        I.columns = run.columns + (p.offsets[b] - run_first);
        I.pitch = kRunPitch;
        I.bounded = false;
        for (std::int64_t i = 0; i < I.n; ++i) {
          const float norm2 = run.norm2[p.offsets[b] - run_first + i];
          if (i == 0 || norm2 > I.norm2[0]) I.norm2[0] = norm2;
        }
      } else {
        project_rows(p, I, 0, I.n);
      }
      const Error later = complete(c, shared, rest);
      if (later.fault != Fault::kNone) return later;
    }
  }
  return {};
}

inline Error run(const Context& c, std::int64_t begin, std::int64_t end, char* shared, char* work) {
  prepare(c, shared);
  if (usual_possible(c.p)) return run_usual(c, begin, end, shared, work);
  for (std::int64_t b = begin; b < end; ++b) {
    const Error error = run_alone(c, b, shared, work);
    if (error.fault != Fault::kNone) return error;
  }
  return {};
}

}  // namespace
}  // namespace fae::cpu
