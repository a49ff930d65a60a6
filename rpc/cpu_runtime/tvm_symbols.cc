// SPDX-License-Identifier: Apache-2.0
#include "tvm_symbols.h"

#include <dlfcn.h>
#include <tvm/ffi/c_api.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <cstdlib>
#include <mutex>
#include <vector>

namespace autotune {
namespace cpu_runtime {
namespace {

constexpr size_t kAlignment = 64;  // What generated vector loads assume of a workspace.
constexpr size_t kMaxIdle = 16;

/// Workspaces are allocated and freed at every call of a kernel; kept ones spare the measurement
/// the page faults of fresh memory. One list a thread, as each allocates for itself.
class WorkspaceCache {
 public:
  ~WorkspaceCache() {
    for (const Block& block : idle_) std::free(block.data);
  }

  void* Take(size_t bytes) {
    for (size_t i = idle_.size(); i-- > 0;) {
      if (idle_[i].bytes < bytes || idle_[i].bytes > 2 * bytes + kAlignment) continue;
      busy_.push_back(idle_[i]);
      idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(i));
      return busy_.back().data;
    }
    const size_t size = (bytes / kAlignment + 1) * kAlignment;
    void* data = std::aligned_alloc(kAlignment, size);
    if (data != nullptr) busy_.push_back({data, size});
    return data;
  }

  void Give(void* data) {
    for (size_t i = busy_.size(); i-- > 0;) {
      if (busy_[i].data != data) continue;
      idle_.push_back(busy_[i]);
      busy_.erase(busy_.begin() + static_cast<std::ptrdiff_t>(i));
      if (idle_.size() > kMaxIdle) {
        std::free(idle_.front().data);
        idle_.erase(idle_.begin());
      }
      return;
    }
    std::free(data);  // Another thread's: it forgets the block when it ends.
  }

 private:
  struct Block {
    void* data;
    size_t bytes;
  };
  std::vector<Block> busy_;
  std::vector<Block> idle_;
};

WorkspaceCache& Workspaces() {
  thread_local WorkspaceCache cache;
  return cache;
}

void Raise(const std::string& message) {
  if (ThreadTeam* team = ThreadTeam::Current()) team->Raise(message);
}

int RefuseRuntime(const std::string& what) {
  Raise("the kernel needs the TVM runtime, which this program does not have: " + what);
  return -1;
}

}  // namespace

void UseTeam(ThreadTeam* team) { ThreadTeam::Use(team); }

std::string TakeRaisedError() {
  ThreadTeam* team = ThreadTeam::Current();
  std::string message = team != nullptr ? team->TakeRaised() : "";
  return message.empty() ? "the kernel failed without a message" : message;
}

void BindLibrary(void* library) {
#define AUTOTUNE_BIND(name)                                                   \
  if (auto** slot = reinterpret_cast<void**>(dlsym(library, "__" #name))) { \
    *slot = reinterpret_cast<void*>(&name);                                   \
  }
  AUTOTUNE_BIND(TVMBackendAllocWorkspace)
  AUTOTUNE_BIND(TVMBackendFreeWorkspace)
  AUTOTUNE_BIND(TVMBackendParallelLaunch)
  AUTOTUNE_BIND(TVMBackendParallelBarrier)
  AUTOTUNE_BIND(TVMFFIErrorSetRaisedFromCStr)
  AUTOTUNE_BIND(TVMFFIErrorSetRaisedFromCStrParts)
  AUTOTUNE_BIND(TVMFFIFunctionCall)
  AUTOTUNE_BIND(TVMFFIHandleInitOnce)
  AUTOTUNE_BIND(TVMFFIEnvModLookupFromImports)
#undef AUTOTUNE_BIND
}

}  // namespace cpu_runtime
}  // namespace autotune

// The functions themselves, with the names and types of TVM's C headers.

namespace runner = autotune::cpu_runtime;

extern "C" {

void* TVMBackendAllocWorkspace(int device_type, int, uint64_t nbytes, int, int) {
  if (device_type != kDLCPU) {
    runner::RefuseRuntime("memory of a device that is not a CPU");
    return nullptr;
  }
  return runner::Workspaces().Take(static_cast<size_t>(nbytes));
}

int TVMBackendFreeWorkspace(int, int, void* ptr) {
  runner::Workspaces().Give(ptr);
  return 0;
}

int TVMBackendParallelLaunch(FTVMParallelLambda flambda, void* cdata, int num_task) {
  runner::ThreadTeam* team = runner::ThreadTeam::Current();
  const int tasks = num_task == 0 ? team->size() : num_task;
  if (tasks > team->size()) {
    runner::Raise("the kernel wants " + std::to_string(tasks) + " threads, and has " +
                  std::to_string(team->size()));
    return -1;
  }
  return team->Run(flambda, cdata, tasks);
}

int TVMBackendParallelBarrier(int, TVMParallelGroupEnv* penv) {
  if (penv->num_task > 1) static_cast<runner::ThreadTeam*>(penv->sync_handle)->Barrier();
  return 0;
}

void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message) {
  runner::Raise(std::string(kind) + ": " + message);
}

void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** message_parts,
                                       int32_t num_parts) {
  std::string message = std::string(kind) + ": ";
  for (int32_t i = 0; i < num_parts; ++i) {
    if (message_parts[i] != nullptr) message += message_parts[i];
  }
  runner::Raise(message);
}

int TVMFFIFunctionCall(TVMFFIObjectHandle, TVMFFIAny*, int32_t, TVMFFIAny*) {
  return runner::RefuseRuntime("a call of a packed function");
}

int TVMFFIEnvModLookupFromImports(TVMFFIObjectHandle, const char* func_name, TVMFFIObjectHandle*) {
  return runner::RefuseRuntime(std::string("the function '") + func_name + "'");
}

int TVMFFIHandleInitOnce(void** handle_addr, int (*init_func)(void** result)) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  return *handle_addr != nullptr ? 0 : init_func(handle_addr);
}

}  // extern "C"
