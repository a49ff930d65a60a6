// SPDX-License-Identifier: Apache-2.0
//
// What OpenCL says about each device, read once.
#ifndef AUTOTUNE_OPENCL_DEVICE_INFO_H_
#define AUTOTUNE_OPENCL_DEVICE_INFO_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cl_api.h"

namespace autotune {
namespace opencl {

struct DeviceInfo {
  cl_platform_id platform = nullptr;
  cl_device_id id = nullptr;
  cl_device_type type = 0;
  std::string platform_name;
  std::string name;
  std::string vendor;
  std::string device_version;  ///< "OpenCL 3.0 vendor text"
  std::string driver_version;
  std::string extensions;
  uint64_t compute_units = 0;
  uint64_t max_clock_mhz = 0;
  uint64_t max_work_group_size = 0;
  std::vector<size_t> max_work_item_sizes;
  uint64_t local_mem_bytes = 0;
  bool local_mem_is_dedicated = false;  ///< False where "local" memory is ordinary memory.
  uint64_t global_mem_bytes = 0;
  uint64_t global_cache_bytes = 0;
  uint64_t max_alloc_bytes = 0;
  uint64_t max_constant_bytes = 0;
  uint64_t preferred_float_vector_width = 0;
  uint64_t native_float_vector_width = 0;
  bool image_support = false;
  std::array<size_t, 2> image2d_max{{0, 0}};
  uint64_t image_buffer_max = 0;       ///< Texels of an image over a buffer; 0 without images.
  uint64_t image_pitch_alignment = 0;  ///< In pixels; 0 when the driver does not say.
  uint64_t sub_group_size = 0;         ///< Best known; 0 when unknown.
  bool unified_memory = false;
  uint64_t mem_base_addr_align_bits = 0;

  bool HasExtension(const std::string& extension) const;
  /// (3, 0) of "OpenCL 3.0 ..."; (1, 2) where the text is malformed.
  std::array<int, 2> Version() const;
};

struct DeviceList {
  std::vector<DeviceInfo> devices;  ///< GPUs, then accelerators, then CPUs; else platform order.
  std::string reason;               ///< Why the list is empty; empty when it is not.
};

/// Asks every platform on the first call and remembers the answer; never throws.
const DeviceList& Devices();

/// The object {"library", "reason", "devices"} that the Python side reads.
std::string DevicesJson();

}  // namespace opencl
}  // namespace autotune

#endif  // AUTOTUNE_OPENCL_DEVICE_INFO_H_
