// SPDX-License-Identifier: Apache-2.0
//
// The timer behind `time_evaluator` for OpenCL devices.
#ifndef AUTOTUNE_OPENCL_TIMER_H_
#define AUTOTUNE_OPENCL_TIMER_H_

// timer.h pulls in tensor.h, which needs a header that the wheel does not ship, and uses nothing of
// it: play its include guard.
#define TVM_RUNTIME_TENSOR_H_
#include <tvm/runtime/timer.h>

#include <chrono>
#include <cstdint>

#include "device.h"

namespace autotune {
namespace opencl {

/// Measures `number` launches between Start and Stop, in one of two ways.
///
/// Without profiling (the default): the host's steady clock, with the queue empty at both ends.
/// That is what a training step pays: device time plus the gaps between kernels and, once per
/// measurement and not per launch, one wait for the device. The wait costs micro- to tens of
/// microseconds, so a short kernel needs many launches per measurement (`min_repeat_ms`). Events
/// are not used here because a profiling queue alone slows some drivers down, and the clocks behind
/// events tick as coarsely as 1 us on some phones.
///
/// With profiling: the sum of the kernels' own times on the device, without the gaps. Falls back to
/// the host's clock where the driver refuses any of the times.
class ClTimer : public tvm::runtime::TimerNode {
 public:
  explicit ClTimer(int device) : device_(&GetDevice(device)) {}

  void Start() final;
  void Stop() final;
  int64_t SyncAndGetElapsedNanos() final { return nanoseconds_; }

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("autotune.opencl.Timer", ClTimer, tvm::runtime::TimerNode);

 private:
  Device* device_;
  bool profiling_ = false;
  KernelProfile::Total before_;
  std::chrono::steady_clock::time_point start_;
  int64_t nanoseconds_ = 0;
};

}  // namespace opencl
}  // namespace autotune

#endif  // AUTOTUNE_OPENCL_TIMER_H_
