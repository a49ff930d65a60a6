// SPDX-License-Identifier: Apache-2.0
//
// From TVM's launch parameters to OpenCL's work sizes.
#ifndef AUTOTUNE_OPENCL_LAUNCH_SHAPE_H_
#define AUTOTUNE_OPENCL_LAUNCH_SHAPE_H_

#include <tvm/ffi/c_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace autotune {
namespace opencl {

struct LaunchShape {
  std::array<size_t, 3> global{{1, 1, 1}};  ///< In work items, as OpenCL counts.
  std::array<size_t, 3> local{{1, 1, 1}};
  size_t dynamic_local_bytes = 0;
};

/// Knows in which order a kernel's launch parameters follow its arguments.
class LaunchParams {
 public:
  explicit LaunchParams(const std::vector<std::string>& tags);

  /// How many values follow the arguments.
  size_t count() const { return slots_.size() + (dynamic_local_ ? 1 : 0); }
  uint32_t work_dim() const { return work_dim_; }
  LaunchShape Read(const TVMFFIAny* values) const;

 private:
  std::vector<int> slots_;  // 0 to 2 the grid's x, y, z; 3 to 5 the block's.
  uint32_t work_dim_ = 1;
  bool dynamic_local_ = false;
};

}  // namespace opencl
}  // namespace autotune

#endif  // AUTOTUNE_OPENCL_LAUNCH_SHAPE_H_
