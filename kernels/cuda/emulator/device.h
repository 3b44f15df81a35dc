#pragma once

#include "host.h"

namespace fae {

// What device_info() says; tests shrink it.
DeviceInfo& emulated_device();

}  // namespace fae
