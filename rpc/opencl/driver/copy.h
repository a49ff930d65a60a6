// SPDX-License-Identifier: Apache-2.0
//
// Copies between the host, buffers and images.
#ifndef AUTOTUNE_OPENCL_COPY_H_
#define AUTOTUNE_OPENCL_COPY_H_

#include <cstddef>

#include "memory.h"

namespace autotune {
namespace opencl {

/// `offset` counts bytes into a buffer; an image is only copied as a whole, from offset 0. The host
/// copies have finished when they return; the device copy is only enqueued.
void CopyToDevice(const void* from, Memory* to, size_t offset, size_t bytes);
void CopyToHost(const Memory& from, size_t offset, void* to, size_t bytes);
void CopyOnDevice(const Memory& from, size_t from_offset, Memory* to, size_t to_offset,
                  size_t bytes);

}  // namespace opencl
}  // namespace autotune

#endif  // AUTOTUNE_OPENCL_COPY_H_
