// SPDX-License-Identifier: Apache-2.0
#include "kernel.h"

#include <tvm/ffi/error.h>

#include <sstream>
#include <unordered_set>

#include "driver/cl_error.h"
#include "driver/memory.h"
#include "program_cache.h"

namespace autotune {
namespace opencl {
namespace {

thread_local int current_device = 0;

/// One copy of each name, never freed. A tuner gives most kernels the same few names.
const char* Interned(const std::string& name) {
  static std::mutex mutex;
  static auto* names = new std::unordered_set<std::string>;
  std::lock_guard<std::mutex> lock(mutex);
  return names->insert(name).first->c_str();
}

std::string SizesText(const std::array<size_t, 3>& sizes, uint32_t dims) {
  std::string text;
  for (uint32_t axis = 0; axis < dims; ++axis) {
    text += (axis == 0 ? "" : "x") + std::to_string(sizes[axis]);
  }
  return text;
}

/// A scalar in the width that the kernel declares; TVM hands all scalars over with 64 bits.
struct Scalar {
  alignas(8) unsigned char bytes[8];
  size_t size;
};

template <typename T>
Scalar ScalarOf(T value) {
  Scalar scalar{};
  static_assert(sizeof(T) <= sizeof(scalar.bytes), "a scalar has at most 64 bits");
  std::memcpy(scalar.bytes, &value, sizeof(value));
  scalar.size = sizeof(value);
  return scalar;
}

bool IsPassable(DLDataType type) {
  if (type.lanes != 1) return false;
  if (type.code == kDLOpaqueHandle) return true;
  if (type.code == kDLFloat) return type.bits == 32 || type.bits == 64;
  const bool whole = type.code == kDLInt || type.code == kDLUInt;
  return whole && (type.bits == 8 || type.bits == 16 || type.bits == 32 || type.bits == 64);
}

Scalar ScalarArgument(const TVMFFIAny& value, DLDataType type) {
  if (type.code == kDLFloat) {
    return type.bits == 32 ? ScalarOf(static_cast<float>(value.v_float64))
                           : ScalarOf(value.v_float64);
  }
  // Signed and unsigned share their low bits, so one cast per width does for both.
  switch (type.bits) {
    case 8:
      return ScalarOf(static_cast<uint8_t>(value.v_int64));
    case 16:
      return ScalarOf(static_cast<uint16_t>(value.v_int64));
    case 32:
      return ScalarOf(static_cast<uint32_t>(value.v_int64));
    default:
      return ScalarOf(value.v_int64);
  }
}

}  // namespace

/// A compiled program and its kernel on one device.
struct Kernel::Built {
  cl_program program = nullptr;
  cl_kernel kernel = nullptr;
  cl_uint num_args = 0;
  ImageArguments images;

  ~Built() {
    if (kernel != nullptr) Api().clReleaseKernel(kernel);
    if (program != nullptr) Api().clReleaseProgram(program);
  }
};

int CurrentDevice() { return current_device; }
void SetCurrentDevice(int index) { current_device = index; }

Kernel::Kernel(const FunctionInfo& info, std::string source)
    : name_(Interned(info.name)),
      source_(std::move(source)),
      arg_types_(info.arg_types),
      launch_params_(info.launch_param_tags) {
  for (const DLDataType& type : arg_types_) {
    if (!IsPassable(type)) {
      TVM_FFI_THROW(RuntimeError) << "OpenCL kernel " << name_
                                  << " takes an argument of a type that cannot be passed (code "
                                  << static_cast<int>(type.code) << ", "
                                  << static_cast<int>(type.bits) << " bits, " << type.lanes
                                  << " lanes)";
    }
  }
}

Kernel::~Kernel() = default;

void Kernel::Launch(const TVMFFIAny* args, int32_t num_args) {
  const size_t expected = arg_types_.size() + launch_params_.count();
  if (static_cast<size_t>(num_args) != expected) {
    TVM_FFI_THROW(TypeError) << "OpenCL kernel " << name_ << " takes " << expected
                             << " arguments and launch parameters but was given " << num_args;
  }
  Device& device = GetDevice(CurrentDevice());
  const LaunchShape shape = launch_params_.Read(args + arg_types_.size());
  const bool profiling = ProfilingEnabled();
  cl_event event = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Built* found = &BuiltFor(&device);
    if (!SetArguments(*found, args, shape)) {
      device.RefuseImages(found->images);
      built_[static_cast<size_t>(device.index())].reset();
      found = &BuiltFor(&device);
      SetArguments(*found, args, shape);
    }
    Built& built = *found;
    const cl_int code = Api().clEnqueueNDRangeKernel(
        device.queue(), built.kernel, launch_params_.work_dim(), nullptr, shape.global.data(),
        shape.local.data(), 0, nullptr, profiling ? &event : nullptr);
    if (code != CL_SUCCESS) ThrowLaunchError(code, built, shape, device);
  }
  device.NoteLaunch(name_);
  if (event != nullptr) device.profile().Add(event);
}

Kernel::Built& Kernel::BuiltFor(Device* device) {
  const auto index = static_cast<size_t>(device->index());
  if (index >= built_.size()) built_.resize(index + 1);
  if (built_[index] != nullptr) return *built_[index];

  const ClApi& api = Api();
  auto built = std::make_unique<Built>();
  built->images = ImagesOn(device, source_, name_);
  built->program = BuiltProgram(device, source_, built->images, std::string("kernel ") + name_);
  cl_int code = CL_SUCCESS;
  built->kernel = api.clCreateKernel(built->program, name_, &code);
  Check(code, std::string("clCreateKernel of ") + name_);
  Check(api.clGetKernelInfo(built->kernel, CL_KERNEL_NUM_ARGS, sizeof(built->num_args),
                            &built->num_args, nullptr),
        "clGetKernelInfo");
  built_[index] = std::move(built);
  return *built_[index];
}

bool Kernel::SetArguments(const Built& built, const TVMFFIAny* args,
                          const LaunchShape& shape) const {
  const ClApi& api = Api();
  const auto count = static_cast<cl_uint>(arg_types_.size());
  auto image = built.images.begin();
  for (cl_uint i = 0; i < count; ++i) {
    cl_int code = CL_SUCCESS;
    if (arg_types_[i].code == kDLOpaqueHandle) {
      auto* memory = static_cast<Memory*>(args[i].v_ptr);
      cl_mem mem = memory != nullptr ? memory->mem : nullptr;
      if (image != built.images.end() && image->place == i) {
        mem = memory != nullptr ? memory->AsImage(*image) : nullptr;
        if (memory != nullptr && mem == nullptr) return false;
        ++image;
      }
      code = api.clSetKernelArg(built.kernel, i, sizeof(mem), &mem);
    } else {
      const Scalar scalar = ScalarArgument(args[i], arg_types_[i]);
      code = api.clSetKernelArg(built.kernel, i, scalar.size, scalar.bytes);
    }
    if (code != CL_SUCCESS) {
      Check(code, "argument " + std::to_string(i) + " of kernel " + name_);
    }
  }
  // Local memory sized at launch is one more pointer argument in OpenCL.
  if (shape.dynamic_local_bytes > 0 && built.num_args == count + 1) {
    Check(api.clSetKernelArg(built.kernel, count, shape.dynamic_local_bytes, nullptr),
          std::string("the dynamic local memory of kernel ") + name_);
  }
  return true;
}

void Kernel::ThrowLaunchError(cl_int code, const Built& built, const LaunchShape& shape,
                              const Device& device) const {
  const ClApi& api = Api();
  const cl_device_id id = device.info().id;
  size_t max_group = 0;
  cl_ulong local_bytes = 0;
  api.clGetKernelWorkGroupInfo(built.kernel, id, CL_KERNEL_WORK_GROUP_SIZE, sizeof(max_group),
                               &max_group, nullptr);
  api.clGetKernelWorkGroupInfo(built.kernel, id, CL_KERNEL_LOCAL_MEM_SIZE, sizeof(local_bytes),
                               &local_bytes, nullptr);
  const uint32_t dims = launch_params_.work_dim();
  std::ostringstream text;
  text << "OpenCL: " << ErrorName(code) << " in the launch of kernel " << name_ << " on "
       << device.info().name << ": global size " << SizesText(shape.global, dims)
       << ", local size " << SizesText(shape.local, dims) << " = "
       << shape.local[0] * shape.local[1] * shape.local[2] << " work items (this kernel allows "
       << max_group << ", the device " << device.info().max_work_group_size << "), " << local_bytes
       << " bytes of local memory (the device has " << device.info().local_mem_bytes << ")";
  TVM_FFI_THROW(RuntimeError) << text.str();
  TVM_FFI_UNREACHABLE();
}

}  // namespace opencl
}  // namespace autotune
