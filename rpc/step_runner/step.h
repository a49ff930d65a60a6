// SPDX-License-Identifier: Apache-2.0
//
// A step in memory: its arena, its kernels, and the data of some steps.
#ifndef AUTOTUNE_STEP_RUNNER_STEP_H_
#define AUTOTUNE_STEP_RUNNER_STEP_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "../cpu_runtime/library.h"
#include "gpu/gpu.h"
#include "mapping.h"
#include "plan.h"
#include "settings.h"

namespace autotune {
namespace step_runner {

class Step {
 public:
  /// Loads the step of a folder; throws std::runtime_error.
  explicit Step(const std::string& folder);

  size_t calls() const { return plan_.calls.size(); }
  const Plan& plan() const { return plan_; }

  /// Makes a call in another way from now on, by the number of its variant; 0 is the call itself.
  /// Throws std::runtime_error where there is none.
  void Use(size_t call, size_t variant);

  /// Lets a GPU make some calls from now on; throws std::runtime_error. With `timed`, `gpu()` tells
  /// their times.
  void Offload(const std::vector<size_t>& calls, Memory memory, bool timed);
  /// Null where the CPU makes all calls.
  Gpu* gpu() const { return gpu_; }

  /// The step's memory, with its first values.
  char* arena() const { return arena_.data(); }

  /// Runs one step on the data of step `number` (from 0 on; it begins again after the last) and
  /// returns its loss. `before` is told the number of each call before it is made, and the number of
  /// calls when the last one has been.
  float Run(uint64_t number, const std::function<void(size_t call)>& before);

 private:
  struct Bound {
    cpu_runtime::KernelFunction function;
    std::vector<TVMFFIAny> arguments;
    size_t first;  ///< Of its tensors.
  };

  Bound Bind(const KernelCall& call);
  void Call(const Bound& bound);

  char* Place(size_t tensor) const {
    return gpu_ ? gpu_->Host(tensor) : arena_.data() + plan_.tensors[tensor].offset;
  }

  Plan plan_;
  Mapping arena_;
  Mapping feeds_;
  uint64_t feed_bytes_ = 0;
  std::vector<cpu_runtime::Library> libraries_;
  std::vector<std::vector<int64_t>> strides_;
  std::vector<DLTensor> tensors_;
  std::vector<size_t> numbers_;  ///< Of the tensors.
  std::vector<std::vector<Bound>> calls_;  ///< The variants of each call, the call itself first.
  std::vector<size_t> used_;
  const std::string folder_;
  Gpu* gpu_ = nullptr;  ///< The process has it to its end.
};

}  // namespace step_runner
}  // namespace autotune

#endif  // AUTOTUNE_STEP_RUNNER_STEP_H_
