// The host side of the CUDA operators: what bindings call, and what the launchers share.
#pragma once

#include <cstdint>
#include <string>

#include "fastattnerase/params.h"

namespace fae {

// What the launchers need to know of a GPU; device_info reads it.
struct DeviceInfo {
  int multiprocessors;            // of the device
  int shared_per_multiprocessor;  // bytes
  int shared_per_block;           // bytes a block may ask for
  int reserved_per_block;         // bytes that the system keeps of every block
};

// Reads (and remembers) the attributes of a device; throws std::runtime_error without one.
DeviceInfo device_info(int device);

// Names what the module holds machine code (sm_80) and PTX (compute_80) for, joined by commas.
std::string compiled_for();

// Says why no CUDA kernel can run on `device` here; empty where one can.
std::string why_not(int device);

// Makes `device` the current one for the life of the guard.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_;
};

// Counts the bytes of scratch memory of one sweep, from sizes and wanted results alone.
std::int64_t sweep_workspace(const SweepParams& p, const DeviceInfo& device);
// Launches the sweep on `stream`; returns at once. The workspace must live until it has run.
void launch_sweep(const SweepParams& p, const DeviceInfo& device, void* stream);
// Launches pooled prefixes on `stream`; returns at once.
void launch_pooled(const PooledParams& p, const DeviceInfo& device, void* stream);

}  // namespace fae
