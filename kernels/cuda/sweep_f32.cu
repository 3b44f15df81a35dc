// The sweep of float32, bfloat16 and float16 values: contributions are float32.
#include "launch.cuh"

namespace fae {

std::int64_t sweep_workspace_f32(const SweepParams& p, const DeviceInfo& device) {
  return workspace_of<float>(p, device);
}
void launch_sweep_f32(const SweepParams& p, const DeviceInfo& device, void* stream) {
  launch_of<float>(p, device, stream);
}

}  // namespace fae
