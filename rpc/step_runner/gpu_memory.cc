// SPDX-License-Identifier: Apache-2.0
#include "gpu_memory.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace autotune {
namespace step_runner {
namespace {

constexpr size_t kAxes = 4;
constexpr size_t kGroup = 64;
constexpr size_t kBits = 8;

/// One work item an element of the target, whose axes are those of the source in another order.
const char* const kReorder = R"(
__kernel void reorder(__global const uint* source, __global uint* target, uint4 extents, uint4 strides) {
  uint index = get_global_id(0);
  const uint count = extents.x * extents.y * extents.z * extents.w;
  if (index >= count) return;
  const uint target_index = index;
  uint at = (index % extents.w) * strides.w;
  index /= extents.w;
  at += (index % extents.z) * strides.z;
  index /= extents.z;
  at += (index % extents.y) * strides.y + index / extents.y * strides.x;
  target[target_index] = source[at];
}
)";

/// Extents of what is written, and strides in what is read, slowest axis first.
struct Walk {
  std::array<cl_uint, kAxes> extents{{1, 1, 1, 1}}, strides{{0, 0, 0, 0}};
};

Walk WalkOf(const Order& order, bool to_gpu) {
  // Both in the order of what is read: the axes that the other one has at each place.
  const size_t axes = order.axes.size(), pad = kAxes - axes;
  std::vector<int64_t> read = order.shape;
  std::vector<size_t> at = order.axes;
  if (!to_gpu) {
    for (size_t axis = 0; axis < axes; ++axis) {
      read[axis] = order.shape[order.axes[axis]];
      at[order.axes[axis]] = axis;
    }
  }
  std::vector<int64_t> strides(axes);
  int64_t stride = 1;
  for (size_t axis = axes; axis-- > 0;) {
    strides[axis] = stride;
    stride *= read[axis];
  }
  Walk walk;
  for (size_t axis = 0; axis < axes; ++axis) {
    walk.extents[pad + axis] = static_cast<cl_uint>(read[at[axis]]);
    walk.strides[pad + axis] = static_cast<cl_uint>(strides[at[axis]]);
  }
  return walk;
}

}  // namespace

GpuMemory::GpuMemory(const OpenCl& cl, const Plan& plan, char* arena, Memory memory, bool timed)
    : cl_(cl), plan_(plan), arena_(arena), memory_(memory), timed_(timed) {
  cl_uint bits = 0;
  Check(cl.api().clGetDeviceInfo(cl.device(), CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof(bits), &bits,
                                 nullptr),
        "clGetDeviceInfo");
  for (const TensorPlace& tensor : plan.tensors) {
    if (tensor.offset % std::max<uint64_t>(1, bits / kBits) != 0) {
      throw std::runtime_error("the device wants tensors at multiples of " +
                               std::to_string(bits / kBits) + " bytes");
    }
    const Range range{tensor.offset, tensor.bytes};
    if (places_.count(range) != 0) continue;
    auto place = std::make_unique<Place>();
    place->range = range;
    places_.emplace(range, std::move(place));
  }
  for (auto& [range, place] : places_) {
    for (auto& [other, its] : places_) {
      const bool apart =
          range.first + range.second <= other.first || other.first + other.second <= range.first;
      if (!apart && its != place) place->overlapping.push_back(its.get());
    }
  }
  if (memory == Memory::kMap) {
    shared_ = cl.NewBuffer(CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, plan.arena_bytes, arena);
  }
  if (plan.orders.empty()) return;
  const char* source = kReorder;
  cl_int code = CL_SUCCESS;
  reorder_program_ =
      Program(cl.api().clCreateProgramWithSource(cl.context(), 1, &source, nullptr, &code),
              {cl.api().clReleaseProgram});
  Check(code, "clCreateProgramWithSource");
  cl_device_id device = cl.device();
  Check(cl.api().clBuildProgram(reorder_program_.get(), 1, &device, "", nullptr, nullptr),
        "clBuildProgram");
  reorder_ = Kernel(cl.api().clCreateKernel(reorder_program_.get(), "reorder", &code),
                    {cl.api().clReleaseKernel});
  Check(code, "clCreateKernel");
}

GpuMemory::~GpuMemory() {
  for (auto& [range, place] : places_) {
    if (place->mapped) {
      cl_.api().clEnqueueUnmapMemObject(cl_.queue(), place->shared.get(), arena_ + range.first, 0,
                                        nullptr, nullptr);
    }
  }
  cl_.api().clFinish(cl_.queue());
}

GpuMemory::Place& GpuMemory::At(size_t tensor) {
  const TensorPlace& one = plan_.tensors[tensor];
  return *places_.at({one.offset, one.bytes});
}

const Order* GpuMemory::OrderOf(size_t tensor) const {
  const auto found = plan_.orders.find(tensor);
  return found == plan_.orders.end() ? nullptr : &found->second;
}

bool GpuMemory::SharesStorage(size_t tensor) const {
  return memory_ == Memory::kMap && OrderOf(tensor) == nullptr;
}

cl_mem GpuMemory::Part(const Buffer& arena, const Range& range) const {
  cl_buffer_region region{range.first, range.second};
  cl_int code = CL_SUCCESS;
  cl_mem part = cl_.api().clCreateSubBuffer(arena.get(), 0, CL_BUFFER_CREATE_TYPE_REGION, &region,
                                            &code);
  Check(code, "clCreateSubBuffer");
  return part;
}

cl_mem GpuMemory::Device(Place* place) {
  if (!device_) device_ = cl_.NewBuffer(CL_MEM_READ_WRITE, plan_.arena_bytes, nullptr);
  if (!place->device) place->device = cl_.Own(Part(device_, place->range));
  return place->device.get();
}

cl_mem GpuMemory::Shared(Place* place) {
  if (!place->shared) place->shared = cl_.Own(Part(shared_, place->range));
  return place->shared.get();
}

cl_mem GpuMemory::Operand(size_t tensor) {
  return SharesStorage(tensor) ? Shared(&At(tensor)) : Device(&At(tensor));
}

void GpuMemory::Map(Place* place) {
  if (memory_ != Memory::kMap || place->mapped) return;
  Release(place);
  cl_int code = CL_SUCCESS;
  const void* seen = nullptr;
  Crossing([&] {
    seen = cl_.api().clEnqueueMapBuffer(cl_.queue(), Shared(place), CL_TRUE,
                                        CL_MAP_READ | CL_MAP_WRITE, 0, place->range.second, 0,
                                        nullptr, nullptr, &code);
  });
  Check(code, "clEnqueueMapBuffer");
  if (seen != arena_ + place->range.first) {
    throw std::runtime_error("clEnqueueMapBuffer: the host's memory is not where it was");
  }
  place->mapped = true;
}

void GpuMemory::Unmap(Place* place) {
  if (!place->mapped) return;
  Crossing([&] {
    Check(cl_.api().clEnqueueUnmapMemObject(cl_.queue(), place->shared.get(),
                                            arena_ + place->range.first, 0, nullptr, nullptr),
          "clEnqueueUnmapMemObject");
  });
  place->mapped = false;
}

void GpuMemory::Release(Place* place) {
  Unmap(place);
  for (Place* other : place->overlapping) Unmap(other);
}

void GpuMemory::Reorder(cl_mem from, cl_mem to, const Order& order, bool to_gpu) {
  const Walk walk = WalkOf(order, to_gpu);
  size_t count = 1;
  for (const cl_uint extent : walk.extents) count *= extent;
  const size_t global = (count + kGroup - 1) / kGroup * kGroup, local = kGroup;
  const autotune_opencl::Api& api = cl_.api();
  Check(api.clSetKernelArg(reorder_.get(), 0, sizeof(cl_mem), &from), "clSetKernelArg");
  Check(api.clSetKernelArg(reorder_.get(), 1, sizeof(cl_mem), &to), "clSetKernelArg");
  Check(api.clSetKernelArg(reorder_.get(), 2, sizeof(walk.extents), walk.extents.data()),
        "clSetKernelArg");
  Check(api.clSetKernelArg(reorder_.get(), 3, sizeof(walk.strides), walk.strides.data()),
        "clSetKernelArg");
  Check(api.clEnqueueNDRangeKernel(cl_.queue(), reorder_.get(), 1, nullptr, &global, &local, 0,
                                   nullptr, nullptr),
        "clEnqueueNDRangeKernel");
}

template <typename Action>
void GpuMemory::Crossing(Action action) {
  if (!timed_) {
    action();
    return;
  }
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  cl_.Finish();
  const auto idle = Clock::now();
  action();
  cl_.Finish();
  times_.waited += std::chrono::duration<double>(idle - start).count();
  times_.crossed += std::chrono::duration<double>(Clock::now() - idle).count();
}

CrossingTimes GpuMemory::TakeTimes() { return std::exchange(times_, {}); }

cl_mem GpuMemory::Staging() {
  if (!staging_) staging_ = cl_.NewBuffer(CL_MEM_READ_WRITE, plan_.largest_bytes(), nullptr);
  return staging_.get();
}

void GpuMemory::ToHost(Place* place, const Order* order) {
  if (memory_ == Memory::kMap) {
    Reorder(Device(place), Shared(place), *order, false);
    return;
  }
  cl_mem source = Device(place);
  if (order != nullptr) {
    Reorder(source, Staging(), *order, false);
    source = Staging();
  }
  Check(cl_.api().clEnqueueReadBuffer(cl_.queue(), source, CL_TRUE, 0, place->range.second,
                                      arena_ + place->range.first, 0, nullptr, nullptr),
        "clEnqueueReadBuffer");
}

void GpuMemory::ToGpu(Place* place, const Order* order) {
  if (memory_ == Memory::kMap) {
    Reorder(Shared(place), Device(place), *order, true);
    return;
  }
  cl_mem target = order != nullptr ? Staging() : Device(place);
  // The host may write there again as soon as this returns.
  Check(cl_.api().clEnqueueWriteBuffer(cl_.queue(), target, CL_TRUE, 0, place->range.second,
                                       arena_ + place->range.first, 0, nullptr, nullptr),
        "clEnqueueWriteBuffer");
  if (order != nullptr) Reorder(target, Device(place), *order, true);
}

void GpuMemory::HostReads(size_t tensor) {
  Place& place = At(tensor);
  if (!place.on_host) {
    Release(&place);
    Crossing([&] { ToHost(&place, OrderOf(tensor)); });
    place.on_host = true;
  }
  Map(&place);
}

void GpuMemory::HostWrites(size_t tensor) {
  Place& place = At(tensor);
  place.on_host = true;
  place.on_gpu = SharesStorage(tensor);
  Map(&place);
}

void GpuMemory::GpuReads(size_t tensor) {
  Place& place = At(tensor);
  const bool shared = SharesStorage(tensor);
  if (place.on_gpu && !shared) return;
  Release(&place);
  if (!shared) Crossing([&] { ToGpu(&place, OrderOf(tensor)); });
  place.on_gpu = true;
}

void GpuMemory::GpuWrites(size_t tensor) {
  Place& place = At(tensor);
  place.on_gpu = true;
  place.on_host = SharesStorage(tensor);
  if (SharesStorage(tensor)) Release(&place);
}

void GpuMemory::Copy(size_t from, size_t to) {
  Place& source = At(from);
  const bool ready = memory_ == Memory::kCopy || source.mapped || !source.on_gpu;
  if (source.on_host && ready) {
    HostReads(from);
    HostWrites(to);
    std::memcpy(arena_ + At(to).range.first, arena_ + source.range.first, source.range.second);
    return;
  }
  GpuReads(from);
  GpuWrites(to);
  Check(cl_.api().clEnqueueCopyBuffer(cl_.queue(), Operand(from), Operand(to), 0, 0,
                                      source.range.second, 0, nullptr, nullptr),
        "clEnqueueCopyBuffer");
}

}  // namespace step_runner
}  // namespace autotune
