// SPDX-License-Identifier: Apache-2.0
//
// The device's own times of the kernels launched while somebody measures.
#ifndef AUTOTUNE_OPENCL_KERNEL_PROFILE_H_
#define AUTOTUNE_OPENCL_KERNEL_PROFILE_H_

#include <cstdint>
#include <mutex>
#include <vector>

#include "cl_api.h"

namespace autotune {
namespace opencl {

class KernelProfile {
 public:
  struct Total {
    uint64_t nanoseconds = 0;
    uint64_t kernels = 0;
    uint64_t failures = 0;  ///< Kernels whose times the driver would not give.
  };

  /// Measurements may nest; events are kept only while one is open.
  void Open();
  void Close();

  /// Takes the event over.
  void Add(cl_event event);

  /// The sum over all kernels added so far; call it after the queue is empty.
  Total Sum();

 private:
  void Fold(size_t count);

  std::mutex mutex_;
  int open_ = 0;
  std::vector<cl_event> events_;
  Total total_;
};

}  // namespace opencl
}  // namespace autotune

#endif  // AUTOTUNE_OPENCL_KERNEL_PROFILE_H_
