// SPDX-License-Identifier: Apache-2.0
#include "gpu_memory.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "../../common/clock.h"

namespace autotune {
namespace step_runner {
namespace {

constexpr size_t kAxes = 4;
constexpr size_t kGroup = 64;
constexpr size_t kBits = 8;
constexpr uint64_t kAlignment = autotune_opencl::internal::kAlignment;

bool Aligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % kAlignment == 0; }

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

GpuMemory::GpuMemory(const OpenCl& cl, const Plan& plan, char* arena, Memory memory,
                     const std::set<size_t>& both, const std::string& programs, bool timed)
    : cl_(cl), plan_(plan), timed_(timed) {
  cl_uint bits = 0;
  Check(cl.api().clGetDeviceInfo(cl.device(), CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof(bits), &bits,
                                 nullptr),
        "clGetDeviceInfo");
  const uint64_t alignment = std::max<uint64_t>(1, bits / kBits);
  for (const TensorPlace& tensor : plan.tensors) {
    if (tensor.offset % alignment != 0) {
      throw std::runtime_error("the OpenCL device wants tensors at multiples of " +
                               std::to_string(alignment) +
                               " bytes, and the step has one at " + std::to_string(tensor.offset) +
                               ": run it without the GPU, and report the device");
    }
    auto& place = places_[{tensor.offset, tensor.bytes}];
    if (place) continue;
    place = std::make_unique<Place>();
    place->range = {tensor.offset, tensor.bytes};
    place->host = arena + tensor.offset;
  }
  if (memory == Memory::kMap) Share(both, std::max(alignment, kAlignment));
  if (plan.orders.empty()) return;
  cl_device_id device = cl.device();
  const autotune_opencl::internal::MadeProgram made = autotune_opencl::internal::KeptProgram(
      cl.api(), cl.context(), device, autotune_opencl::internal::Describe(cl.api(), device), kReorder,
      "", programs);
  if (made.failed != nullptr) {
    throw std::runtime_error(std::string(made.failed) + ": " +
                             autotune_opencl::ErrorText(made.code) + " " + made.log);
  }
  reorder_program_ = Program(made.program, {cl.api().clReleaseProgram});
  cl_int code = CL_SUCCESS;
  reorder_ = Kernel(cl.api().clCreateKernel(reorder_program_.get(), "reorder", &code),
                    {cl.api().clReleaseKernel});
  Check(code, "clCreateKernel");
  group_ = std::min(kGroup, autotune_opencl::internal::DeviceValue<size_t>(
                                cl.api(), device, CL_DEVICE_MAX_WORK_GROUP_SIZE));
}

GpuMemory::~GpuMemory() {
  for (auto& [range, place] : places_) {
    if (place->mapped) {
      cl_.api().clEnqueueUnmapMemObject(cl_.queue(), place->shared.get(), place->host, 0, nullptr,
                                        nullptr);
    }
  }
  cl_.api().clFinish(cl_.queue());
}

GpuMemory::Place& GpuMemory::At(size_t tensor) const {
  const TensorPlace& one = plan_.tensors[tensor];
  return *places_.at({one.offset, one.bytes});
}

const Order* GpuMemory::OrderOf(size_t tensor) const {
  const auto found = plan_.orders.find(tensor);
  return found == plan_.orders.end() ? nullptr : &found->second;
}

bool GpuMemory::SharesStorage(size_t tensor) const {
  return At(tensor).shared && OrderOf(tensor) == nullptr;
}

Buffer GpuMemory::Part(const Buffer& whole, uint64_t offset, uint64_t bytes) const {
  cl_buffer_region region{offset, bytes};
  cl_int code = CL_SUCCESS;
  Buffer part = cl_.Own(cl_.api().clCreateSubBuffer(whole.get(), 0, CL_BUFFER_CREATE_TYPE_REGION,
                                                    &region, &code));
  Check(code, "clCreateSubBuffer");
  return part;
}

void* GpuMemory::MapAll(const Buffer& buffer, uint64_t bytes, cl_map_flags flags) const {
  cl_int code = CL_SUCCESS;
  void* const seen = cl_.api().clEnqueueMapBuffer(cl_.queue(), buffer.get(), CL_TRUE, flags, 0, bytes, 0, nullptr,
                                                  nullptr, &code);
  Check(code, "clEnqueueMapBuffer");
  return seen;
}

Buffer GpuMemory::NewShared(uint64_t bytes) {
  // Memory of the driver's own is what both vendors of phones' GPUs map without a copy.
  Buffer made = cl_.NewBuffer(CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes, nullptr);
  void* const seen = MapAll(made, bytes, CL_MAP_WRITE_INVALIDATE_REGION);
  Check(cl_.api().clEnqueueUnmapMemObject(cl_.queue(), made.get(), seen, 0, nullptr, nullptr),
        "clEnqueueUnmapMemObject");
  cl_.Finish();
  if (Aligned(seen)) return made;
  own_.reset(static_cast<char*>(std::aligned_alloc(kAlignment, bytes)));
  if (!own_) throw std::runtime_error("no memory for " + std::to_string(bytes) + " bytes");
  return cl_.NewBuffer(CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, bytes, own_.get());
}

void GpuMemory::Share(const std::set<size_t>& both, uint64_t alignment) {
  std::map<Place*, uint64_t> offsets;
  uint64_t bytes = 0;
  for (const size_t tensor : both) {
    Place* place = &At(tensor);
    if (!offsets.emplace(place, bytes).second) continue;
    bytes += (place->range.second + alignment - 1) / alignment * alignment;
  }
  if (bytes == 0) return;
  shared_ = NewShared(bytes);
  for (auto& [place, offset] : offsets) {
    place->shared = Part(shared_, offset, place->range.second);
    // Written before it is mapped for reading, which is undefined of what nobody wrote.
    Check(cl_.api().clEnqueueWriteBuffer(cl_.queue(), place->shared.get(), CL_TRUE, 0, place->range.second,
                                         place->host, 0, nullptr, nullptr),
          "clEnqueueWriteBuffer");
    Map(place);
  }
}

cl_mem GpuMemory::Device(Place* place) {
  if (!device_) device_ = cl_.NewBuffer(CL_MEM_READ_WRITE, plan_.arena_bytes, nullptr);
  if (!place->device) place->device = Part(device_, place->range.first, place->range.second);
  return place->device.get();
}

cl_mem GpuMemory::Operand(size_t tensor) {
  Place& place = At(tensor);
  return SharesStorage(tensor) ? place.shared.get() : Device(&place);
}

void GpuMemory::Map(Place* place) {
  if (!place->shared || place->mapped) return;
  place->host = static_cast<char*>(MapAll(place->shared, place->range.second, CL_MAP_READ | CL_MAP_WRITE));
  place->mapped = true;
  if (!Aligned(place->host)) {
    throw std::runtime_error("the OpenCL device maps tensors at addresses that are no multiples of " +
                             std::to_string(kAlignment) + " bytes: let them be copied, and report the device");
  }
}

void GpuMemory::Unmap(Place* place) {
  if (!place->mapped) return;
  Check(cl_.api().clEnqueueUnmapMemObject(cl_.queue(), place->shared.get(), place->host, 0,
                                          nullptr, nullptr),
        "clEnqueueUnmapMemObject");
  place->mapped = false;
}

void GpuMemory::Reorder(cl_mem from, cl_mem to, const Order& order, bool to_gpu) {
  const Walk walk = WalkOf(order, to_gpu);
  size_t count = 1;
  for (const cl_uint extent : walk.extents) count *= extent;
  const size_t local = group_, global = (count + local - 1) / local * local;
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
void GpuMemory::Blocking(Way way, Action action) {
  if (!timed_) {
    action();
    return;
  }
  // It would wait for this as well.
  const double start = Now();
  cl_.Finish();
  const double idle = Now();
  action();
  cl_.Finish();
  times_.waited += idle - start;
  times_.crossed[way] += Now() - idle;
}

template <typename Action>
void GpuMemory::Enqueued(Way way, Action action) {
  Event before = Marker();
  action();
  if (timed_) times_.enqueued.emplace_back(way, std::move(before), Marker());
}

Event GpuMemory::Marker() const { return timed_ ? cl_.Marker() : Event(); }

CrossingTimes GpuMemory::TakeTimes() { return std::exchange(times_, {}); }

cl_mem GpuMemory::Staging() {
  if (!staging_) staging_ = cl_.NewBuffer(CL_MEM_READ_WRITE, plan_.largest_bytes(), nullptr);
  return staging_.get();
}

void GpuMemory::ToHost(Place* place, const Order* order) {
  // The host waits for all of it in the end; where it is timed, for each part.
  if (place->mapped) Blocking(kMapped, [&] { Unmap(place); });
  cl_mem source = Device(place);
  if (order != nullptr) {
    cl_mem reordered = place->shared ? place->shared.get() : Staging();
    Blocking(kReordered, [&] { Reorder(source, reordered, *order, false); });
    source = reordered;
  }
  if (place->shared) return;
  Blocking(kCopied, [&] {
    Check(cl_.api().clEnqueueReadBuffer(cl_.queue(), source, CL_TRUE, 0, place->range.second,
                                        place->host, 0, nullptr, nullptr),
          "clEnqueueReadBuffer");
  });
}

void GpuMemory::ToGpu(Place* place, const Order* order) {
  cl_mem source = place->shared ? place->shared.get() : order != nullptr ? Staging() : Device(place);
  if (!place->shared) {
    // The host may write there again as soon as this returns.
    Blocking(kCopied, [&] {
      Check(cl_.api().clEnqueueWriteBuffer(cl_.queue(), source, CL_TRUE, 0, place->range.second,
                                           place->host, 0, nullptr, nullptr),
            "clEnqueueWriteBuffer");
    });
  }
  if (order == nullptr) return;
  if (place->mapped) Enqueued(kMapped, [&] { Unmap(place); });
  Enqueued(kReordered, [&] { Reorder(source, Device(place), *order, true); });
}

void GpuMemory::HostReads(size_t tensor) {
  Place& place = At(tensor);
  if (place.on_host && (!place.shared || place.mapped)) return;
  if (!place.on_host) ToHost(&place, OrderOf(tensor));
  if (place.shared && !place.mapped) Blocking(kMapped, [&] { Map(&place); });
  place.on_host = true;
}

void GpuMemory::HostWrites(size_t tensor) {
  Place& place = At(tensor);
  if (place.shared && !place.mapped) Blocking(kMapped, [&] { Map(&place); });
  place.on_host = true;
  place.on_gpu = SharesStorage(tensor);
}

void GpuMemory::GpuReads(size_t tensor) {
  Place& place = At(tensor);
  if (SharesStorage(tensor)) {
    if (place.mapped) Enqueued(kMapped, [&] { Unmap(&place); });
  } else if (!place.on_gpu) {
    ToGpu(&place, OrderOf(tensor));
  }
  place.on_gpu = true;
}

void GpuMemory::GpuWrites(size_t tensor) {
  Place& place = At(tensor);
  const bool shared = SharesStorage(tensor);
  if (shared && place.mapped) Enqueued(kMapped, [&] { Unmap(&place); });
  place.on_gpu = true;
  place.on_host = shared;
}

void GpuMemory::Copy(size_t from, size_t to) {
  Place& source = At(from);
  const bool ready = !source.shared || source.mapped || !source.on_gpu;
  if (source.on_host && ready) {
    HostReads(from);
    HostWrites(to);
    std::memcpy(Host(to), Host(from), source.range.second);
    return;
  }
  GpuReads(from);
  GpuWrites(to);
  Enqueued(kCopied, [&] {
    Check(cl_.api().clEnqueueCopyBuffer(cl_.queue(), Operand(from), Operand(to), 0, 0,
                                        source.range.second, 0, nullptr, nullptr),
          "clEnqueueCopyBuffer");
  });
}

}  // namespace step_runner
}  // namespace autotune
