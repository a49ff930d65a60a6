// SPDX-License-Identifier: Apache-2.0
//
// TVM's view of OpenCL devices: memory, copies, waiting and attributes.
#ifndef AUTOTUNE_OPENCL_DEVICE_API_H_
#define AUTOTUNE_OPENCL_DEVICE_API_H_

#include <tvm/runtime/device_api.h>

#include <string>

namespace autotune {
namespace opencl {

class ClDeviceApi final : public tvm::runtime::DeviceAPI {
 public:
  /// Never destroyed: tensors may be freed at any time, up to the end of the process.
  static ClDeviceApi* Global();

  void SetDevice(DLDevice dev) final;
  void GetAttr(DLDevice dev, tvm::runtime::DeviceAttrKind kind, tvm::ffi::Any* rv) final;
  void GetTargetProperty(DLDevice dev, const std::string& property, tvm::ffi::Any* rv) final;
  size_t GetDataSize(const DLTensor& tensor,
                     tvm::ffi::Optional<tvm::ffi::String> mem_scope) final;
  void* AllocDataSpace(DLDevice dev, size_t nbytes, size_t alignment, DLDataType type_hint) final;
  void* AllocDataSpace(DLDevice dev, int ndim, const int64_t* shape, DLDataType dtype,
                       tvm::ffi::Optional<tvm::ffi::String> mem_scope) final;
  void FreeDataSpace(DLDevice dev, void* ptr) final;
  void CopyDataFromTo(DLTensor* from, DLTensor* to, TVMStreamHandle stream) final;
  void StreamSync(DLDevice dev, TVMStreamHandle stream) final;
  void* AllocWorkspace(DLDevice dev, size_t nbytes, DLDataType type_hint) final;
  void FreeWorkspace(DLDevice dev, void* ptr) final;
};

}  // namespace opencl
}  // namespace autotune

#endif  // AUTOTUNE_OPENCL_DEVICE_API_H_
