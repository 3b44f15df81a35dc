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
  return known[device] = info;
}

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
    return std::string("the kernels do not run on device ") + std::to_string(device) + ": " +
           cudaGetErrorString(error);
  }
  return "";
}

DeviceGuard::DeviceGuard(int device) {
  check(cudaGetDevice(&before_), "current device");
  if (device != before_) check(cudaSetDevice(device), "choosing a device");
}

DeviceGuard::~DeviceGuard() { cudaSetDevice(before_); }

}  // namespace fae
