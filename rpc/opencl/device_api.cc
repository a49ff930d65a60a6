// SPDX-License-Identifier: Apache-2.0
#include "device_api.h"

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/string.h>

#include "driver/copy.h"
#include "driver/device.h"
#include "kernel.h"
#include "driver/memory.h"

namespace autotune {
namespace opencl {
namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::DeviceAttrKind;

Memory* AsMemory(void* data) { return static_cast<Memory*>(data); }

bool HasTextureScope(const ffi::Optional<ffi::String>& scope) {
  return scope.has_value() && IsTextureScope(scope.value());
}

bool IsFlatScope(const ffi::Optional<ffi::String>& scope) {
  return !scope.has_value() || scope.value().empty() || scope.value() == "global";
}

int64_t WarpSize(const DeviceInfo& info) {
  // TVM wants a number; 1 assumes nothing.
  return info.sub_group_size > 0 ? static_cast<int64_t>(info.sub_group_size) : 1;
}

int64_t ImagePitchAlignment(const DeviceInfo& info) {
  return info.image_pitch_alignment > 0 ? static_cast<int64_t>(info.image_pitch_alignment)
                                        : tvm::runtime::kAllocAlignment;
}

std::string ItemSizesText(const DeviceInfo& info) {
  std::string text = "[";
  for (const size_t size : info.max_work_item_sizes) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  }
  return text + "]";
}

}  // namespace

ClDeviceApi* ClDeviceApi::Global() {
  static auto* api = new ClDeviceApi;
  return api;
}

void ClDeviceApi::SetDevice(DLDevice dev) { SetCurrentDevice(dev.device_id); }

void ClDeviceApi::GetAttr(DLDevice dev, DeviceAttrKind kind, ffi::Any* rv) {
  if (kind == tvm::runtime::kExist) {
    // The one question that a machine without OpenCL must answer rather than fail on.
    const auto count = static_cast<int64_t>(Devices().devices.size());
    *rv = static_cast<int64_t>(dev.device_id >= 0 && dev.device_id < count);
    return;
  }
  const DeviceInfo& info = GetDevice(dev.device_id).info();
  const std::array<int, 2> version = info.Version();
  switch (kind) {
    case tvm::runtime::kMaxThreadsPerBlock:
      *rv = static_cast<int64_t>(info.max_work_group_size);
      break;
    case tvm::runtime::kWarpSize:
      *rv = WarpSize(info);
      break;
    case tvm::runtime::kMaxSharedMemoryPerBlock:
      *rv = static_cast<int64_t>(info.local_mem_bytes);
      break;
    case tvm::runtime::kComputeVersion:
      *rv = ffi::String(std::to_string(version[0]) + "." + std::to_string(version[1]));
      break;
    case tvm::runtime::kDeviceName:
      *rv = ffi::String(info.name);
      break;
    case tvm::runtime::kMaxClockRate:
      *rv = static_cast<int64_t>(info.max_clock_mhz) * 1000;  // TVM counts kHz.
      break;
    case tvm::runtime::kMultiProcessorCount:
      *rv = static_cast<int64_t>(info.compute_units);
      break;
    case tvm::runtime::kMaxThreadDimensions:
      *rv = ffi::String(ItemSizesText(info));
      break;
    case tvm::runtime::kApiVersion:
      *rv = static_cast<int64_t>(version[0] * 100 + version[1] * 10);  // 120 is OpenCL 1.2.
      break;
    case tvm::runtime::kDriverVersion:
      *rv = ffi::String(info.driver_version);
      break;
    case tvm::runtime::kL2CacheSizeBytes:
      *rv = static_cast<int64_t>(info.global_cache_bytes);
      break;
    case tvm::runtime::kTotalGlobalMemory:
      *rv = static_cast<int64_t>(info.global_mem_bytes);
      break;
    case tvm::runtime::kImagePitchAlignment:
      *rv = ImagePitchAlignment(info);
      break;
    default:  // OpenCL does not tell: None.
      break;
  }
}

void ClDeviceApi::GetTargetProperty(DLDevice dev, const std::string& property, ffi::Any* rv) {
  const DeviceInfo& info = GetDevice(dev.device_id).info();
  if (property == "max_threads_per_block" || property == "max_num_threads") {
    *rv = static_cast<int64_t>(info.max_work_group_size);
  } else if (property == "max_shared_memory_per_block") {
    *rv = static_cast<int64_t>(info.local_mem_bytes);
  } else if (property == "thread_warp_size") {
    *rv = WarpSize(info);
  } else if (property == "texture_spatial_limit" && info.image_support) {
    *rv = static_cast<int64_t>(std::min(info.image2d_max[0], info.image2d_max[1]));
  }
}

size_t ClDeviceApi::GetDataSize(const DLTensor& tensor, ffi::Optional<ffi::String> mem_scope) {
  if (IsFlatScope(mem_scope)) return ffi::GetDataSize(tensor);
  const std::array<size_t, 3> region =
      ImageRegion(tensor.shape, tensor.ndim, std::string(mem_scope.value()));
  const size_t pixel = size_t{4} * ((tensor.dtype.bits * tensor.dtype.lanes + 7U) / 8U);
  const auto align = static_cast<size_t>(ImagePitchAlignment(GetDevice(CurrentDevice()).info()));
  return (region[0] * pixel + align - 1) / align * align * region[1] * region[2];
}

void* ClDeviceApi::AllocDataSpace(DLDevice dev, size_t nbytes, size_t, DLDataType) {
  return CreateBuffer(&GetDevice(dev.device_id), nbytes);
}

void* ClDeviceApi::AllocDataSpace(DLDevice dev, int ndim, const int64_t* shape, DLDataType dtype,
                                  ffi::Optional<ffi::String> mem_scope) {
  Device& device = GetDevice(dev.device_id);
  if (IsFlatScope(mem_scope)) {
    size_t count = 1;
    for (int axis = 0; axis < ndim; ++axis) count *= static_cast<size_t>(shape[axis]);
    return CreateBuffer(&device, ffi::GetDataSize(count, dtype));
  }
  if (!HasTextureScope(mem_scope)) {
    TVM_FFI_THROW(RuntimeError) << "OpenCL has no memory of scope '" << mem_scope.value() << "'";
  }
  return CreateImage(&device, ImageRegion(shape, ndim, std::string(mem_scope.value())), dtype);
}

void ClDeviceApi::FreeDataSpace(DLDevice, void* ptr) { delete AsMemory(ptr); }

void ClDeviceApi::CopyDataFromTo(DLTensor* from, DLTensor* to, TVMStreamHandle) {
  const size_t bytes = ffi::GetDataSize(*from);
  if (bytes != ffi::GetDataSize(*to)) {
    TVM_FFI_THROW(ValueError) << "OpenCL: a copy from " << bytes << " to " << ffi::GetDataSize(*to)
                              << " bytes";
  }
  if (!ffi::IsContiguous(*from) || !ffi::IsContiguous(*to)) {
    TVM_FFI_THROW(ValueError) << "OpenCL: only contiguous tensors can be copied";
  }
  const bool from_device = from->device.device_type == kDLOpenCL;
  const bool to_device = to->device.device_type == kDLOpenCL;
  if (from_device && to_device) {
    CopyOnDevice(*AsMemory(from->data), from->byte_offset, AsMemory(to->data), to->byte_offset,
                 bytes);
  } else if (to_device) {
    CopyToDevice(static_cast<const char*>(from->data) + from->byte_offset, AsMemory(to->data),
                 to->byte_offset, bytes);
  } else {
    CopyToHost(*AsMemory(from->data), from->byte_offset,
               static_cast<char*>(to->data) + to->byte_offset, bytes);
  }
}

void ClDeviceApi::StreamSync(DLDevice dev, TVMStreamHandle) { GetDevice(dev.device_id).Finish(); }

void* ClDeviceApi::AllocWorkspace(DLDevice dev, size_t nbytes, DLDataType) {
  return GetDevice(dev.device_id).pool().Take(nbytes);
}

void ClDeviceApi::FreeWorkspace(DLDevice, void* ptr) {
  Memory* memory = AsMemory(ptr);
  memory->device->pool().Give(memory);
}

}  // namespace opencl
}  // namespace autotune
