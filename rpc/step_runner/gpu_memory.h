// SPDX-License-Identifier: Apache-2.0
//
// Where a step's tensors are while a GPU makes some of its calls, and how they cross.
#ifndef AUTOTUNE_STEP_RUNNER_GPU_MEMORY_H_
#define AUTOTUNE_STEP_RUNNER_GPU_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "opencl.h"
#include "plan.h"
#include "settings.h"

namespace autotune {
namespace step_runner {

/// Seconds.
struct CrossingTimes {
  double waited = 0;   ///< For what the GPU had been given before.
  double crossed = 0;
};

/// Two arenas with the same offsets, the host's and the GPU's. A tensor that both have in the same
/// order crosses by a copy, or by being mapped and unmapped where the host's arena is shared; one
/// that the GPU has in another order is reordered on the GPU as well.
class GpuMemory {
 public:
  /// `arena` is the host's memory, which begins a page. Throws std::runtime_error.
  GpuMemory(const OpenCl& cl, const Plan& plan, char* arena, Memory memory, bool timed);
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  /// What follows waits until the host has the tensor, or may overwrite it.
  void HostReads(size_t tensor);
  void HostWrites(size_t tensor);
  /// What is enqueued next finds the tensor on the GPU, or may overwrite it there.
  void GpuReads(size_t tensor);
  void GpuWrites(size_t tensor);
  /// Copies one tensor over another where the first is; throws std::runtime_error.
  void Copy(size_t from, size_t to);

  /// What kernels are given.
  cl_mem Operand(size_t tensor);

  /// What crossings took since this was last asked; nothing unless `timed`.
  CrossingTimes TakeTimes();

 private:
  using Range = std::pair<uint64_t, uint64_t>;  ///< Offset and bytes.

  struct Place {
    Range range;
    Buffer device, shared;
    bool on_host = true, on_gpu = false;  ///< Whose content is the tensor's.
    bool mapped = false;
    std::vector<Place*> overlapping;  ///< Of tensors that live at other times.
  };

  Place& At(size_t tensor);
  const Order* OrderOf(size_t tensor) const;
  bool SharesStorage(size_t tensor) const;
  cl_mem Device(Place* place);
  cl_mem Shared(Place* place);
  cl_mem Part(const Buffer& arena, const Range& range) const;
  void Map(Place* place);
  void Unmap(Place* place);
  /// Before the GPU touches what the host may have mapped.
  void Release(Place* place);
  void ToHost(Place* place, const Order* order);
  void ToGpu(Place* place, const Order* order);
  cl_mem Staging();
  template <typename Action>
  void Crossing(Action action);
  void Reorder(cl_mem from, cl_mem to, const Order& order, bool to_gpu);

  const OpenCl& cl_;
  const Plan& plan_;
  char* const arena_;
  const Memory memory_;
  const bool timed_;
  CrossingTimes times_;
  Buffer device_, shared_, staging_;
  Program reorder_program_;
  Kernel reorder_;
  std::map<Range, std::unique_ptr<Place>> places_;
};

}  // namespace step_runner
}  // namespace autotune

#endif  // AUTOTUNE_STEP_RUNNER_GPU_MEMORY_H_
