// SPDX-License-Identifier: Apache-2.0
#include "launch_shape.h"

#include <tvm/ffi/error.h>

#include <algorithm>

namespace autotune {
namespace opencl {
namespace {

int SlotOf(const std::string& tag) {
  for (const auto& [prefix, first] : {std::pair<std::string, int>{"blockIdx.", 0},
                                      std::pair<std::string, int>{"threadIdx.", 3}}) {
    if (tag.size() == prefix.size() + 1 && tag.compare(0, prefix.size(), prefix) == 0) {
      const int axis = tag.back() - 'x';
      if (axis >= 0 && axis < 3) return first + axis;
    }
  }
  TVM_FFI_THROW(RuntimeError) << "an OpenCL kernel cannot be launched with the parameter '" << tag
                              << "'";
  TVM_FFI_UNREACHABLE();
}

}  // namespace

LaunchParams::LaunchParams(const std::vector<std::string>& tags) {
  for (const std::string& tag : tags) {
    if (tag == "tirx.use_dyn_shared_memory") {
      dynamic_local_ = true;  // TVM puts it last, and its value is the number of bytes.
      continue;
    }
    const int slot = SlotOf(tag);
    slots_.push_back(slot);
    work_dim_ = std::max(work_dim_, static_cast<uint32_t>(slot % 3 + 1));
  }
}

LaunchShape LaunchParams::Read(const TVMFFIAny* values) const {
  std::array<size_t, 6> sizes{{1, 1, 1, 1, 1, 1}};
  for (size_t i = 0; i < slots_.size(); ++i) {
    // A dynamic shape can make an extent 0; the kernel's own bounds check then does nothing.
    sizes[static_cast<size_t>(slots_[i])] =
        static_cast<size_t>(std::max<int64_t>(values[i].v_int64, 1));
  }
  LaunchShape shape;
  for (size_t axis = 0; axis < 3; ++axis) {
    shape.local[axis] = sizes[axis + 3];
    shape.global[axis] = sizes[axis] * sizes[axis + 3];
  }
  if (dynamic_local_) {
    shape.dynamic_local_bytes = static_cast<size_t>(values[slots_.size()].v_int64);
  }
  return shape;
}

}  // namespace opencl
}  // namespace autotune
