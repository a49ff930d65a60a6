// SPDX-License-Identifier: Apache-2.0
//
// Everything that TVM and Python find by name, registered when the library is loaded.
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include "driver/device.h"
#include "device_api.h"
#include "driver/device_info.h"
#include "driver/memory.h"
#include "module.h"
#include "driver/timer.h"

namespace autotune {
namespace opencl {
namespace {

namespace ffi = tvm::ffi;

/// Generated code calls it for a texture that lives for one call:
/// (device type, device id, type code, type bits, scope, 3, {width, height, layers}, pixel bits).
void AllocTexture(ffi::PackedArgs args, ffi::Any* rv) {
  const auto scope = args[4].cast<std::string>();
  if (!IsTextureScope(scope) || args[5].cast<int64_t>() != 3) {
    TVM_FFI_THROW(RuntimeError) << "OpenCL: cannot allocate a texture in scope '" << scope << "'";
  }
  const auto* shape = static_cast<const int64_t*>(args[6].cast<void*>());
  const auto pixel_bits = args[7].cast<int64_t>();
  if (pixel_bits != 128 && pixel_bits != 64) {
    TVM_FFI_THROW(RuntimeError) << "OpenCL: a texture's pixel has 4 channels of 32 or 16 bits, not "
                                << pixel_bits << " bits in all";
  }
  const DLDataType channel{kDLFloat, static_cast<uint8_t>(pixel_bits / 4), 1};
  const std::array<size_t, 3> region{{static_cast<size_t>(shape[0]), static_cast<size_t>(shape[1]),
                                      static_cast<size_t>(shape[2])}};
  *rv = static_cast<void*>(CreateImage(&GetDevice(args[1].cast<int>()), region, channel));
}

/// (device type, device id, scope, texture)
void FreeTexture(ffi::PackedArgs args, ffi::Any* rv) {
  delete static_cast<Memory*>(args[3].cast<void*>());
  *rv = 0;
}

void RegisterRuntime() {
  ffi::reflection::GlobalDef()
      .def_packed("device_api.opencl",
                  [](ffi::PackedArgs, ffi::Any* rv) {
                    tvm::runtime::DeviceAPI* api = ClDeviceApi::Global();
                    *rv = static_cast<void*>(api);
                  })
      .def_packed("device_api.opencl.alloc_nd", AllocTexture)
      .def_packed("device_api.opencl.free_nd", FreeTexture)
      .def("runtime.timer.opencl",
           [](DLDevice dev) {
             return tvm::runtime::Timer(ffi::make_object<ClTimer>(dev.device_id));
           })
      .def("ffi.Module.create.opencl", CreateModule)
      .def("ffi.Module.load_from_bytes.opencl", LoadModule);
}

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef()
      .def("autotune.opencl.devices", [] { return ffi::String(DevicesJson()); })
      .def("autotune.opencl.compile", [](const ffi::String& code) { CompilePrograms(code); })
      .def("autotune.opencl.set_profiling", [](bool enabled) { SetProfiling(enabled); });
  // A TVM that was built with its own OpenCL keeps it: to register a name twice is an error, and at
  // this point it would end the process.
  if (!ffi::Function::GetGlobal("ffi.Module.create.opencl").has_value() &&
      !ffi::Function::GetGlobal("device_api.opencl").has_value()) {
    RegisterRuntime();
  }
}

}  // namespace
}  // namespace opencl
}  // namespace autotune
