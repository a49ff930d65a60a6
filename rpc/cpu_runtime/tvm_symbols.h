// SPDX-License-Identifier: Apache-2.0
//
// The part of TVM's runtime that a compiled CPU kernel calls.
#ifndef AUTOTUNE_CPU_RUNTIME_TVM_SYMBOLS_H_
#define AUTOTUNE_CPU_RUNTIME_TVM_SYMBOLS_H_

#include <string>

#include "thread_team.h"

namespace autotune {
namespace cpu_runtime {

/// The team that parallel loops of this thread's kernels run on; it must outlive every kernel call.
void UseTeam(ThreadTeam* team);

/// A library exported by TVM calls most of the runtime through pointer variables of its own, which
/// whoever loads it fills in. Does so for those that `library` (a dlopen handle) has.
void BindLibrary(void* library);

/// The message of the last error that a kernel of this thread's team raised, and forgets it.
std::string TakeRaisedError();

}  // namespace cpu_runtime
}  // namespace autotune

#endif  // AUTOTUNE_CPU_RUNTIME_TVM_SYMBOLS_H_
