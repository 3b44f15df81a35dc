// The sweep of float64 values.
#include "launch.cuh"

namespace fae {

std::int64_t sweep_workspace_f64(const SweepParams& p, const DeviceInfo& device) {
  return workspace_of<double>(p, device);
}
void launch_sweep_f64(const SweepParams& p, const DeviceInfo& device, void* stream) {
  launch_of<double>(p, device, stream);
}

}  // namespace fae
