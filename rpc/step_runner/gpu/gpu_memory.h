// SPDX-License-Identifier: Apache-2.0
//
// Where a step's tensors are while a GPU makes some of its calls, and how they cross.
#ifndef AUTOTUNE_STEP_RUNNER_GPU_MEMORY_H_
#define AUTOTUNE_STEP_RUNNER_GPU_MEMORY_H_

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "crossed.h"
#include "opencl.h"
#include "../plan.h"
#include "../settings.h"

namespace autotune {
namespace step_runner {

/// What crossings took.
struct CrossingTimes {
  double waited = 0;  ///< Seconds in which the host waited for what the GPU had been given before.
  Crossed<double> crossed{};  ///< Seconds in which it waited for crossings.
  std::vector<std::tuple<Way, Event, Event>> enqueued;  ///< Around those that it did not wait for.
};

/// Two arenas with the same offsets, the host's and the GPU's. With `Memory::kCopy` a tensor is copied from
/// one to the other. With `Memory::kMap`, tensors that both use lie in memory that both share instead,
/// and are mapped and unmapped. A tensor that the GPU has in another order is reordered on the GPU as
/// well, and has a place in its arena then.
class GpuMemory {
 public:
  /// `arena` is the host's memory with the first values; `both` are tensors that host and GPU use;
  /// `programs` is the folder where compiled programs are kept.
  /// Throws std::runtime_error.
  GpuMemory(const OpenCl& cl, const Plan& plan, char* arena, Memory memory,
            const std::set<size_t>& both, const std::string& programs, bool timed);
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  /// Where the host has a tensor while it may use it.
  char* Host(size_t tensor) const { return At(tensor).host; }
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
    char* host = nullptr;  ///< Where the host has it; of mapped memory, since it was mapped last.
    Buffer device, shared;  ///< The second is the host's memory as the GPU sees it; null if it does not.
    bool on_host = true, on_gpu = false;  ///< Whose content is the tensor's.
    bool mapped = false;
  };

  Place& At(size_t tensor) const;
  const Order* OrderOf(size_t tensor) const;
  bool SharesStorage(size_t tensor) const;
  cl_mem Device(Place* place);
  Buffer Part(const Buffer& whole, uint64_t offset, uint64_t bytes) const;
  /// Memory that host and GPU share, at an address that the host's kernels take.
  Buffer NewShared(uint64_t bytes);
  void* MapAll(const Buffer& buffer, uint64_t bytes, cl_map_flags flags) const;
  void Share(const std::set<size_t>& both, uint64_t alignment);
  void Map(Place* place);
  void Unmap(Place* place);
  void ToHost(Place* place, const Order* order);
  void ToGpu(Place* place, const Order* order);
  cl_mem Staging();
  template <typename Action>
  void Blocking(Way way, Action action);
  template <typename Action>
  void Enqueued(Way way, Action action);
  Event Marker() const;
  void Reorder(cl_mem from, cl_mem to, const Order& order, bool to_gpu);

  const OpenCl& cl_;
  const Plan& plan_;
  const bool timed_;
  CrossingTimes times_;
  std::unique_ptr<char, decltype(&std::free)> own_{nullptr, std::free};  ///< That of `shared_`, if not the driver's.
  Buffer device_, shared_, staging_;
  Program reorder_program_;
  Kernel reorder_;
  size_t group_ = 1;
  std::map<Range, std::unique_ptr<Place>> places_;
};

}  // namespace step_runner
}  // namespace autotune

#endif  // AUTOTUNE_STEP_RUNNER_GPU_MEMORY_H_
