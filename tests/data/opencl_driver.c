// SPDX-License-Identifier: Apache-2.0
// The OpenCL library of this machine with another driver's ways, which variables of the process say, or WAYS, as it was
// compiled:
//   OLD_GPU    devices say that they are GPUs of OpenCL 2.0, as phones' do, with local memory and sub-groups of 48
//   NO_IMAGES  there are images by its own word, and none is made
//   IMAGES_2D  images over buffers have 16 texels with one dimension, and rows of multiples of 4 with two; these get what
//              their buffers hold before each launch, as PoCL 3.1 has none. The file is there once one was made.
//   NO_TIMES   no queue is made that tells when commands ran
//   WAIT_US    the host learns so many microseconds late that the device has finished
//   BUSY       no kernel can be launched
//   DRIVER     the driver's version
//   FAULT      the process that finds this file at its hundredth launch takes it away, and from then on can do nothing on
//              its device, as after a kernel that ran astray, or, with ONLY_LAUNCHES, launch nothing
//   APART      parts of buffers are buffers of their own
//   OVERLAPS   where one of two parts of a buffer that overlap is given back after kernels ran, the process crashes, as
//              in NVIDIA's 580.159
//   ODD        what the driver allocates for the host begins at no multiple of 32 bytes
//   CALLS      into this file go, at the end, how often kernels were launched, the host waited for the device, and a
//              program was compiled from source
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
static struct {
  cl_mem image, buffer;
  size_t region[3];
} views[256];
static int viewed;
static struct {
  cl_mem part, whole;
  size_t begin, end;
} parts[1024];
static int parted;

#ifdef WAYS
__attribute__((constructor)) static void begin(void) {
  static char* ways[] = {WAYS};
  for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); ++i) putenv(ways[i]);
}
#endif

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
  if (getenv("IMAGES_2D")) {
    static const char extension[] = "cl_khr_image2d_from_buffer";
    const size_t texels = 16;
    const cl_uint pitch = 4;
    if (what == CL_DEVICE_EXTENSIONS) return told(extension, sizeof(extension), room, to, bytes);
    if (what == CL_DEVICE_IMAGE_MAX_BUFFER_SIZE) return told(&texels, sizeof(texels), room, to, bytes);
    if (what == 0x104A) return told(&pitch, sizeof(pitch), room, to, bytes);  // CL_DEVICE_IMAGE_PITCH_ALIGNMENT
  }
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

typedef cl_mem (*CreateImage)(cl_context, cl_mem_flags, const cl_image_format*, const cl_image_desc*, void*, cl_int*);

/* The image of a buffer's rows; it has their content at each launch. */
static cl_mem image_of_rows(cl_context context, cl_mem_flags flags, const cl_image_format* format,
                            const cl_image_desc* shape, cl_int* code) {
  const size_t channels = format->image_channel_order == CL_RGBA ? 4 : format->image_channel_order == CL_RG ? 2 : 1;
  const size_t pitch = shape->image_width * channels * sizeof(float);
  size_t bytes = 0;
  cl_image_desc plain = *shape;
  cl_mem image;
  clGetMemObjectInfo(shape->buffer, CL_MEM_SIZE, sizeof(bytes), &bytes, NULL);
  *code = CL_INVALID_IMAGE_SIZE;
  if (shape->image_row_pitch != pitch || shape->image_width % 4 || bytes < pitch * shape->image_height) return NULL;
  plain.buffer = NULL;
  plain.image_row_pitch = 0;
  image = ((CreateImage)real("clCreateImage"))(context, flags, format, &plain, NULL, code);
  if (*code != CL_SUCCESS) return NULL;
  *code = CL_OUT_OF_RESOURCES;
  if (viewed == sizeof(views) / sizeof(views[0])) return NULL;
  *code = CL_SUCCESS;
  clRetainMemObject(shape->buffer);
  views[viewed].image = image;
  views[viewed].buffer = shape->buffer;
  views[viewed].region[0] = shape->image_width;
  views[viewed].region[1] = shape->image_height;
  views[viewed++].region[2] = 1;
  fclose(fopen(getenv("IMAGES_2D"), "a"));
  return image;
}

cl_mem clCreateImage(cl_context context, cl_mem_flags flags, const cl_image_format* format, const cl_image_desc* shape,
                     void* data, cl_int* code) {
  if (getenv("NO_IMAGES")) {
    if (code) *code = CL_INVALID_IMAGE_DESCRIPTOR;
    return NULL;
  }
  if (getenv("IMAGES_2D") && shape->image_type == CL_MEM_OBJECT_IMAGE2D && shape->buffer) {
    return image_of_rows(context, flags, format, shape, code);
  }
  return ((CreateImage)real("clCreateImage"))(context, flags, format, shape, data, code);
}

/* Memory of the host's, as long as the process. */
static cl_mem at_host(cl_context context, cl_mem_flags flags, size_t bytes, size_t beyond, cl_int* code) {
  void* page = NULL;
  if (posix_memalign(&page, 4096, bytes + beyond)) abort();
  return ((cl_mem(*)(cl_context, cl_mem_flags, size_t, void*, cl_int*))real("clCreateBuffer"))(
      context, flags | CL_MEM_USE_HOST_PTR, bytes, (char*)page + beyond, code);
}

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t bytes, void* host, cl_int* code) {
  if (getenv("ODD") && (flags & CL_MEM_ALLOC_HOST_PTR)) {
    return at_host(context, flags & ~(cl_mem_flags)CL_MEM_ALLOC_HOST_PTR, bytes, 16, code);
  }
  return ((cl_mem(*)(cl_context, cl_mem_flags, size_t, void*, cl_int*))real("clCreateBuffer"))(context, flags, bytes,
                                                                                              host, code);
}

cl_mem clCreateSubBuffer(cl_mem whole, cl_mem_flags flags, cl_buffer_create_type type, const void* region, cl_int* code) {
  if (getenv("APART") && type == CL_BUFFER_CREATE_TYPE_REGION) {
    cl_context context;
    clGetMemObjectInfo(whole, CL_MEM_CONTEXT, sizeof(context), &context, NULL);
    return at_host(context, flags, ((const cl_buffer_region*)region)->size, 0, code);
  }
  cl_mem part =
      ((cl_mem(*)(cl_mem, cl_mem_flags, cl_buffer_create_type, const void*, cl_int*))real("clCreateSubBuffer"))(
          whole, flags, type, region, code);
  if (getenv("OVERLAPS") && part) {
    const cl_buffer_region* range = region;
    if (parted == sizeof(parts) / sizeof(parts[0])) abort();
    parts[parted].part = part;
    parts[parted].whole = whole;
    parts[parted].begin = range->origin;
    parts[parted++].end = range->origin + range->size;
  }
  return part;
}

static void forget(cl_mem part) {
  int at = 0;
  while (at < parted && parts[at].part != part) ++at;
  if (at == parted) return;
  for (int i = 0; calls.launched && i < parted; ++i) {
    if (i != at && parts[i].whole == parts[at].whole && parts[i].begin < parts[at].end && parts[at].begin < parts[i].end) {
      abort();
    }
  }
  parts[at] = parts[--parted];
}

cl_int clReleaseMemObject(cl_mem object) {
  cl_int (*release)(cl_mem) = (cl_int(*)(cl_mem))real("clReleaseMemObject");
  forget(object);
  for (int i = 0; i < viewed; ++i) {
    if (views[i].image != object) continue;
    release(views[i].buffer);
    views[i] = views[--viewed];
    break;
  }
  return release(object);
}

cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t* offset,
                              const size_t* global, const size_t* local, cl_uint count, const cl_event* waits,
                              cl_event* event) {
  if (getenv("BUSY")) return CL_OUT_OF_RESOURCES;
  if (__sync_add_and_fetch(&calls.launched, 1) == 100 && getenv("FAULT") && unlink(getenv("FAULT")) == 0) lost = 1;
  if (lost) return CL_OUT_OF_RESOURCES;
  for (int i = 0; i < viewed; ++i) {
    const size_t origin[3] = {0, 0, 0};
    clEnqueueCopyBufferToImage(queue, views[i].buffer, views[i].image, 0, origin, views[i].region, 0, NULL, NULL);
  }
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
