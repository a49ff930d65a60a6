// SPDX-License-Identifier: Apache-2.0
//
// One OpenCL device in use: its context, its queue, its workspace and its kernel times.
#ifndef AUTOTUNE_OPENCL_DEVICE_H_
#define AUTOTUNE_OPENCL_DEVICE_H_

#include <atomic>
#include <mutex>
#include <string>

#include "../../opencl_loader/autotune_opencl.hpp"
#include "device_info.h"
#include "kernel_profile.h"
#include "../workspace_pool.h"

namespace autotune {
namespace opencl {

/// Opened at its first use and never closed: tensors may be freed at any time, up to the end of the
/// process. Each device has a context of its own; several devices in one context make drivers
/// migrate buffers behind our back, in the middle of a measurement.
class Device {
 public:
  Device(const DeviceInfo& info, int index);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceInfo& info() const { return info_; }
  int index() const { return index_; }
  cl_context context();
  /// The one in-order queue; see SetProfiling for when it is another one.
  cl_command_queue queue();
  WorkspacePool& pool() { return pool_; }
  KernelProfile& profile() { return profile_; }

  /// Waits for everything enqueued. A kernel that failed on the device shows up only here.
  void Finish();

  /// Remembers which kernel a later failure may belong to; `name` must live for ever.
  void NoteLaunch(const char* name) { last_kernel_.store(name, std::memory_order_relaxed); }

  /// A driver may announce images and not make them: from then on the device has none of that form.
  void RefuseImages(const autotune_opencl::internal::ImageArguments& refused) {
    (refused.front().width == 0 ? images_refused_ : wide_images_refused_).store(true);
  }
  /// The images over buffers that it has.
  autotune_opencl::internal::ImageLimits image_limits() const {
    if (images_refused_.load()) return {};
    const bool wide = !wide_images_refused_.load() && info_.HasExtension(autotune_opencl::internal::kImage2dFromBuffer);
    return {info_.image_buffer_max, info_.image2d_max, wide ? info_.image_pitch_alignment : 0};
  }

  bool opened() const { return context_.load() != nullptr; }

 private:
  cl_command_queue OpenQueue(bool profiling);

  const DeviceInfo& info_;
  const int index_;
  std::mutex mutex_;  // Guards the opening of the context and the queues.
  std::atomic<cl_context> context_{nullptr};
  // The queue without and the queue with profiling; the second is made only when asked for.
  std::atomic<cl_command_queue> queues_[2]{{nullptr}, {nullptr}};
  std::atomic<const char*> last_kernel_{nullptr};
  std::atomic<bool> images_refused_{false}, wide_images_refused_{false};
  WorkspacePool pool_{this};
  KernelProfile profile_;
};

/// The device of that index in Devices(); throws where there is none.
Device& GetDevice(int index);

/// Profiling makes some drivers slower, so it is off until asked for. Do not switch while another
/// thread launches kernels: the two queues know nothing of each other's order.
void SetProfiling(bool enabled);
bool ProfilingEnabled();

}  // namespace opencl
}  // namespace autotune

#endif  // AUTOTUNE_OPENCL_DEVICE_H_
