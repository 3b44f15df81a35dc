// The emulated device: small, so that tests reach every path with short instances.
#include "emulator/device.h"

namespace fae {

DeviceInfo& emulated_device() {
  static DeviceInfo info{2, 233472, 232448, 1024};
  return info;
}

DeviceInfo device_info(int) { return emulated_device(); }
std::string compiled_for() { return "the host"; }
std::string why_not(int) { return ""; }
DeviceGuard::DeviceGuard(int device) : before_(device) {}
DeviceGuard::~DeviceGuard() = default;

}  // namespace fae
