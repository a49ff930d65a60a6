// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <memory>
#include <mutex>

#include "cl_error.h"
#include "device.h"

namespace autotune {
namespace opencl {
namespace {

cl_channel_type ChannelType(DLDataType type) {
  if (type.code == kDLFloat && type.bits == 32) return CL_FLOAT;
  if (type.code == kDLFloat && type.bits == 16) return CL_HALF_FLOAT;
  if (type.code == kDLInt && type.bits == 8) return CL_SIGNED_INT8;
  if (type.code == kDLInt && type.bits == 16) return CL_SIGNED_INT16;
  if (type.code == kDLInt && type.bits == 32) return CL_SIGNED_INT32;
  if (type.code == kDLUInt && type.bits == 8) return CL_UNSIGNED_INT8;
  if (type.code == kDLUInt && type.bits == 16) return CL_UNSIGNED_INT16;
  if (type.code == kDLUInt && type.bits == 32) return CL_UNSIGNED_INT32;
  TVM_FFI_THROW(RuntimeError) << "OpenCL images cannot hold elements of type code "
                              << static_cast<int>(type.code) << " with "
                              << static_cast<int>(type.bits) << " bits";
  TVM_FFI_UNREACHABLE();
}

/// Creates the object; where memory is short, gives the idle workspace back and tries once more.
template <typename Create>
cl_mem CreateOrTrim(Device* device, const std::string& what, Create create) {
  cl_int code = CL_SUCCESS;
  cl_mem mem = create(&code);
  if (code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_RESOURCES) {
    device->Finish();
    device->pool().Trim();
    mem = create(&code);
  }
  if (code != CL_SUCCESS) {
    Check(code, "the allocation of " + what + " on " + device->info().name + " (largest allowed: " +
                    std::to_string(device->info().max_alloc_bytes) + " bytes)");
  }
  return mem;
}

}  // namespace

Memory::~Memory() {
  // The driver keeps the object until the commands that use it are done. An error here has nobody
  // to go to: destructors run while Python collects tensors.
  // PoCL 3.1 does not keep images over buffers.
  if (!views_.empty()) Api().clFinish(device->queue());
  for (const auto& [kind, view] : views_) Api().clReleaseMemObject(view);
  if (mem != nullptr) Api().clReleaseMemObject(mem);
}

cl_mem Memory::AsImage(const autotune_opencl::internal::ImageArgument& image) {
  static std::mutex mutex;  // Several kernels may read a tensor.
  std::lock_guard<std::mutex> lock(mutex);
  const std::array<size_t, 3> kind{image.channels, image.texels, image.width};
  const auto found = views_.find(kind);
  if (found != views_.end()) return found->second;
  cl_int code = CL_SUCCESS;
  cl_mem view = autotune_opencl::internal::ImageOver(Api(), device->context(), mem, image, &code);
  if (code != CL_SUCCESS) return nullptr;
  return views_.emplace(kind, view).first->second;
}

bool IsTextureScope(const std::string& scope) {
  return scope.find("texture") != std::string::npos;
}

std::array<size_t, 3> ImageRegion(const int64_t* shape, int ndim, const std::string& scope) {
  int rows_end = 0;  // Axes before this one make rows and layers; those from it on make columns.
  if (scope == "global.texture") {
    rows_end = ndim - 2;
  } else if (scope == "global.texture-weight") {
    rows_end = 1;
  } else if (scope == "global.texture-nhwc") {
    rows_end = 2;
  } else {
    TVM_FFI_THROW(RuntimeError) << "unknown OpenCL memory scope '" << scope << "'";
  }
  if (rows_end < 1 || rows_end >= ndim || shape[ndim - 1] != 4) {
    TVM_FFI_THROW(RuntimeError) << "a tensor in scope '" << scope
                                << "' needs more axes than it has, or its last axis is not the 4 "
                                   "channels of a pixel";
  }
  std::array<size_t, 3> region{{1, 1, 1}};
  for (int axis = 0; axis < ndim - 1; ++axis) {
    const size_t part = axis >= rows_end ? 0 : (axis == rows_end - 1 ? 1 : 2);
    region[part] *= static_cast<size_t>(shape[axis]);
  }
  return region;
}

Memory* CreateBuffer(Device* device, size_t bytes) {
  const size_t size = std::max<size_t>(bytes, 1);  // OpenCL refuses empty buffers, TVM makes them.
  cl_mem mem = CreateOrTrim(device, std::to_string(bytes) + " bytes", [&](cl_int* code) {
    return Api().clCreateBuffer(device->context(), CL_MEM_READ_WRITE, size, nullptr, code);
  });
  return new Memory(device, mem, size);
}

Memory* CreateImage(Device* device, const std::array<size_t, 3>& region, DLDataType channel) {
  const cl_image_format format{CL_RGBA, ChannelType(channel)};
  cl_image_desc desc{};
  desc.image_type = CL_MEM_OBJECT_IMAGE2D_ARRAY;  // What TVM's code generator declares.
  desc.image_width = region[0];
  desc.image_height = region[1];
  desc.image_array_size = region[2];
  const std::string what = "an image of " + std::to_string(region[0]) + "x" +
                           std::to_string(region[1]) + "x" + std::to_string(region[2]) + " pixels";
  cl_mem mem = CreateOrTrim(device, what, [&](cl_int* code) {
    return Api().clCreateImage(device->context(), CL_MEM_READ_WRITE, &format, &desc, nullptr, code);
  });
  const size_t bytes = region[0] * region[1] * region[2] * 4 * (channel.bits / 8);
  auto image = std::make_unique<Memory>(device, mem, bytes);
  image->kind = Memory::Kind::kImage;
  image->region = region;
  return image.release();
}

}  // namespace opencl
}  // namespace autotune
