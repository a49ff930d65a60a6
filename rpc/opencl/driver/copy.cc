// SPDX-License-Identifier: Apache-2.0
#include "copy.h"

#include <tvm/ffi/error.h>

#include <vector>

#include "cl_error.h"
#include "device.h"

namespace autotune {
namespace opencl {
namespace {

constexpr size_t kOrigin[3] = {0, 0, 0};

void CheckRange(const Memory& memory, size_t offset, size_t bytes) {
  const bool fits = offset <= memory.bytes && bytes <= memory.bytes - offset;
  if (fits && (!memory.is_image() || (offset == 0 && bytes == memory.bytes))) return;
  TVM_FFI_THROW(RuntimeError) << "OpenCL: a copy of " << bytes << " bytes at offset " << offset
                              << " does not fit " << (memory.is_image() ? "the image" : "a buffer")
                              << " of " << memory.bytes << " bytes";
}

std::string Sizes(const char* call, size_t bytes, const Memory& memory) {
  return std::string(call) + " of " + std::to_string(bytes) + " bytes on " +
         memory.device->info().name;
}

}  // namespace

void CopyToDevice(const void* from, Memory* to, size_t offset, size_t bytes) {
  CheckRange(*to, offset, bytes);
  if (bytes == 0) return;
  const ClApi& api = Api();
  cl_command_queue queue = to->device->queue();
  const cl_int code =
      to->is_image()
          ? api.clEnqueueWriteImage(queue, to->mem, CL_TRUE, kOrigin, to->region.data(), 0, 0, from,
                                    0, nullptr, nullptr)
          : api.clEnqueueWriteBuffer(queue, to->mem, CL_TRUE, offset, bytes, from, 0, nullptr,
                                     nullptr);
  if (code != CL_SUCCESS) Check(code, Sizes("the copy to the device", bytes, *to));
}

void CopyToHost(const Memory& from, size_t offset, void* to, size_t bytes) {
  CheckRange(from, offset, bytes);
  if (bytes == 0) return;
  const ClApi& api = Api();
  cl_command_queue queue = from.device->queue();
  const cl_int code =
      from.is_image()
          ? api.clEnqueueReadImage(queue, from.mem, CL_TRUE, kOrigin, from.region.data(), 0, 0, to,
                                   0, nullptr, nullptr)
          : api.clEnqueueReadBuffer(queue, from.mem, CL_TRUE, offset, bytes, to, 0, nullptr,
                                    nullptr);
  if (code != CL_SUCCESS) Check(code, Sizes("the copy to the host", bytes, from));
}

void CopyOnDevice(const Memory& from, size_t from_offset, Memory* to, size_t to_offset,
                  size_t bytes) {
  CheckRange(from, from_offset, bytes);
  CheckRange(*to, to_offset, bytes);
  if (bytes == 0) return;
  if (from.device != to->device) {
    // Each device has its own context, and contexts share nothing: go through the host.
    std::vector<char> staging(bytes);
    CopyToHost(from, from_offset, staging.data(), bytes);
    CopyToDevice(staging.data(), to, to_offset, bytes);
    return;
  }
  const ClApi& api = Api();
  cl_command_queue queue = to->device->queue();
  cl_int code = CL_SUCCESS;
  if (!from.is_image() && !to->is_image()) {
    code = api.clEnqueueCopyBuffer(queue, from.mem, to->mem, from_offset, to_offset, bytes, 0,
                                   nullptr, nullptr);
  } else if (!from.is_image()) {
    code = api.clEnqueueCopyBufferToImage(queue, from.mem, to->mem, from_offset, kOrigin,
                                          to->region.data(), 0, nullptr, nullptr);
  } else if (!to->is_image()) {
    code = api.clEnqueueCopyImageToBuffer(queue, from.mem, to->mem, kOrigin, from.region.data(),
                                          to_offset, 0, nullptr, nullptr);
  } else if (from.region == to->region) {
    code = api.clEnqueueCopyImage(queue, from.mem, to->mem, kOrigin, kOrigin, to->region.data(), 0,
                                  nullptr, nullptr);
  } else {
    TVM_FFI_THROW(RuntimeError) << "OpenCL: images of different shapes cannot be copied";
  }
  if (code != CL_SUCCESS) Check(code, Sizes("the copy between tensors", bytes, *to));
}

}  // namespace opencl
}  // namespace autotune
