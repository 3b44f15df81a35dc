// Devices as the CUDA runtime knows them.
#include <cuda_runtime.h>

#include <map>
#include <mutex>
#include <stdexcept>

#include "launch.cuh"

namespace fae {

DeviceInfo device_info(int device) {
  static std::mutex mutex;
  static std::map<int, DeviceInfo> known;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = known.find(device);
  if (found != known.end()) return found->second;
  DeviceInfo info{};
  const auto read = [&](int* value, cudaDeviceAttr attribute) {
    check(cudaDeviceGetAttribute(value, attribute, device), "device attribute");
  };
  read(&info.multiprocessors, cudaDevAttrMultiProcessorCount);
  read(&info.shared_per_multiprocessor, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  read(&info.shared_per_block, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  read(&info.reserved_per_block, cudaDevAttrReservedSharedMemoryPerBlock);
  return known[device] = info;
}

std::string compiled_for() { return FAE_CUDA_CODE; }

std::string why_not(int device) {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    cudaGetLastError();  // leaves the runtime as it was found
    return std::string("the CUDA runtime says: ") + cudaGetErrorString(error);
  }
  if (device >= count) return "there are " + std::to_string(count) + " CUDA devices";
  const DeviceGuard guard(device);
  cudaFuncAttributes attributes;
  error = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&prepare<float>));
  if (error != cudaSuccess) {
    cudaGetLastError();
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "device properties");
    return "the kernels do not run on device " + std::to_string(device) + ", " + properties.name +
           " of compute capability " + std::to_string(properties.major) + "." +
           std::to_string(properties.minor) + ": " + cudaGetErrorString(error) +
           "; they were compiled for " + compiled_for();
  }
  return "";
}

DeviceGuard::DeviceGuard(int device) {
  check(cudaGetDevice(&before_), "current device");
  if (device != before_) check(cudaSetDevice(device), "choosing a device");
}

DeviceGuard::~DeviceGuard() { cudaSetDevice(before_); }

}  // namespace fae
