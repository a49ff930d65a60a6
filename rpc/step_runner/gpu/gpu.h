// SPDX-License-Identifier: Apache-2.0
//
// The calls of a step that a GPU makes, and what it costs to bring tensors to it and back.
#ifndef AUTOTUNE_STEP_RUNNER_GPU_H_
#define AUTOTUNE_STEP_RUNNER_GPU_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "crossed.h"
#include "../plan.h"
#include "../settings.h"

namespace autotune {
namespace step_runner {

/// What a call of a step took, in seconds.
struct GpuTimes {
  double ran = 0;       ///< On the GPU, launches and the gaps between them.
  double waited = 0;    ///< Before the call, for what the GPU had been given.
  Crossed<double> crossed{};  ///< Before the call, for tensors that it needs elsewhere.
};

class Gpu {
 public:
  /// Compiles the kernels of the calls that the GPU is to make. `arena` is the host's memory with the
  /// step's first values; with `timed`, `Times` may be asked. Throws std::runtime_error.
  ///
  /// What is returned is never given back, and the process has it to its end: tensors whose lives are apart
  /// overlap in the GPU's arena, and NVIDIA's driver (580.159) crashes where one of two parts of a buffer
  /// that overlap is released after kernels have used both.
  static Gpu* Open(const std::string& folder, const Plan& plan, char* arena,
                   const std::vector<size_t>& calls, Memory memory, bool timed);
  virtual ~Gpu() = default;

  /// Where the host has a tensor while it may use it.
  virtual char* Host(size_t tensor) const = 0;
  /// Whether the GPU makes a call.
  virtual bool Makes(size_t call) const = 0;
  /// Brings what a call needs to where it is made, and lets that overwrite what it writes.
  virtual void Bring(size_t call, const KernelCall& as) = 0;
  /// Enqueues a call, and does not wait for it.
  virtual void Enqueue(size_t call) = 0;
  /// The host will read a tensor, or overwrite it.
  virtual void HostReads(size_t tensor) = 0;
  virtual void HostWrites(size_t tensor) = 0;
  /// Copies one tensor over another, where the first one is.
  virtual void Copy(size_t from, size_t to) = 0;
  virtual void Finish() = 0;
  /// What tensors took to cross since the last call counts as what came after it.
  virtual void Close() = 0;
  /// Of the step that was finished last, by call; one more for what came after the last call.
  virtual std::vector<GpuTimes> Times() = 0;
};

/// Seconds that a tensor takes to cross, without and with a change of its order.
struct Crossing {
  size_t tensor;  ///< Stands for all of its size and order.
  Memory memory;
  double to_gpu, to_host;
  double reorder_to_gpu, reorder_to_host;
};

/// Measures crossings of the step in a folder, one for each size and order of a tensor, with both
/// kinds of memory. `device` is told first what the device is: `gpu` or `other`, its name and driver.
/// Throws std::runtime_error.
void MeasureCrossings(const std::string& folder, const Plan& plan, char* arena, int repeats,
                      const std::function<void(const std::string&)>& device,
                      const std::function<void(const Crossing&)>& each);

}  // namespace step_runner
}  // namespace autotune

#endif  // AUTOTUNE_STEP_RUNNER_GPU_H_
