// SPDX-License-Identifier: Apache-2.0
//
// Buffers that live for one call of a compiled function, kept for the next call.
#ifndef AUTOTUNE_OPENCL_WORKSPACE_POOL_H_
#define AUTOTUNE_OPENCL_WORKSPACE_POOL_H_

#include <deque>
#include <memory>
#include <mutex>

#include "driver/memory.h"

namespace autotune {
namespace opencl {

/// A buffer may be handed out again while kernels that use it are still queued: the device's one
/// queue runs commands in order, so the next user's kernels come after them.
class WorkspacePool {
 public:
  explicit WorkspacePool(Device* device) : device_(device) {}

  Memory* Take(size_t bytes);
  void Give(Memory* buffer);
  /// Frees every idle buffer.
  void Trim();

 private:
  Device* device_;
  std::mutex mutex_;
  std::deque<std::unique_ptr<Memory>> idle_;  // The longest idle one first.
  size_t idle_bytes_ = 0;
};

}  // namespace opencl
}  // namespace autotune

#endif  // AUTOTUNE_OPENCL_WORKSPACE_POOL_H_
