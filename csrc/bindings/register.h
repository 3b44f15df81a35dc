// The registration functions of the native module's parts, one a backend.
#pragma once

#include <pybind11/pybind11.h>

namespace fae {

void register_cpu(pybind11::module_& m);    // csrc/bindings/cpu.cpp
void register_exact(pybind11::module_& m);  // csrc/bindings/exact.cpp
void register_cuda(pybind11::module_& m);   // kernels/cuda/bindings.cpp

}  // namespace fae
