// The native module `fastattnerase._C`.
#include <pybind11/pybind11.h>

#include "bindings/register.h"

PYBIND11_MODULE(_C, m) {
  m.doc() = "Native erasure engine; take it through fastattnerase's public functions.";
  m.attr("version") = FAE_VERSION;
  fae::register_cpu(m);
#if defined(FAE_WITH_CUDA)
  m.attr("has_cuda") = true;
  fae::register_cuda(m);
#else
  m.attr("has_cuda") = false;
#endif
}
