// SPDX-License-Identifier: Apache-2.0
#include "kernel_library.h"

#include <sched.h>

#include <new>
#include <system_error>

#include "../cpu_runtime/tvm_symbols.h"
#include "machine.h"

namespace autotune {
namespace kernel_library {
namespace {

const char* const kTexts[kStatusCount] = {
    "no error",
    "a pointer is null",
    "a tensor's address is not a multiple of 64 bytes",
    "the number of threads is not between 0 and 1024",
    "the library has no variant of that name",
    "the variant's code uses instructions that this processor does not have",
    "no memory",
    "the system starts no more threads",
    "the library has no kernel of that number",
    "the kernel failed",
    "the options' size is not one that this library knows",
};

/// Tells kernels of one thread whose threads to use, and nothing of it afterwards.
class InUse {
 public:
  explicit InUse(cpu_runtime::ThreadTeam* team) : before_(cpu_runtime::ThreadTeam::Current()) {
    cpu_runtime::UseTeam(team);
  }
  ~InUse() { cpu_runtime::UseTeam(before_); }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

 private:
  cpu_runtime::ThreadTeam* before_;
};

/// Cores that this thread may run on, which is what the threads that it starts may.
int Cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count > 0 ? count : 1;
}

std::string Operand(size_t index) { return "operand " + std::to_string(index); }

}  // namespace

const char* StatusText(int status) {
  return status >= 0 && status < kStatusCount ? kTexts[status] : "not a status of this library";
}

Context::Context(const LibraryTable& library, size_t variant, int threads)
    : library_(library), variant_(variant), team_(threads) {}

Status Context::Fail(Status status, const std::string& text) {
  error_ = text.empty() ? StatusText(status) : text + ": " + StatusText(status);
  return status;
}

Status Context::Call(size_t index, void* const* pointers) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (index >= library_.kernel_count) return Fail(kUnknownKernel, std::to_string(index));
  const KernelTable& kernel = library_.kernels[index];
  if (pointers == nullptr) return Fail(kNullPointer, "the list of operands");
  DLTensor tensors[kMaxOperands];
  TVMFFIAny arguments[kMaxOperands];
  for (size_t i = 0; i < kernel.operand_count; ++i) {
    const OperandTable& operand = kernel.operands[i];
    if (pointers[i] == nullptr) return Fail(kNullPointer, Operand(i));
    if (reinterpret_cast<uintptr_t>(pointers[i]) % kAlignment != 0) {
      return Fail(kUnalignedPointer, Operand(i));
    }
    tensors[i] = {pointers[i],
                  {kDLCPU, 0},
                  operand.ndim,
                  operand.dtype,
                  const_cast<int64_t*>(operand.shape),
                  nullptr,  // Compact.
                  0};
    arguments[i] = {};
    arguments[i].type_index = kTVMFFIDLTensorPtr;
    arguments[i].v_ptr = &tensors[i];
  }
  KernelFunction function = kernel.functions[variant_];
  if (function == nullptr) function = kernel.functions[library_.safe_variant];
  const InUse use(&team_);
  TVMFFIAny result{};
  if (function(nullptr, arguments, static_cast<int32_t>(kernel.operand_count), &result) != 0) {
    return Fail(kKernelFailed, cpu_runtime::TakeRaisedError());
  }
  return kOk;
}

Status Choose(const LibraryTable& library, const ContextOptions& options, size_t* variant) {
  if (options.variant != nullptr) {
    for (size_t i = 0; i < library.variant_count; ++i) {
      if (!SameName(library.variants[i].name, options.variant)) continue;
      *variant = i;
      return MissingFeature(library.variants[i].cpu_features) == nullptr ? kOk : kUnsupportedCpu;
    }
    return kUnknownVariant;
  }
  const std::string soc = options.soc != nullptr ? options.soc : Soc();
  const std::string cluster = options.cluster != nullptr ? options.cluster : "";
  *variant = library.safe_variant;
  int best = 0;
  for (size_t i = 0; i < library.variant_count; ++i) {
    const VariantTable& one = library.variants[i];
    const std::string own = one.cluster;
    if (*one.soc == '\0' || !SameName(one.soc, soc)) continue;
    if (!own.empty() && !cluster.empty() && !SameName(own, cluster)) continue;
    // Of this cluster; else of no cluster in particular; else, where none is wanted, of any.
    const int rank = own.empty() ? 2 : cluster.empty() ? 1 : 3;
    if (rank <= best || MissingFeature(one.cpu_features) != nullptr) continue;
    best = rank;
    *variant = i;
  }
  return kOk;
}

Status Create(const LibraryTable& library, const ContextOptions& options, Context** created) {
  if (created == nullptr) return kNullPointer;
  *created = nullptr;
  if (options.threads < 0 || options.threads > kMaxThreads) return kBadThreads;
  try {
    size_t variant = 0;
    if (const Status status = Choose(library, options, &variant)) return status;
    int threads = options.threads;
    if (threads == 0) threads = library.variants[variant].threads;
    if (threads == 0) threads = Cores();
    *created = new Context(library, variant, threads);
    return kOk;
  } catch (const std::system_error&) {
    return kNoThreads;
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  }
}

}  // namespace kernel_library
}  // namespace autotune
