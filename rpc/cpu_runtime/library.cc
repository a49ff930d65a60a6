// SPDX-License-Identifier: Apache-2.0
#include "library.h"

#include <dlfcn.h>

#include <stdexcept>

#include "tvm_symbols.h"

namespace autotune {
namespace cpu_runtime {

Library::Library(const std::string& path) : path_(path) {
  // dlopen looks for a name without a slash in the system's folders, not here.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) throw std::runtime_error(dlerror());
  BindLibrary(handle_);
}

KernelFunction Library::Kernel(const std::string& symbol) const {
  for (const std::string& name : {symbol, "__tvm_ffi_" + symbol}) {
    if (void* address = dlsym(handle_, name.c_str())) {
      return reinterpret_cast<KernelFunction>(address);
    }
  }
  throw std::runtime_error(path_ + " has neither " + symbol + " nor __tvm_ffi_" + symbol);
}

TVMFFIAny Argument(DLTensor* tensor) {
  TVMFFIAny argument{};
  argument.type_index = kTVMFFIDLTensorPtr;
  argument.v_ptr = tensor;
  return argument;
}

void Call(KernelFunction kernel, const std::vector<TVMFFIAny>& arguments) {
  TVMFFIAny result{};
  if (kernel(nullptr, arguments.data(), static_cast<int32_t>(arguments.size()), &result) != 0) {
    throw std::runtime_error(TakeRaisedError());
  }
}

}  // namespace cpu_runtime
}  // namespace autotune
