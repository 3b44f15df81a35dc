// Keyword-only bindings of the CUDA operators: the fields of the parameter structs, `device` (its
// index) and `stream` (its handle). All pointers are device addresses. The same source makes the
// test module `_emu`, where they are host addresses.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>

#include "bindings/register.h"
#include "bindings/sweep_args.h"
#include "host.h"

namespace fae {
namespace {

struct Where {
  int device;
  void* stream;

  explicit Where(ArgReader& reader)
      : device(static_cast<int>(reader.integer("device", 0, 1 << 16))),
        stream(reader.address<void>("stream", false)) {}
};

template <class Params>
void require_one_head(const Params& p) {
  if (p.H != 1) ArgReader::fail("H", py::int_(p.H), "1: the CUDA kernels take one attention head");
}

void require_sizes(const SweepParams& p) {
  constexpr std::int64_t kMost = (1ll << 31) - (1 << 16);  // loops step over the end
  if (p.D > kMost) ArgReader::fail("D", py::int_(p.D), "at most 2^31 - 2^16");
  if (p.C > kMost / p.D) ArgReader::fail("C", py::int_(p.C), "C * D of at most 2^31 - 2^16");
  if (p.T > kMost) ArgReader::fail("T", py::int_(p.T), "at most 2^31 - 2^16 items a call");
}

void cuda_sweep(const py::kwargs& kwargs) {
  ArgReader reader(kwargs);
  const SweepArgs args(reader);
  const Where where(reader);
  reader.finish();
  require_one_head(args.params);
  require_sizes(args.params);
  const py::gil_scoped_release release;
  const DeviceGuard guard(where.device);
  const DeviceInfo device = device_info(where.device);
  const std::int64_t needed = sweep_workspace(args.params, device);
  if (args.params.workspace_bytes < needed || args.params.workspace == nullptr) {
    const py::gil_scoped_acquire acquire;
    require_workspace(args.params, needed);
  }
  launch_sweep(args.params, device, where.stream);
}

std::int64_t cuda_sweep_workspace(const py::kwargs& kwargs) {
  ArgReader reader(kwargs);
  const SweepArgs args(reader);
  const Where where(reader);
  reader.finish();
  require_one_head(args.params);
  require_sizes(args.params);
  return sweep_workspace(args.params, device_info(where.device));
}

void cuda_pooled_prefixes(const py::kwargs& kwargs) {
  ArgReader reader(kwargs);
  const PooledParams params = read_pooled(reader);
  const Where where(reader);
  reader.finish();
  require_one_head(params);
  const py::gil_scoped_release release;
  const DeviceGuard guard(where.device);
  launch_pooled(params, device_info(where.device), where.stream);
}

}  // namespace

void register_cuda(py::module_& m) {
  m.def("cuda_sweep", &cuda_sweep,
        "Launch one fused sweep; the fields of SweepParams, device and stream by keyword.");
  m.def("cuda_sweep_workspace", &cuda_sweep_workspace,
        "Bytes of scratch memory of `cuda_sweep`, from sizes and wanted results alone.");
  m.def("cuda_pooled_prefixes", &cuda_pooled_prefixes,
        "Launch pooled prefixes; the fields of PooledParams, device and stream by keyword.");
  m.def("cuda_compiled_for", &compiled_for,
        "What the module holds machine code (sm_80) and PTX (compute_80) for, joined by commas.");
  m.def("cuda_why_not", &why_not, py::arg("device"),
        "Why no kernel can run on a device; empty where one can.");
}

}  // namespace fae
