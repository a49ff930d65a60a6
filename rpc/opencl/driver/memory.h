// SPDX-License-Identifier: Apache-2.0
//
// What stands behind the `data` pointer of an OpenCL tensor.
#ifndef AUTOTUNE_OPENCL_MEMORY_H_
#define AUTOTUNE_OPENCL_MEMORY_H_

#include <dlpack/dlpack.h>

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "../../opencl_loader/autotune_opencl.hpp"
#include "cl_api.h"

namespace autotune {
namespace opencl {

class Device;

/// A buffer or a 2-D image array. It stays at one address as long as the tensor lives: TVM carries
/// that address around as an opaque pointer and never does arithmetic on it.
struct Memory {
  enum class Kind { kBuffer, kImage };

  Memory(Device* owner, cl_mem handle, size_t size) : mem(handle), device(owner), bytes(size) {}
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  bool is_image() const { return kind == Kind::kImage; }
  /// The buffer as an image, made at the first call and kept as long as the buffer; null where the driver makes none.
  cl_mem AsImage(const autotune_opencl::internal::ImageArgument& image);

  cl_mem mem;
  Device* device;
  size_t bytes;
  Kind kind = Kind::kBuffer;
  std::array<size_t, 3> region{{0, 0, 0}};  ///< Of an image: width, height, layers, in pixels.

 private:
  std::map<std::array<size_t, 3>, cl_mem> views_;  // By channels, texels and width.
};

/// How TVM flattens a tensor's shape into an image of four-channel pixels. The last axis is the
/// four channels; the scope tells which of the other axes count as rows.
std::array<size_t, 3> ImageRegion(const int64_t* shape, int ndim, const std::string& scope);

/// True for "global.texture" and its variants.
bool IsTextureScope(const std::string& scope);

/// The caller owns the result; a failure throws with the size asked for and the limit.
Memory* CreateBuffer(Device* device, size_t bytes);
Memory* CreateImage(Device* device, const std::array<size_t, 3>& region, DLDataType channel);

}  // namespace opencl
}  // namespace autotune

#endif  // AUTOTUNE_OPENCL_MEMORY_H_
