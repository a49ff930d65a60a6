// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <tvm/ffi/error.h>

#include <memory>
#include <vector>

#include "cl_error.h"

namespace autotune {
namespace opencl {
namespace {

std::atomic<bool> profiling_enabled{false};

std::vector<std::unique_ptr<Device>>& AllDevices() {
  static auto* devices = [] {
    auto* all = new std::vector<std::unique_ptr<Device>>;
    int index = 0;
    for (const DeviceInfo& info : Devices().devices) {
      all->push_back(std::make_unique<Device>(info, index++));
    }
    return all;
  }();
  return *devices;
}

}  // namespace

Device::Device(const DeviceInfo& info, int index) : info_(info), index_(index) {}

cl_context Device::context() {
  if (cl_context context = context_.load(std::memory_order_acquire)) return context;
  std::lock_guard<std::mutex> lock(mutex_);
  if (cl_context context = context_.load(std::memory_order_acquire)) return context;
  const cl_context_properties properties[] = {
      CL_CONTEXT_PLATFORM, reinterpret_cast<cl_context_properties>(info_.platform), 0};
  cl_int code = CL_SUCCESS;
  cl_context context = Api().clCreateContext(properties, 1, &info_.id, nullptr, nullptr, &code);
  Check(code, "clCreateContext for " + info_.name);
  context_.store(context, std::memory_order_release);
  return context;
}

cl_command_queue Device::queue() {
  const bool profiling = ProfilingEnabled();
  cl_command_queue queue = queues_[profiling ? 1 : 0].load(std::memory_order_acquire);
  return queue != nullptr ? queue : OpenQueue(profiling);
}

cl_command_queue Device::OpenQueue(bool profiling) {
  cl_context opened = context();  // Before the lock, which it takes too.
  std::lock_guard<std::mutex> lock(mutex_);
  std::atomic<cl_command_queue>& slot = queues_[profiling ? 1 : 0];
  if (cl_command_queue queue = slot.load(std::memory_order_acquire)) return queue;
  cl_int code = CL_SUCCESS;
  cl_command_queue queue = Api().clCreateCommandQueue(
      opened, info_.id, profiling ? CL_QUEUE_PROFILING_ENABLE : 0, &code);
  Check(code, "clCreateCommandQueue for " + info_.name);
  slot.store(queue, std::memory_order_release);
  return queue;
}

void Device::Finish() {
  const cl_int code = Api().clFinish(queue());
  if (code == CL_SUCCESS) return;
  const char* kernel = last_kernel_.load(std::memory_order_relaxed);
  Check(code, "clFinish on " + info_.name +
                  (kernel != nullptr ? std::string(" after kernel ") + kernel : std::string()));
}

Device& GetDevice(int index) {
  std::vector<std::unique_ptr<Device>>& devices = AllDevices();
  if (devices.empty()) {
    TVM_FFI_THROW(RuntimeError) << "OpenCL: " << opencl::Devices().reason;
  }
  if (index < 0 || static_cast<size_t>(index) >= devices.size()) {
    TVM_FFI_THROW(RuntimeError) << "OpenCL: there is no device " << index << ", only "
                                << devices.size() << " (counted from 0)";
  }
  return *devices[static_cast<size_t>(index)];
}

void SetProfiling(bool enabled) {
  if (profiling_enabled.load() == enabled) return;
  // What runs on the queue that is left must be done before anything enters the other one.
  if (!Library().path.empty()) {
    for (const std::unique_ptr<Device>& device : AllDevices()) {
      if (device->opened()) device->Finish();
    }
  }
  profiling_enabled.store(enabled);
}

bool ProfilingEnabled() { return profiling_enabled.load(std::memory_order_relaxed); }

}  // namespace opencl
}  // namespace autotune
