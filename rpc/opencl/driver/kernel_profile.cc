// SPDX-License-Identifier: Apache-2.0
#include "kernel_profile.h"

namespace autotune {
namespace opencl {
namespace {

// A measurement may launch a kernel a hundred thousand times, and drivers run out of events; the
// older half of this many is folded into the sum while the younger half keeps the device busy.
constexpr size_t kMaxEvents = 2048;

}  // namespace

void KernelProfile::Open() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++open_;
}

void KernelProfile::Close() {
  std::lock_guard<std::mutex> lock(mutex_);
  --open_;
}

void KernelProfile::Add(cl_event event) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (open_ == 0) {
    Api().clReleaseEvent(event);
    return;
  }
  events_.push_back(event);
  if (events_.size() >= kMaxEvents) Fold(kMaxEvents / 2);
}

KernelProfile::Total KernelProfile::Sum() {
  std::lock_guard<std::mutex> lock(mutex_);
  Fold(events_.size());
  return total_;
}

void KernelProfile::Fold(size_t count) {
  if (count == 0) return;
  const ClApi& api = Api();
  const bool done = api.clWaitForEvents(1, &events_[count - 1]) == CL_SUCCESS;
  for (size_t i = 0; i < count; ++i) {
    cl_ulong start = 0;
    cl_ulong end = 0;
    if (done &&
        api.clGetEventProfilingInfo(events_[i], CL_PROFILING_COMMAND_START, sizeof(start), &start,
                                    nullptr) == CL_SUCCESS &&
        api.clGetEventProfilingInfo(events_[i], CL_PROFILING_COMMAND_END, sizeof(end), &end,
                                    nullptr) == CL_SUCCESS &&
        end >= start) {
      total_.nanoseconds += end - start;
    } else {
      ++total_.failures;
    }
    ++total_.kernels;
    api.clReleaseEvent(events_[i]);
  }
  events_.erase(events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace opencl
}  // namespace autotune
