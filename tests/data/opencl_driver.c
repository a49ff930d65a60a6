// SPDX-License-Identifier: Apache-2.0
// The OpenCL library of this machine with another driver's ways: with OLD_GPU its devices say that they are GPUs of
// OpenCL 2.0, as phones' do, with local memory and sub-groups of 48; with NO_IMAGES it has images by its own word,
// and makes none; with BUSY no kernel can be launched.
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static void* real(const char* name) { return dlsym(dlopen("libOpenCL.so.1", RTLD_NOW), name); }

static cl_int told(const void* value, size_t size, size_t room, void* to, size_t* bytes) {
  if (bytes) *bytes = size;
  if (to && room < size) return CL_INVALID_VALUE;
  if (to) memcpy(to, value, size);
  return CL_SUCCESS;
}

cl_int clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t room, void* to, size_t* bytes) {
  static const char version[] = "OpenCL 2.0 of a test", none[] = "";
  const cl_device_type gpu = CL_DEVICE_TYPE_GPU;
  const cl_device_local_mem_type local = CL_LOCAL;
  if (getenv("OLD_GPU")) {
    if (what == CL_DEVICE_TYPE) return told(&gpu, sizeof(gpu), room, to, bytes);
    if (what == CL_DEVICE_LOCAL_MEM_TYPE) return told(&local, sizeof(local), room, to, bytes);
    if (what == CL_DEVICE_VERSION) return told(version, sizeof(version), room, to, bytes);
    if (what == CL_DEVICE_EXTENSIONS) return told(none, sizeof(none), room, to, bytes);
    if (what == 0x1067) return CL_INVALID_VALUE;  // CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, of OpenCL 3.0
  }
  return ((cl_int(*)(cl_device_id, cl_device_info, size_t, void*, size_t*))real("clGetDeviceInfo"))(
      device, what, room, to, bytes);
}

cl_int clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device, cl_kernel_work_group_info what,
                                size_t room, void* to, size_t* bytes) {
  const size_t multiple = 48;
  if (getenv("OLD_GPU") && what == CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE) {
    return told(&multiple, sizeof(multiple), room, to, bytes);
  }
  return ((cl_int(*)(cl_kernel, cl_device_id, cl_kernel_work_group_info, size_t, void*, size_t*))real(
      "clGetKernelWorkGroupInfo"))(kernel, device, what, room, to, bytes);
}

cl_mem clCreateImage(cl_context context, cl_mem_flags flags, const cl_image_format* format, const cl_image_desc* shape,
                     void* data, cl_int* code) {
  if (getenv("NO_IMAGES")) {
    if (code) *code = CL_INVALID_IMAGE_DESCRIPTOR;
    return NULL;
  }
  return ((cl_mem(*)(cl_context, cl_mem_flags, const cl_image_format*, const cl_image_desc*, void*, cl_int*))real(
      "clCreateImage"))(context, flags, format, shape, data, code);
}

cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t* offset,
                              const size_t* global, const size_t* local, cl_uint count, const cl_event* waits,
                              cl_event* event) {
  if (getenv("BUSY")) return CL_OUT_OF_RESOURCES;
  return ((cl_int(*)(cl_command_queue, cl_kernel, cl_uint, const size_t*, const size_t*, const size_t*, cl_uint,
                     const cl_event*, cl_event*))real("clEnqueueNDRangeKernel"))(
      queue, kernel, dimensions, offset, global, local, count, waits, event);
}
