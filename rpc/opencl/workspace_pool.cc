// SPDX-License-Identifier: Apache-2.0
#include "workspace_pool.h"

namespace autotune {
namespace opencl {
namespace {

constexpr size_t kPage = 4096;
// A tuner runs thousands of kernels with different workspaces in one process: what is kept idle
// must be bounded, in bytes and in number.
constexpr size_t kMaxIdleBytes = size_t{256} << 20;
constexpr size_t kMaxIdleBuffers = 32;

}  // namespace

Memory* WorkspacePool::Take(size_t bytes) {
  const size_t wanted = (bytes + kPage - 1) / kPage * kPage;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto best = idle_.end();
    for (auto it = idle_.begin(); it != idle_.end(); ++it) {
      const size_t size = (*it)->bytes;
      // Not one more than twice too large, or a small workspace would keep a large one busy.
      if (size < wanted || size > 2 * wanted) continue;
      if (best == idle_.end() || size < (*best)->bytes) best = it;
    }
    if (best != idle_.end()) {
      Memory* found = best->release();
      idle_.erase(best);
      idle_bytes_ -= found->bytes;
      return found;
    }
  }
  // Outside the lock: a failing allocation trims this pool.
  return CreateBuffer(device_, wanted);
}

void WorkspacePool::Give(Memory* buffer) {
  std::lock_guard<std::mutex> lock(mutex_);
  idle_.emplace_back(buffer);
  idle_bytes_ += buffer->bytes;
  while (idle_bytes_ > kMaxIdleBytes || idle_.size() > kMaxIdleBuffers) {
    idle_bytes_ -= idle_.front()->bytes;
    idle_.pop_front();
  }
}

void WorkspacePool::Trim() {
  std::lock_guard<std::mutex> lock(mutex_);
  idle_.clear();
  idle_bytes_ = 0;
}

}  // namespace opencl
}  // namespace autotune
