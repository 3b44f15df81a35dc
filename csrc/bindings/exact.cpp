// Keyword-only bindings of the answers that need no search (cpu/exact/).
#include "cpu/exact/exact.h"

#include <pybind11/pybind11.h>

#include <string>

#include "bindings/register.h"
#include "bindings/sweep_args.h"

namespace fae {
namespace {

// What all of them take.
template <class Params>
void read_common(ArgReader& args, Params& p) {
  p.B = args.integer("B", 0);
  p.T = args.integer("T", 0);
  p.offsets = args.address<const std::int64_t>("offsets", true);
  p.status = args.address<const std::int64_t>("status", p.B > 0);
  p.workspace = args.address<void>("workspace", false);
  p.workspace_bytes = args.integer("workspace_bytes", 0);
  p.num_threads = static_cast<std::int32_t>(args.integer("num_threads", 1, 1 << 16));
}

// Refuses offsets that do not run from 0 to `end`.
void require_offsets(const char* name, const std::int64_t* offsets, std::int64_t B,
                     std::int64_t end) {
  bool valid = offsets[0] == 0 && offsets[B] == end;
  for (std::int64_t b = 0; b < B; ++b) valid = valid && offsets[b] <= offsets[b + 1];
  if (!valid) {
    throw py::value_error(std::string(name) + ": given offsets that decrease or do not end at " +
                          std::to_string(end) + ", needed ones that start at 0 and end there");
  }
}

// Runs an operator; returns 0, or, where there is too little scratch memory, the bytes it needs.
template <class Params>
std::int64_t run(const Params& p, std::int64_t needed, void (*operate)(const Params&)) {
  if (p.workspace_bytes < needed) return needed;
  require_workspace(p, needed);
  const py::gil_scoped_release release;
  operate(p);
  return 0;
}

std::int64_t cpu_envelope(const py::kwargs& kwargs) {
  ArgReader args(kwargs);
  cpu::EnvelopeParams p{};
  read_common(args, p);
  p.K = args.integer("K", 1);
  p.P = args.integer("P", 0);
  p.R = args.integer("R", 0);
  p.weights = args.address<const double>("weights", p.T > 0);
  p.outputs = args.address<const double>("outputs", p.T > 0);
  p.empty = args.address<const double>("empty", p.B > 0);
  p.point_offsets = args.address<const std::int64_t>("point_offsets", true);
  p.kept = args.address<const std::int64_t>("kept", p.P > 0);
  p.orders = args.address<const std::int64_t>("orders", p.R > 0 && p.T > 0);
  p.keep = static_cast<std::int32_t>(args.integer("keep", 0, 1));
  p.lower = args.address<double>("lower", p.P > 0);
  p.upper = args.address<double>("upper", p.P > 0);
  p.curves = args.address<double>("curves", p.R > 0 && p.P > 0);
  args.finish();
  require_offsets("offsets", p.offsets, p.B, p.T);
  require_offsets("point_offsets", p.point_offsets, p.B, p.P);
  for (std::int64_t b = 0; b < p.B; ++b) {
    const std::int64_t n = p.offsets[b + 1] - p.offsets[b];
    for (std::int64_t at = p.point_offsets[b]; at < p.point_offsets[b + 1]; ++at) {
      if (p.kept[at] < 0 || p.kept[at] > n) {
        throw py::value_error("kept: given " + std::to_string(p.kept[at]) + " of instance " +
                              std::to_string(b) + ", needed 0 to " + std::to_string(n));
      }
    }
    for (std::int64_t r = 0; r < p.R; ++r) {
      for (std::int64_t i = p.offsets[b]; i < p.offsets[b + 1]; ++i) {
        const std::int64_t given = p.orders[r * p.T + i];
        if (given < 0 || given >= n) {
          throw py::value_error("orders: given " + std::to_string(given) + " of instance " +
                                std::to_string(b) + ", needed its positions");
        }
      }
    }
  }
  return run(p, cpu::envelope_workspace_bytes(p), &cpu::envelope);
}

std::int64_t cpu_shapley(const py::kwargs& kwargs) {
  ArgReader args(kwargs);
  cpu::ShapleyParams p{};
  read_common(args, p);
  p.C = args.integer("C", 1);
  p.log_weights = args.address<const double>("log_weights", p.T > 0);
  p.contributions = args.address<const double>("contributions", p.T > 0);
  p.tolerance = args.address<const double>("tolerance", true);
  p.values = args.address<double>("values", p.T > 0);
  p.error = args.address<double>("error", p.B > 0);
  p.efficiency = args.address<double>("efficiency", p.B > 0);
  p.nodes = args.address<std::int64_t>("nodes", p.B > 0);
  args.finish();
  require_offsets("offsets", p.offsets, p.B, p.T);
  return run(p, cpu::shapley_workspace_bytes(p), &cpu::shapley);
}

std::int64_t cpu_sufficient(const py::kwargs& kwargs) {
  ArgReader args(kwargs);
  cpu::SufficientParams p{};
  read_common(args, p);
  p.K = args.integer("K", 0);
  p.weights = args.address<const double>("weights", p.T > 0);
  p.margins = args.address<const double>("margins", p.T > 0 && p.K > 0);
  p.wins = args.address<const std::int64_t>("wins", p.B > 0 && p.K > 0);
  p.tolerance = args.address<const double>("tolerance", p.B > 0);
  p.size = args.address<std::int64_t>("size", p.B > 0);
  p.least = args.address<std::int64_t>("least", p.B > 0);
  p.near = args.address<std::int64_t>("near", p.B > 0);
  p.order = args.address<std::int64_t>("order", p.T > 0);
  args.finish();
  require_offsets("offsets", p.offsets, p.B, p.T);
  return run(p, cpu::sufficient_workspace_bytes(p), &cpu::sufficient);
}

std::int64_t cpu_greedy(const py::kwargs& kwargs) {
  ArgReader args(kwargs);
  cpu::GreedyParams p{};
  read_common(args, p);
  p.K = args.integer("K", 1);
  p.weights = args.address<const double>("weights", p.T > 0);
  p.margins = args.address<const double>("margins", p.T > 0);
  p.empty = args.address<const double>("empty", p.B > 0);
  p.wins = args.address<const std::int64_t>("wins", p.B > 0);
  p.tolerance = args.address<const double>("tolerance", p.B > 0);
  p.steps = args.integer("steps", -1);
  p.until_flip = static_cast<std::int32_t>(args.integer("until_flip", 0, 1));
  p.order = args.address<std::int64_t>("order", p.T > 0);
  p.removed = args.address<std::int64_t>("removed", p.B > 0);
  p.certain = args.address<std::int64_t>("certain", p.B > 0);
  args.finish();
  require_offsets("offsets", p.offsets, p.B, p.T);
  return run(p, cpu::greedy_workspace_bytes(p), &cpu::greedy);
}

}  // namespace

void register_exact(py::module_& m) {
  m.def("cpu_envelope", &cpu_envelope,
        "Least and largest outputs by number of items kept; the fields of EnvelopeParams by "
        "keyword. 0, or the scratch memory it lacks.");
  m.def("cpu_shapley", &cpu_shapley,
        "Shapley values; the fields of ShapleyParams by keyword. 0, or the scratch memory it "
        "lacks.");
  m.def(
      "cpu_greedy", &cpu_greedy,
      "Greedy removal; the fields of GreedyParams by keyword. 0, or the scratch memory it lacks.");
  m.def("cpu_sufficient", &cpu_sufficient,
        "Smallest sufficient sets; the fields of SufficientParams by keyword. 0, or the scratch "
        "memory it lacks.");
}

}  // namespace fae
