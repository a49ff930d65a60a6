// SPDX-License-Identifier: Apache-2.0
//
// Compiled programs, kept on disk so that a program is compiled once for a device and its driver.
#ifndef AUTOTUNE_OPENCL_PROGRAM_CACHE_H_
#define AUTOTUNE_OPENCL_PROGRAM_CACHE_H_

#include <string>
#include <vector>

#include "../opencl_loader/autotune_opencl.hpp"
#include "driver/cl_api.h"
#include "driver/device.h"

namespace autotune {
namespace opencl {

using autotune_opencl::internal::ImageArgument;
using autotune_opencl::internal::ImageArguments;

/// The arguments of a kernel that are images on a device; none where the device does not have them all.
ImageArguments ImagesOn(Device* device, const std::string& source, const std::string& kernel);

/// The program of a source text with such images, built for a device: from the cache where it is there, else compiled and put there.
/// The cache is a folder (../common/programs_folder.h); where there is none every program is compiled.
/// Throws with the driver's build log where it does not compile; `what` says for whom.
cl_program BuiltProgram(Device* device, const std::string& text,
                        const ImageArguments& images, const std::string& what);

}  // namespace opencl
}  // namespace autotune

#endif  // AUTOTUNE_OPENCL_PROGRAM_CACHE_H_
