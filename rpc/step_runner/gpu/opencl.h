// SPDX-License-Identifier: Apache-2.0
//
// OpenCL for the step runner: a device, its queue, and what must be given back.
#ifndef AUTOTUNE_STEP_RUNNER_OPENCL_H_
#define AUTOTUNE_STEP_RUNNER_OPENCL_H_

#define AUTOTUNE_OPENCL_MORE_CALLS(X)                                              \
  X(clCreateSubBuffer) X(clEnqueueCopyBuffer) X(clEnqueueMapBuffer)                \
  X(clEnqueueMarkerWithWaitList) X(clEnqueueUnmapMemObject) X(clGetEventProfilingInfo)
#include <memory>
#include <string>

#include "../../opencl_loader/autotune_opencl.hpp"

namespace autotune {
namespace step_runner {

/// Throws std::runtime_error with the call and the error where the code is one.
void Check(cl_int code, const char* call);

/// Gives an OpenCL object back.
template <typename T>
struct Release {
  cl_int(CL_API_CALL* function)(T*) = nullptr;
  void operator()(T* object) const { function(object); }
};
using Buffer = std::unique_ptr<_cl_mem, Release<_cl_mem>>;
using Program = std::unique_ptr<_cl_program, Release<_cl_program>>;
using Kernel = std::unique_ptr<_cl_kernel, Release<_cl_kernel>>;
using Event = std::unique_ptr<_cl_event, Release<_cl_event>>;
using Queue = std::unique_ptr<_cl_command_queue, Release<_cl_command_queue>>;

/// The device that kernels were measured on: the first GPU, else the first device.
class OpenCl {
 public:
  /// With `timed`, events tell when they ran. Throws std::runtime_error.
  explicit OpenCl(bool timed);

  const autotune_opencl::Api& api() const { return session_->api; }
  cl_context context() const { return session_->context; }
  cl_device_id device() const { return session_->device; }
  cl_command_queue queue() const { return queue_.get(); }

  Buffer Own(cl_mem object) const { return Buffer(object, {api().clReleaseMemObject}); }
  Event Own(cl_event object) const { return Event(object, {api().clReleaseEvent}); }
  Buffer NewBuffer(cl_mem_flags flags, uint64_t bytes, void* host) const;
  /// Ends when all that was enqueued before it has; throws std::runtime_error.
  Event Marker() const;
  /// When an event ended, in seconds of the device's clock; the queue must be `timed` and finished.
  double End(const Event& event) const;
  void Finish() const { Check(api().clFinish(queue()), "clFinish"); }

 private:
  std::unique_ptr<autotune_opencl::Session> session_;
  Queue queue_;
};

}  // namespace step_runner
}  // namespace autotune

#endif  // AUTOTUNE_STEP_RUNNER_OPENCL_H_
