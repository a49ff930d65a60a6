// SPDX-License-Identifier: Apache-2.0
#include "cl_api.h"

#include <dlfcn.h>
#include <tvm/ffi/error.h>

#include <cstdlib>
#include <vector>

namespace autotune {
namespace opencl {
namespace {

constexpr const char* kLibraryVariable = "AUTOTUNE_OPENCL_LIBRARY";

std::vector<std::string> Candidates() {
  // A set variable is the whole list: that is how a test plays a machine without OpenCL, and how a
  // user makes sure that no other driver is taken.
  if (const char* chosen = std::getenv(kLibraryVariable)) return {chosen};
  return {"libOpenCL.so.1",
          "libOpenCL.so",
          "/vendor/lib64/libOpenCL.so",
          "/vendor/lib64/libOpenCL-pixel.so",
          "/vendor/lib64/libGLES_mali.so",
          "/vendor/lib64/egl/libGLES_mali.so",
          "/system/vendor/lib64/libOpenCL.so",
          "/system/lib64/libOpenCL.so"};
}

/// Finds symbols in a loaded library, including the Pixel driver's own indirection.
class SymbolFinder {
 public:
  explicit SymbolFinder(void* handle) : handle_(handle) {
    // Pixel phones hide the entry points: enableOpenCL() opens the driver and
    // loadOpenCLPointer(name) hands them out.
    auto enable = reinterpret_cast<void (*)()>(dlsym(handle, "enableOpenCL"));
    load_ = reinterpret_cast<void* (*)(const char*)>(dlsym(handle, "loadOpenCLPointer"));
    if (enable != nullptr && load_ != nullptr) enable();
  }

  void* Find(const char* name) const {
    return load_ != nullptr ? load_(name) : dlsym(handle_, name);
  }

 private:
  void* handle_;
  void* (*load_)(const char*);
};

/// Fills the table; returns the name of the first absent function, or null.
const char* FillTable(const SymbolFinder& finder, ClApi* api) {
#define AUTOTUNE_FIND(name)                                         \
  api->name = reinterpret_cast<decltype(&::name)>(finder.Find(#name)); \
  if (api->name == nullptr) return #name;
  AUTOTUNE_OPENCL_FUNCTIONS(AUTOTUNE_FIND)
#undef AUTOTUNE_FIND
  return nullptr;
}

ClLibrary* Search() {
  auto* library = new ClLibrary;
  std::string tried;
  for (const std::string& path : Candidates()) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      tried += (tried.empty() ? "" : ", ") + (path.empty() ? std::string("\"\"") : path);
      continue;
    }
    ClApi api;
    if (const char* absent = FillTable(SymbolFinder(handle), &api)) {
      tried += (tried.empty() ? "" : ", ") + path + " (has no " + absent + ")";
      dlclose(handle);
      continue;
    }
    library->api = api;
    library->path = path;
    return library;
  }
  library->reason = "no OpenCL library on this machine (tried " + tried +
                    "); on Debian install ocl-icd-libopencl1 and a driver, such as "
                    "pocl-opencl-icd for the CPU, or name a library in " + kLibraryVariable;
  return library;
}

}  // namespace

const ClLibrary& Library() {
  // Never freed: drivers may still be called while the process ends.
  static const ClLibrary* library = Search();
  return *library;
}

const ClApi& Api() {
  const ClLibrary& library = Library();
  if (library.path.empty()) TVM_FFI_THROW(RuntimeError) << "OpenCL: " << library.reason;
  return library.api;
}

}  // namespace opencl
}  // namespace autotune
