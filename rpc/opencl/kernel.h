// SPDX-License-Identifier: Apache-2.0
//
// One kernel of a module: built once on each device that runs it, then launched.
#ifndef AUTOTUNE_OPENCL_KERNEL_H_
#define AUTOTUNE_OPENCL_KERNEL_H_

#include <tvm/ffi/c_api.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver/cl_api.h"
#include "driver/device.h"
#include "function_info.h"
#include "launch_shape.h"

namespace autotune {
namespace opencl {

class Kernel {
 public:
  Kernel(const FunctionInfo& info, std::string source);
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  /// Enqueues one run on the device that this thread has set. `args` holds the kernel's arguments
  /// and, after them, its launch parameters. Does not wait for the run.
  void Launch(const TVMFFIAny* args, int32_t num_args);

 private:
  struct Built;

  Built& BuiltFor(Device* device);
  /// False where the driver makes no image of an argument that is one.
  bool SetArguments(const Built& built, const TVMFFIAny* args, const LaunchShape& shape) const;
  [[noreturn]] void ThrowLaunchError(cl_int code, const Built& built, const LaunchShape& shape,
                                     const Device& device) const;

  const char* name_;  // Lives for ever: a device remembers the last kernel it was given.
  std::string source_;
  std::vector<DLDataType> arg_types_;
  LaunchParams launch_params_;
  // OpenCL keeps a kernel's arguments in the kernel itself, so setting them and enqueueing must not
  // be interrupted by another thread. Building is under the same lock: it happens once.
  std::mutex mutex_;
  std::vector<std::unique_ptr<Built>> built_;  // By device index.
};

/// The device that this thread launches on; TVM sets it before each launch.
int CurrentDevice();
void SetCurrentDevice(int index);

}  // namespace opencl
}  // namespace autotune

#endif  // AUTOTUNE_OPENCL_KERNEL_H_
