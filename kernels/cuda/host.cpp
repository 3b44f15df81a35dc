#include "host.h"

#include "fastattnerase/params.h"

namespace fae {

std::int64_t sweep_workspace_f32(const SweepParams&, const DeviceInfo&);
std::int64_t sweep_workspace_f64(const SweepParams&, const DeviceInfo&);
void launch_sweep_f32(const SweepParams&, const DeviceInfo&, void* stream);
void launch_sweep_f64(const SweepParams&, const DeviceInfo&, void* stream);

std::int64_t sweep_workspace(const SweepParams& p, const DeviceInfo& device) {
  return p.values_dtype == kFloat64 ? sweep_workspace_f64(p, device)
                                    : sweep_workspace_f32(p, device);
}

void launch_sweep(const SweepParams& p, const DeviceInfo& device, void* stream) {
  if (p.values_dtype == kFloat64) {
    launch_sweep_f64(p, device, stream);
  } else {
    launch_sweep_f32(p, device, stream);
  }
}

}  // namespace fae
