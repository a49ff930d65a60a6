// SPDX-License-Identifier: Apache-2.0
#include "timer.h"

namespace autotune {
namespace opencl {

void ClTimer::Start() {
  device_->Finish();
  profiling_ = ProfilingEnabled();
  if (profiling_) {
    device_->profile().Open();
    before_ = device_->profile().Sum();
  }
  start_ = std::chrono::steady_clock::now();
}

void ClTimer::Stop() {
  device_->Finish();
  const auto elapsed = std::chrono::steady_clock::now() - start_;
  nanoseconds_ = std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count();
  if (!profiling_) return;
  const KernelProfile::Total after = device_->profile().Sum();
  device_->profile().Close();
  if (after.kernels > before_.kernels && after.failures == before_.failures) {
    nanoseconds_ = static_cast<int64_t>(after.nanoseconds - before_.nanoseconds);
  }
}

}  // namespace opencl
}  // namespace autotune
