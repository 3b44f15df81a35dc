#pragma once

#include "host.h"

namespace fae {

// Returns what device_info() says, for tests to shrink.
DeviceInfo& emulated_device();

}  // namespace fae
