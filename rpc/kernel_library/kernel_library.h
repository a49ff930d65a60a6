// SPDX-License-Identifier: Apache-2.0
//
// What an exported C library is made of: tables that the exporter generates, and the functions behind its C API.
#ifndef AUTOTUNE_KERNEL_LIBRARY_KERNEL_LIBRARY_H_
#define AUTOTUNE_KERNEL_LIBRARY_KERNEL_LIBRARY_H_

#include <dlpack/dlpack.h>
#include <tvm/ffi/c_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "../cpu_runtime/thread_team.h"

namespace autotune {
namespace kernel_library {

/// The signature of every function that TVM compiles.
using KernelFunction = int (*)(void* self, const TVMFFIAny* args, int32_t num_args,
                               TVMFFIAny* result);

/// In the order of the C header's enumeration.
enum Status : int {
  kOk = 0,
  kNullPointer,
  kUnalignedPointer,
  kBadThreads,
  kUnknownVariant,
  kUnsupportedCpu,
  kOutOfMemory,
  kNoThreads,
  kUnknownKernel,
  kKernelFailed,
  kBadOptions,
  kStatusCount
};

struct OperandTable {
  DLDataType dtype;
  int32_t ndim;
  const int64_t* shape;
};

struct KernelTable {
  size_t operand_count;
  const OperandTable* operands;
  const KernelFunction* functions;  ///< One a variant; null where a variant lacks the kernel.
};

struct VariantTable {
  const char* name;
  const char* soc;                  ///< Empty: only by name.
  const char* cluster;              ///< Empty: every cluster.
  int threads;                      ///< That it was measured with; 0: as many as there are cores.
  const char* const* cpu_features;  ///< That its code uses, as Linux names them; ends with null.
};

struct LibraryTable {
  size_t kernel_count;
  const KernelTable* kernels;
  size_t variant_count;
  const VariantTable* variants;
  size_t safe_variant;  ///< Runs on every processor of the architecture, and has every kernel.
};

struct ContextOptions {
  int threads;
  const char* variant;
  const char* soc;
  const char* cluster;
};

constexpr int kMaxThreads = 1024;
constexpr size_t kMaxOperands = 64;
constexpr uintptr_t kAlignment = 64;  // What TVM's generated vector code assumes of tensors.

/// The threads of some callers, and the variant that was chosen for them. Calls wait for each other.
class Context {
 public:
  Context(const LibraryTable& library, size_t variant, int threads);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// `pointers` has one address an operand, inputs first.
  Status Call(size_t kernel, void* const* pointers);

  size_t variant() const { return variant_; }
  int threads() const { return team_.size(); }
  /// Text of the last call that failed; good until the next one does.
  const char* error() const { return error_.c_str(); }

 private:
  Status Fail(Status status, const std::string& text);

  const LibraryTable& library_;
  const size_t variant_;
  std::mutex mutex_;
  std::string error_;
  cpu_runtime::ThreadTeam team_;
};

/// A short text; the same for every library.
const char* StatusText(int status);

/// Chooses a variant and starts the threads. `options` fields may be null or 0.
Status Create(const LibraryTable& library, const ContextOptions& options, Context** created);

/// Which variant fits: the named one; else the first of this SoC, one of the wanted cluster before one of none;
/// else the safe one.
Status Choose(const LibraryTable& library, const ContextOptions& options, size_t* variant);

}  // namespace kernel_library
}  // namespace autotune

#endif  // AUTOTUNE_KERNEL_LIBRARY_KERNEL_LIBRARY_H_
