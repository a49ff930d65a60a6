// SPDX-License-Identifier: Apache-2.0
//
// OpenCL by dlopen. The sidecar must load on a machine that has no OpenCL (every `import tvm` loads
// it), so nothing here is linked against libOpenCL; the library is looked for at the first use.
#ifndef AUTOTUNE_OPENCL_CL_API_H_
#define AUTOTUNE_OPENCL_CL_API_H_

// 1.2 is what every phone driver of the last ten years has; newer queries go by number.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <string>

namespace autotune {
namespace opencl {

#define AUTOTUNE_OPENCL_FUNCTIONS(X) \
  X(clBuildProgram)                  \
  X(clCreateBuffer)                  \
  X(clCreateCommandQueue)            \
  X(clCreateContext)                 \
  X(clCreateImage)                   \
  X(clCreateKernel)                  \
  X(clCreateProgramWithBinary)       \
  X(clCreateProgramWithSource)       \
  X(clEnqueueCopyBuffer)             \
  X(clEnqueueCopyBufferToImage)      \
  X(clEnqueueCopyImage)              \
  X(clEnqueueCopyImageToBuffer)      \
  X(clEnqueueNDRangeKernel)          \
  X(clEnqueueReadBuffer)             \
  X(clEnqueueReadImage)              \
  X(clEnqueueWriteBuffer)            \
  X(clEnqueueWriteImage)             \
  X(clFinish)                        \
  X(clGetDeviceIDs)                  \
  X(clGetDeviceInfo)                 \
  X(clGetEventProfilingInfo)         \
  X(clGetKernelInfo)                 \
  X(clGetKernelWorkGroupInfo)        \
  X(clGetPlatformIDs)                \
  X(clGetPlatformInfo)               \
  X(clGetProgramBuildInfo)           \
  X(clGetProgramInfo)                \
  X(clGetSupportedImageFormats)      \
  X(clReleaseCommandQueue)           \
  X(clReleaseContext)                \
  X(clReleaseEvent)                  \
  X(clReleaseKernel)                 \
  X(clReleaseMemObject)              \
  X(clReleaseProgram)                \
  X(clSetKernelArg)                  \
  X(clWaitForEvents)

/// The entry points of the loaded OpenCL library, each named as in the OpenCL specification.
struct ClApi {
#define AUTOTUNE_DECLARE(name) decltype(&::name) name = nullptr;
  AUTOTUNE_OPENCL_FUNCTIONS(AUTOTUNE_DECLARE)
#undef AUTOTUNE_DECLARE
};

/// The outcome of the one search for an OpenCL library in this process.
struct ClLibrary {
  ClApi api;
  std::string path;    ///< What was loaded; empty when nothing was.
  std::string reason;  ///< Why nothing was loaded; empty when something was.
};

/// Searches on the first call and remembers the outcome; never throws.
const ClLibrary& Library();

/// The entry points; throws an error that names the missing package when there is no library.
const ClApi& Api();

}  // namespace opencl
}  // namespace autotune

#endif  // AUTOTUNE_OPENCL_CL_API_H_
