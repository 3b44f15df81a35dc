#include "bindings/register.h"

namespace fae {

void register_cpu(pybind11::module_& m) { m.attr("cpu_variants") = pybind11::make_tuple("baseline"); }

}  // namespace fae
