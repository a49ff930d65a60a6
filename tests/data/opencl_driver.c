// SPDX-License-Identifier: Apache-2.0
// The OpenCL library of this machine with another driver's ways: with OLD_GPU its devices say that they are GPUs of
// OpenCL 2.0, as phones' do, with local memory and sub-groups of 48; with NO_IMAGES it has images by its own word,
// and makes none; with NO_TIMES it makes no queue that tells when commands ran; with WAIT_US the host learns so many microseconds late that the device has finished; with BUSY no kernel can be launched; DRIVER is the driver's version; the process that finds the file
// FAULT at its hundredth launch takes it away, and from then on can do nothing on its device, as after a kernel that
// ran astray, or, with ONLY_LAUNCHES, launch nothing; into the file CALLS go, at the end, how often kernels were launched, the host waited for the device, and
// a program was compiled from source.
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
  long launched, waited, compiled;
} calls;
static int lost;

static int all_lost(void) { return lost && !getenv("ONLY_LAUNCHES"); }

__attribute__((destructor)) static void tell(void) {
  const char* path = getenv("CALLS");
  FILE* file = path ? fopen(path, "w") : NULL;
  if (!file) return;
  fprintf(file, "%ld %ld %ld\n", calls.launched, calls.waited, calls.compiled);
  fclose(file);
}

static void* real(const char* name) { return dlsym(dlopen("libOpenCL.so.1", RTLD_NOW), name); }

static cl_int told(const void* value, size_t size, size_t room, void* to, size_t* bytes) {
  if (bytes) *bytes = size;
  if (to && room < size) return CL_INVALID_VALUE;
  if (to) memcpy(to, value, size);
  return CL_SUCCESS;
}

cl_int clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t room, void* to, size_t* bytes) {
  static const char version[] = "OpenCL 2.0 of a test", none[] = "";
  const char* driver = getenv("DRIVER");
  const cl_device_type gpu = CL_DEVICE_TYPE_GPU;
  const cl_device_local_mem_type local = CL_LOCAL;
  if (driver && what == CL_DRIVER_VERSION) return told(driver, strlen(driver) + 1, room, to, bytes);
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
  if (__sync_add_and_fetch(&calls.launched, 1) == 100 && getenv("FAULT") && unlink(getenv("FAULT")) == 0) lost = 1;
  if (lost) return CL_OUT_OF_RESOURCES;
  return ((cl_int(*)(cl_command_queue, cl_kernel, cl_uint, const size_t*, const size_t*, const size_t*, cl_uint,
                     const cl_event*, cl_event*))real("clEnqueueNDRangeKernel"))(
      queue, kernel, dimensions, offset, global, local, count, waits, event);
}

cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device, cl_command_queue_properties properties,
                                      cl_int* code) {
  if (getenv("NO_TIMES") && (properties & CL_QUEUE_PROFILING_ENABLE)) {
    if (code) *code = CL_INVALID_QUEUE_PROPERTIES;
    return NULL;
  }
  return ((cl_command_queue(*)(cl_context, cl_device_id, cl_command_queue_properties, cl_int*))real(
      "clCreateCommandQueue"))(context, device, properties, code);
}

cl_int clFinish(cl_command_queue queue) {
  __sync_fetch_and_add(&calls.waited, 1);
  if (all_lost()) return CL_OUT_OF_RESOURCES;
  if (getenv("WAIT_US")) usleep((useconds_t)atoi(getenv("WAIT_US")));
  return ((cl_int(*)(cl_command_queue))real("clFinish"))(queue);
}

cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool waits, size_t offset, size_t bytes, void* to,
                           cl_uint count, const cl_event* before, cl_event* event) {
  if (waits) __sync_fetch_and_add(&calls.waited, 1);
  if (all_lost()) return CL_OUT_OF_RESOURCES;
  return ((cl_int(*)(cl_command_queue, cl_mem, cl_bool, size_t, size_t, void*, cl_uint, const cl_event*, cl_event*))real(
      "clEnqueueReadBuffer"))(queue, buffer, waits, offset, bytes, to, count, before, event);
}

cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool waits, size_t offset, size_t bytes,
                            const void* from, cl_uint count, const cl_event* before, cl_event* event) {
  if (waits) __sync_fetch_and_add(&calls.waited, 1);
  if (all_lost()) return CL_OUT_OF_RESOURCES;
  return ((cl_int(*)(cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void*, cl_uint, const cl_event*,
                     cl_event*))real("clEnqueueWriteBuffer"))(queue, buffer, waits, offset, bytes, from, count, before,
                                                              event);
}

cl_program clCreateProgramWithSource(cl_context context, cl_uint count, const char** lines, const size_t* lengths,
                                     cl_int* code) {
  __sync_fetch_and_add(&calls.compiled, 1);
  return ((cl_program(*)(cl_context, cl_uint, const char**, const size_t*, cl_int*))real("clCreateProgramWithSource"))(
      context, count, lines, lengths, code);
}

void* clEnqueueMapBuffer(cl_command_queue queue, cl_mem buffer, cl_bool waits, cl_map_flags flags, size_t offset,
                         size_t bytes, cl_uint count, const cl_event* before, cl_event* event, cl_int* code) {
  if (waits) __sync_fetch_and_add(&calls.waited, 1);
  return ((void* (*)(cl_command_queue, cl_mem, cl_bool, cl_map_flags, size_t, size_t, cl_uint, const cl_event*, cl_event*,
                     cl_int*))real("clEnqueueMapBuffer"))(queue, buffer, waits, flags, offset, bytes, count, before,
                                                          event, code);
}

cl_int clWaitForEvents(cl_uint count, const cl_event* events) {
  __sync_fetch_and_add(&calls.waited, 1);
  return ((cl_int(*)(cl_uint, const cl_event*))real("clWaitForEvents"))(count, events);
}
