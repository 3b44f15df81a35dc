// The native module `fastattnerase._C`.
#include <pybind11/pybind11.h>

#include "bindings/register.h"
#include "fastattnerase/outputs.h"

namespace {

namespace py = pybind11;

// Lists the table of results, for the test that compares it with the one in Python.
py::list list_outputs() {
  py::list lines;
#define FAE_APPEND(name, type, axes) lines.append(py::make_tuple(#name, #type, #axes));
  FAE_SWEEP_OUTPUTS(FAE_APPEND)
#undef FAE_APPEND
  return lines;
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  m.doc() = "Native erasure engine; take it through fastattnerase's public functions.";
  m.attr("version") = FAE_VERSION;
  m.def("outputs", &list_outputs, "The results of a sweep in order: name, type and axes of each.");
  fae::register_cpu(m);
  fae::register_exact(m);
#if defined(FAE_WITH_CUDA)
  m.attr("has_cuda") = true;
  fae::register_cuda(m);
#else
  m.attr("has_cuda") = false;
#endif
}
