// The test module `_emu`: the CUDA operators on host memory, and the knobs of the emulator.
#include <pybind11/pybind11.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>

#include "bindings/register.h"
#include "bindings/sweep_args.h"
#include "emulator/device.h"
#include "emulator/emulator.h"
#include "launch.cuh"

namespace py = pybind11;

namespace {

void set_schedule(const std::string& order, std::uint64_t seed) {
  constexpr std::array<const char*, 4> kNames = {"forward", "backward", "shuffled", "by_warp"};
  const auto* const found = std::find(kNames.begin(), kNames.end(), order);
  if (found == kNames.end()) {
    throw py::value_error("order: given " + order +
                          ", needed forward, backward, shuffled or by_warp");
  }
  emu::schedule().order = static_cast<emu::Order>(found - kNames.begin());
  emu::schedule().seed = seed;
}

// Kernels of the emulator's own tests. Each reverses 64 numbers through shared memory, or fails to.
enum class Fault { kNone, kNoBarrier, kHalfBarrier, kOverrun };

bool reversed_by(Fault fault) {
  bool right = true;
  emu::launch(emu::Dim3{2}, emu::Dim3{64}, 64 * sizeof(int), [&] {
    int* shared = reinterpret_cast<int*>(emu::dynamic_shared());
    const unsigned t = threadIdx.x;
    shared[fault == Fault::kOverrun && t == 63 ? 64 : t] = static_cast<int>(t);
    if (fault == Fault::kNone || fault == Fault::kOverrun ||
        (fault == Fault::kHalfBarrier && t < 32)) {
      __syncthreads();
    }
    if (fault != Fault::kOverrun && shared[63 - t] != static_cast<int>(63 - t)) right = false;
  });
  return right;
}

// Runs a sum over lanes by butterflies, a ballot and neighbours' values, as every warp must see
// them.
py::tuple warp_numbers() {
  int sum = 0, below = 0, up = 0;
  unsigned odd = 0;
  emu::launch(emu::Dim3{1}, emu::Dim3{32}, 0, [&] {
    const int lane = emu::lane();
    int value = lane;
    for (int o = 16; o > 0; o >>= 1) value += __shfl_xor_sync(0xffffffffu, value, o);
    const unsigned ballot = __ballot_sync(0xffffffffu, lane % 2 == 1);
    const int left = __shfl_up_sync(0xffffffffu, lane, 1);
    const int right = __shfl_down_sync(0xffffffffu, lane, 1);
    if (lane == 7) {
      sum = value;
      odd = ballot;
      below = left;
      up = right;
    }
  });
  return py::make_tuple(sum, odd, below, up);
}

// Finds the items of the longest instance that each path takes on the emulated device.
py::tuple limits(const py::kwargs& kwargs) {
  fae::ArgReader reader(kwargs);
  const fae::SweepArgs args(reader);
  const fae::SweepParams& p = args.params;
  const auto plan = p.values_dtype == fae::kFloat64
                        ? fae::make_plan<double>(p, fae::emulated_device(), 0)
                        : fae::make_plan<float>(p, fae::emulated_device(), 0);
  const fae::Launch& l = plan.launch;
  return py::make_tuple(l.limit_warp, l.limit_mid, l.limit_big);
}

}  // namespace

PYBIND11_MODULE(_emu, m) {
  m.doc() = "The CUDA kernels on the host emulator; for tests only.";
  fae::register_cuda(m);
  m.def("set_schedule", &set_schedule, py::arg("order"), py::arg("seed") = 0,
        "The order in which emulated threads and blocks run.");
  m.def(
      "set_device",
      [](int multiprocessors, int shared_bytes, int quarter) {
        fae::emulated_device() =
            fae::DeviceInfo{multiprocessors, 4 * (quarter + 1024), shared_bytes, 1024};
      },
      py::arg("multiprocessors"), py::arg("shared_bytes"), py::arg("quarter"),
      "The emulated device: blocks resident at once, the shared memory that one block may have and "
      "that each of four on a multiprocessor has.");
  m.def("limits", &limits,
        "Items of the longest instance that a warp, a block and a big block take; the fields of "
        "SweepParams by keyword.");
  m.def("meetings", &emu::meetings, "How often an emulated thread was resumed.");
  m.def("reversed_by", [](const std::string& fault) {
    return reversed_by(fault == "none"           ? Fault::kNone
                       : fault == "no_barrier"   ? Fault::kNoBarrier
                       : fault == "half_barrier" ? Fault::kHalfBarrier
                                                 : Fault::kOverrun);
  });
  m.def("warp_numbers", &warp_numbers);
}
