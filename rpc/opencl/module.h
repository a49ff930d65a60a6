// SPDX-License-Identifier: Apache-2.0
//
// The module that holds a compiled function's kernels: made by the code generator or loaded from a
// library file, and saved in the same bytes as TVM's own OpenCL module.
#ifndef AUTOTUNE_OPENCL_MODULE_H_
#define AUTOTUNE_OPENCL_MODULE_H_

#include <tvm/ffi/container/map.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/string.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "function_info.h"
#include "kernel.h"

namespace autotune {
namespace opencl {

class ClModule final : public tvm::ffi::ModuleObj {
 public:
  /// In the order of TVM's map: it decides the order of the saved bytes.
  using Functions = std::vector<std::pair<std::string, FunctionInfo>>;

  ClModule(std::string format, Functions functions, std::string code,
           tvm::ffi::Map<tvm::ffi::String, tvm::ffi::String> inspectable);

  const char* kind() const final { return "opencl"; }
  int GetPropertyMask() const final {
    return tvm::ffi::Module::kBinarySerializable | tvm::ffi::Module::kRunnable;
  }
  tvm::ffi::Optional<tvm::ffi::Function> GetFunction(const tvm::ffi::String& name) final;
  tvm::ffi::Bytes SaveToBytes() const final;
  tvm::ffi::String InspectSource(const tvm::ffi::String& format) const final;

 private:
  std::shared_ptr<Kernel> KernelFor(const std::string& name, const FunctionInfo& info);

  std::string format_;
  Functions functions_;
  std::string code_;
  tvm::ffi::Map<tvm::ffi::String, tvm::ffi::String> inspectable_;  // Never saved.
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Kernel>> kernels_;
};

/// What TVM's code generator calls; touches no OpenCL, so compiling needs no device.
tvm::ffi::Module CreateModule(tvm::ffi::Bytes code, tvm::ffi::String format,
                              tvm::ffi::Map<tvm::ffi::String, tvm::ffi::ObjectRef> functions,
                              tvm::ffi::Map<tvm::ffi::String, tvm::ffi::String> inspectable);

/// Compiles every kernel of a source text for the first device, as each is compiled at its first launch. Of use where
/// programs are kept (program_cache.h): a launch then finds them.
void CompilePrograms(const std::string& code);

/// What TVM calls for an OpenCL module inside an exported library.
tvm::ffi::Module LoadModule(tvm::ffi::Bytes bytes);

}  // namespace opencl
}  // namespace autotune

#endif  // AUTOTUNE_OPENCL_MODULE_H_
