// SPDX-License-Identifier: Apache-2.0
#include "opencl.h"

#include <stdexcept>

namespace autotune {
namespace step_runner {

namespace {

constexpr double kNanosecond = 1e-9;

}  // namespace

void Check(cl_int code, const char* call) {
  if (code != CL_SUCCESS) {
    throw std::runtime_error(std::string(call) + ": " + autotune_opencl::ErrorText(code));
  }
}

OpenCl::OpenCl(bool timed) {
  const autotune_opencl::Status status = autotune_opencl::Session::Open(&session_);
  if (!status.ok()) throw std::runtime_error(status.text);
  cl_int code = CL_SUCCESS;
  queue_ = Queue(api().clCreateCommandQueue(context(), device(),
                                            timed ? CL_QUEUE_PROFILING_ENABLE : 0, &code),
                 {api().clReleaseCommandQueue});
  Check(code, "clCreateCommandQueue");
}

Buffer OpenCl::NewBuffer(cl_mem_flags flags, uint64_t bytes, void* host) const {
  cl_int code = CL_SUCCESS;
  Buffer made = Own(api().clCreateBuffer(context(), flags, bytes, host, &code));
  if (code != CL_SUCCESS) {
    throw std::runtime_error("a buffer of " + std::to_string(bytes) +
                             " bytes: " + autotune_opencl::ErrorText(code));
  }
  return made;
}

Event OpenCl::Marker() const {
  cl_event made = nullptr;
  Check(api().clEnqueueMarkerWithWaitList(queue(), 0, nullptr, &made),
        "clEnqueueMarkerWithWaitList");
  return Own(made);
}

double OpenCl::End(const Event& event) const {
  cl_ulong nanoseconds = 0;
  Check(api().clGetEventProfilingInfo(event.get(), CL_PROFILING_COMMAND_END, sizeof(nanoseconds),
                                      &nanoseconds, nullptr),
        "clGetEventProfilingInfo");
  return static_cast<double>(nanoseconds) * kNanosecond;
}

}  // namespace step_runner
}  // namespace autotune
