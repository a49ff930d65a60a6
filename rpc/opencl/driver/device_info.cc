// SPDX-License-Identifier: Apache-2.0
#include "device_info.h"

#include <algorithm>
#include <cstdio>

#include "cl_error.h"
#include "../../common/json_writer.h"
#include "../../opencl_loader/autotune_opencl.hpp"

namespace autotune {
namespace opencl {
namespace {

// Queries newer than OpenCL 1.2 or of vendors, by number: their headers need not be installed.
constexpr cl_device_info kPreferredGroupMultiple = 0x1067;    // OpenCL 3.0
constexpr cl_device_info kWarpSizeNv = 0x4003;                // cl_nv_device_attribute_query
constexpr cl_device_info kWavefrontWidthAmd = 0x4043;         // cl_amd_device_attribute_query
constexpr cl_device_info kSubGroupSizesIntel = 0x4108;        // cl_intel_required_subgroup_size

template <typename T>
T Query(cl_device_id device, cl_device_info what, T otherwise = T()) {
  T value{};
  const cl_int code =
      Library().api.clGetDeviceInfo(device, what, sizeof(value), &value, nullptr);
  return code == CL_SUCCESS ? value : otherwise;
}

template <typename T>
std::vector<T> QueryList(cl_device_id device, cl_device_info what) {
  const ClApi& api = Library().api;
  size_t bytes = 0;
  if (api.clGetDeviceInfo(device, what, 0, nullptr, &bytes) != CL_SUCCESS) return {};
  std::vector<T> values(bytes / sizeof(T));
  if (values.empty() ||
      api.clGetDeviceInfo(device, what, bytes, values.data(), nullptr) != CL_SUCCESS) {
    return {};
  }
  return values;
}

std::string Trimmed(const std::vector<char>& raw) {
  std::string text(raw.begin(), std::find(raw.begin(), raw.end(), '\0'));
  const size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

std::string QueryText(cl_device_id device, cl_device_info what) {
  return Trimmed(QueryList<char>(device, what));
}

std::string PlatformName(cl_platform_id platform) {
  const ClApi& api = Library().api;
  size_t bytes = 0;
  if (api.clGetPlatformInfo(platform, CL_PLATFORM_NAME, 0, nullptr, &bytes) != CL_SUCCESS) {
    return "";
  }
  std::vector<char> raw(bytes);
  if (api.clGetPlatformInfo(platform, CL_PLATFORM_NAME, bytes, raw.data(), nullptr) != CL_SUCCESS) {
    return "";
  }
  return Trimmed(raw);
}

/// What a driver before OpenCL 3.0 tells of a kernel only: the multiple of work items that it prefers.
uint64_t PreferredMultiple(cl_device_id device) {
  const ClApi& api = Library().api;
  const char* source = "kernel void empty(global float* data) { data[get_global_id(0)] = 0; }";
  cl_program program = nullptr;
  cl_kernel kernel = nullptr;
  size_t multiple = 0;
  cl_int code = CL_SUCCESS;
  cl_context context = api.clCreateContext(nullptr, 1, &device, nullptr, nullptr, &code);
  if (code == CL_SUCCESS) {
    program = api.clCreateProgramWithSource(context, 1, &source, nullptr, &code);
  }
  if (code == CL_SUCCESS) code = api.clBuildProgram(program, 1, &device, "", nullptr, nullptr);
  if (code == CL_SUCCESS) kernel = api.clCreateKernel(program, "empty", &code);
  if (code == CL_SUCCESS &&
      api.clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE,
                                   sizeof(multiple), &multiple, nullptr) != CL_SUCCESS) {
    multiple = 0;
  }
  if (kernel != nullptr) api.clReleaseKernel(kernel);
  if (program != nullptr) api.clReleaseProgram(program);
  if (context != nullptr) api.clReleaseContext(context);
  return multiple;
}

/// OpenCL has no common query for it, so each vendor's is tried where its extension is announced.
uint64_t SubGroupSize(const DeviceInfo& info) {
  if (info.HasExtension("cl_nv_device_attribute_query")) {
    return Query<cl_uint>(info.id, kWarpSizeNv);
  }
  if (info.HasExtension("cl_amd_device_attribute_query")) {
    return Query<cl_uint>(info.id, kWavefrontWidthAmd);
  }
  if (info.HasExtension("cl_intel_required_subgroup_size")) {
    const std::vector<size_t> sizes = QueryList<size_t>(info.id, kSubGroupSizesIntel);
    if (!sizes.empty()) return *std::max_element(sizes.begin(), sizes.end());
  }
  // On a CPU the preferred multiple is a vector width, which is not what a sub-group size is for.
  if ((info.type & CL_DEVICE_TYPE_GPU) == 0) return 0;
  const uint64_t told = Query<size_t>(info.id, kPreferredGroupMultiple);  // From OpenCL 3.0 on.
  return told != 0 ? told : PreferredMultiple(info.id);
}

DeviceInfo Describe(cl_platform_id platform, const std::string& platform_name, cl_device_id id) {
  DeviceInfo info;
  info.platform = platform;
  info.id = id;
  info.platform_name = platform_name;
  info.type = Query<cl_device_type>(id, CL_DEVICE_TYPE);
  info.name = QueryText(id, CL_DEVICE_NAME);
  info.vendor = QueryText(id, CL_DEVICE_VENDOR);
  info.device_version = QueryText(id, CL_DEVICE_VERSION);
  info.driver_version = QueryText(id, CL_DRIVER_VERSION);
  info.extensions = QueryText(id, CL_DEVICE_EXTENSIONS);
  info.compute_units = Query<cl_uint>(id, CL_DEVICE_MAX_COMPUTE_UNITS);
  info.max_clock_mhz = Query<cl_uint>(id, CL_DEVICE_MAX_CLOCK_FREQUENCY);
  info.max_work_group_size = Query<size_t>(id, CL_DEVICE_MAX_WORK_GROUP_SIZE);
  info.max_work_item_sizes = QueryList<size_t>(id, CL_DEVICE_MAX_WORK_ITEM_SIZES);
  info.local_mem_bytes = Query<cl_ulong>(id, CL_DEVICE_LOCAL_MEM_SIZE);
  info.local_mem_is_dedicated =
      Query<cl_device_local_mem_type>(id, CL_DEVICE_LOCAL_MEM_TYPE) == CL_LOCAL;
  info.global_mem_bytes = Query<cl_ulong>(id, CL_DEVICE_GLOBAL_MEM_SIZE);
  info.global_cache_bytes = Query<cl_ulong>(id, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE);
  info.max_alloc_bytes = Query<cl_ulong>(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  info.max_constant_bytes = Query<cl_ulong>(id, CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE);
  info.preferred_float_vector_width = Query<cl_uint>(id, CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT);
  info.native_float_vector_width = Query<cl_uint>(id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT);
  info.image_support = Query<cl_bool>(id, CL_DEVICE_IMAGE_SUPPORT) == CL_TRUE;
  if (info.image_support) {
    info.image2d_max = {{Query<size_t>(id, CL_DEVICE_IMAGE2D_MAX_WIDTH),
                         Query<size_t>(id, CL_DEVICE_IMAGE2D_MAX_HEIGHT)}};
    info.image_buffer_max = Query<size_t>(id, CL_DEVICE_IMAGE_MAX_BUFFER_SIZE);
    info.image_pitch_alignment = Query<cl_uint>(id, autotune_opencl::internal::kImagePitchAlignment);
  }
  info.unified_memory = Query<cl_bool>(id, CL_DEVICE_HOST_UNIFIED_MEMORY) == CL_TRUE;
  info.mem_base_addr_align_bits = Query<cl_uint>(id, CL_DEVICE_MEM_BASE_ADDR_ALIGN);
  info.sub_group_size = SubGroupSize(info);
  return info;
}

int Rank(cl_device_type type) {
  if ((type & CL_DEVICE_TYPE_GPU) != 0) return 0;
  return (type & CL_DEVICE_TYPE_ACCELERATOR) != 0 ? 1 : 2;
}

const char* TypeName(cl_device_type type) {
  if ((type & CL_DEVICE_TYPE_GPU) != 0) return "gpu";
  if ((type & CL_DEVICE_TYPE_ACCELERATOR) != 0) return "accelerator";
  return (type & CL_DEVICE_TYPE_CPU) != 0 ? "cpu" : "custom";
}

DeviceList* Enumerate() {
  auto* list = new DeviceList;
  const ClLibrary& library = Library();
  if (library.path.empty()) {
    list->reason = library.reason;
    return list;
  }
  const ClApi& api = library.api;
  cl_uint count = 0;
  const cl_int code = api.clGetPlatformIDs(0, nullptr, &count);
  std::vector<cl_platform_id> platforms(code == CL_SUCCESS ? count : 0);
  if (!platforms.empty()) api.clGetPlatformIDs(count, platforms.data(), nullptr);
  for (cl_platform_id platform : platforms) {
    cl_uint devices = 0;
    if (api.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &devices) != CL_SUCCESS) {
      continue;
    }
    std::vector<cl_device_id> ids(devices);
    if (devices == 0 ||
        api.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, devices, ids.data(), nullptr) !=
            CL_SUCCESS) {
      continue;
    }
    const std::string name = PlatformName(platform);
    for (cl_device_id id : ids) list->devices.push_back(Describe(platform, name, id));
  }
  std::stable_sort(
      list->devices.begin(), list->devices.end(),
      [](const DeviceInfo& a, const DeviceInfo& b) { return Rank(a.type) < Rank(b.type); });
  if (list->devices.empty()) {
    list->reason = library.path + " offers no device";
    if (code != CL_SUCCESS) list->reason += ": " + ErrorName(code) + " in clGetPlatformIDs";
    list->reason += "; on Debian install a driver, such as pocl-opencl-icd for the CPU";
  }
  return list;
}

std::string InfoJson(size_t index, const DeviceInfo& info) {
  std::vector<std::string> item_sizes;
  for (size_t size : info.max_work_item_sizes) item_sizes.push_back(std::to_string(size));
  JsonObject json;
  json.Number("index", index)
      .Text("platform", info.platform_name)
      .Text("name", info.name)
      .Text("vendor", info.vendor)
      .Text("device_version", info.device_version)
      .Text("driver_version", info.driver_version)
      .Text("type", TypeName(info.type))
      .Number("compute_units", info.compute_units)
      .Number("max_clock_mhz", info.max_clock_mhz)
      .Number("max_work_group_size", info.max_work_group_size)
      .Raw("max_work_item_sizes", JsonList(item_sizes))
      .Number("local_mem_bytes", info.local_mem_bytes)
      .Text("local_mem_type", info.local_mem_is_dedicated ? "local" : "global")
      .Number("global_mem_bytes", info.global_mem_bytes)
      .Number("max_alloc_bytes", info.max_alloc_bytes)
      .Number("max_constant_bytes", info.max_constant_bytes)
      .Number("preferred_float_vector_width", info.preferred_float_vector_width)
      .Number("native_float_vector_width", info.native_float_vector_width)
      .Flag("image_support", info.image_support)
      .Raw("image2d_max", JsonList({std::to_string(info.image2d_max[0]),
                                    std::to_string(info.image2d_max[1])}))
      .Number("image_buffer_max", info.image_buffer_max)
      .Flag("fp16", info.HasExtension("cl_khr_fp16"))
      .Number("sub_group_size", info.sub_group_size)
      .Flag("unified_memory", info.unified_memory)
      .Number("mem_base_addr_align_bits", info.mem_base_addr_align_bits)
      .Text("extensions", info.extensions);
  return json.str();
}

}  // namespace

bool DeviceInfo::HasExtension(const std::string& extension) const {
  // Whole words only: one extension's name may begin another's.
  return (" " + extensions + " ").find(" " + extension + " ") != std::string::npos;
}

std::array<int, 2> DeviceInfo::Version() const {
  std::array<int, 2> version{{1, 2}};
  if (std::sscanf(device_version.c_str(), "OpenCL %d.%d", &version[0], &version[1]) != 2) {
    version = {{1, 2}};
  }
  return version;
}

const DeviceList& Devices() {
  static const DeviceList* list = Enumerate();
  return *list;
}

std::string DevicesJson() {
  const DeviceList& list = Devices();
  const std::string& path = Library().path;
  std::vector<std::string> devices;
  for (size_t i = 0; i < list.devices.size(); ++i) {
    devices.push_back(InfoJson(i, list.devices[i]));
  }
  return JsonObject()
      .Raw("library", path.empty() ? "null" : JsonString(path))
      .Text("reason", list.reason)
      .Raw("devices", JsonList(devices))
      .str();
}

}  // namespace opencl
}  // namespace autotune
