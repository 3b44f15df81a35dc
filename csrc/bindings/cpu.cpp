// Keyword-only bindings of the CPU engine; the caller's mistakes become ValueErrors.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>

#include "bindings/register.h"
#include "bindings/sweep_args.h"
#include "cpu/engine.h"

namespace fae {
namespace {

std::string number(double value) { return std::string(py::str(py::float_(value))); }

[[noreturn]] void raise(const cpu::Error& error) {
  const std::string where = " at position " + std::to_string(error.position) + " of instance " +
                            std::to_string(error.instance);
  switch (error.fault) {
    case cpu::Fault::kNegativeWeight: {
      const std::string row = error.row < 0 ? "" : " in row " + std::to_string(error.row);
      throw py::value_error("weights: given " + number(error.value) + where + row +
                            ", needed weights that are not negative");
    }
    case cpu::Fault::kNotPermutation: {
      const std::string row = error.row < 0 ? "" : " (order " + std::to_string(error.row) + ")";
      throw py::value_error("rankings: given position " +
                            std::to_string(static_cast<std::int64_t>(error.value)) + where + row +
                            ", needed a permutation of the instance's positions");
    }
    case cpu::Fault::kNanKey:
      throw py::value_error("rankings: given a NaN score" + where + " (scores " +
                            std::to_string(error.row) + "), needed scores that are not NaN");
    default:
      throw py::value_error("offsets: given " +
                            std::to_string(static_cast<std::int64_t>(error.value)) +
                            " at the end of instance " + std::to_string(error.instance) +
                            ", needed offsets that start at 0, never decrease and end at T");
  }
}

// The parameters that have an operator's scratch memory.
const SweepParams& scratch_of(const SweepParams& p) { return p; }
const SweepParams& scratch_of(const PermuteParams& p) { return p.items; }
const SweepParams& scratch_of(const ReweighParams& p) { return p.items; }
const PooledParams& scratch_of(const PooledParams& p) { return p; }

// Runs an operator; returns 0, or, where there is too little scratch memory, the bytes it needs to
// do anything.
template <class Params>
std::int64_t run(const Params& params, std::int64_t needed, cpu::Error (*operate)(const Params&)) {
  if (scratch_of(params).workspace_bytes < needed) return needed;
  require_workspace(scratch_of(params), needed);
  cpu::Error error;
  {
    const py::gil_scoped_release release;
    error = operate(params);
  }
  if (error.fault != cpu::Fault::kNone) raise(error);
  return 0;
}

std::int64_t cpu_sweep(const py::kwargs& kwargs) {
  ArgReader reader(kwargs);
  const SweepArgs args(reader);
  reader.finish();
  return run(args.params, cpu::sweep_workspace_bytes(args.params), &cpu::sweep);
}

std::int64_t cpu_permute(const py::kwargs& kwargs) {
  ArgReader reader(kwargs);
  const PermuteParams params = read_permute(reader);
  reader.finish();
  return run(params, cpu::permute_workspace_bytes(params), &cpu::permute);
}

std::int64_t cpu_reweigh(const py::kwargs& kwargs) {
  ArgReader reader(kwargs);
  const ReweighParams params = read_reweigh(reader);
  reader.finish();
  return run(params, cpu::reweigh_workspace_bytes(params), &cpu::reweigh);
}

std::int64_t cpu_pooled_prefixes(const py::kwargs& kwargs) {
  ArgReader reader(kwargs);
  const PooledParams params = read_pooled(reader);
  reader.finish();
  return run(params, cpu::pooled_workspace_bytes(params), &cpu::pooled_prefixes);
}

void cpu_select_variant(const std::string& name) {
  if (cpu::select_variant(name)) return;
  std::string names;
  for (const std::string& known : cpu::variants()) names += " " + known;
  throw py::value_error("name: given " + name + ", needed one that this machine runs:" + names);
}

}  // namespace

void register_cpu(py::module_& m) {
  m.def(
      "cpu_sweep", &cpu_sweep,
      "One fused sweep; the fields of SweepParams by keyword. 0, or the scratch memory it lacks.");
  m.def("cpu_permute", &cpu_permute,
        "Permuted weights; the fields of PermuteParams by keyword. 0, or the scratch memory they "
        "lack.");
  m.def("cpu_reweigh", &cpu_reweigh,
        "Logits of other weights; the fields of ReweighParams by keyword. 0, or the scratch memory "
        "they lack.");
  m.def("cpu_pooled_prefixes", &cpu_pooled_prefixes,
        "Pooled vectors of prefixes; the fields of PooledParams by keyword. 0, or the scratch "
        "memory they lack.");
  m.def("cpu_variants", &cpu::variants, "Instruction-set variants that run here, fastest first.");
  m.def("cpu_variants_built", &cpu::variants_built,
        "Instruction-set variants of the build, fastest first, whether they run here or not.");
  m.def("cpu_variant", &cpu::variant, "The variant in use.");
  m.def("cpu_select_variant", &cpu_select_variant, py::arg("name"), "Use one variant from now on.");
}

}  // namespace fae
