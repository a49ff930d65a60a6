// SPDX-License-Identifier: Apache-2.0
//
// Kernel libraries that TVM exported, and calls of their functions.
#ifndef AUTOTUNE_CPU_RUNTIME_LIBRARY_H_
#define AUTOTUNE_CPU_RUNTIME_LIBRARY_H_

#include <dlpack/dlpack.h>
#include <tvm/ffi/c_api.h>

#include <string>
#include <vector>

namespace autotune {
namespace cpu_runtime {

/// The signature of every function that TVM exports from a library.
using KernelFunction = int (*)(void* self, const TVMFFIAny* args, int32_t num_args,
                               TVMFFIAny* result);

/// A loaded library; it stays loaded until the process ends.
class Library {
 public:
  /// Throws std::runtime_error where it cannot be loaded.
  explicit Library(const std::string& path);

  /// Throws std::runtime_error where there is no such kernel.
  KernelFunction Kernel(const std::string& symbol) const;

 private:
  std::string path_;
  void* handle_;
};

/// A tensor as an argument.
TVMFFIAny Argument(DLTensor* tensor);

/// Runs a kernel; throws std::runtime_error with what it raised.
void Call(KernelFunction kernel, const std::vector<TVMFFIAny>& arguments);

}  // namespace cpu_runtime
}  // namespace autotune

#endif  // AUTOTUNE_CPU_RUNTIME_LIBRARY_H_
