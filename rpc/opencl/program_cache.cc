// SPDX-License-Identifier: Apache-2.0
#include "program_cache.h"

#include <tvm/ffi/error.h>

#include "../common/programs_folder.h"
#include "driver/cl_error.h"

namespace autotune {
namespace opencl {

namespace files = autotune_opencl::internal;

ImageArguments ImagesOn(Device* device, const std::string& source, const std::string& kernel) {
  return files::FittedImages(Api(), device->context(), files::ImageArgumentsOf(source, kernel), device->image_limits());
}

cl_program BuiltProgram(Device* device, const std::string& text, const ImageArguments& images, const std::string& what) {
  const std::string source = files::ImagePrelude(images) + text;
  const DeviceInfo& info = device->info();
  const files::MadeProgram made = files::KeptProgram(
      Api(), device->context(), info.id,
      {info.platform_name, info.vendor, info.name, info.device_version, info.driver_version}, source, "", ProgramsFolder(""));
  if (made.failed != nullptr && made.log.empty()) Check(made.code, std::string(made.failed) + " of " + what);
  if (made.failed != nullptr) {
    TVM_FFI_THROW(RuntimeError) << "OpenCL: " << ErrorName(made.code) << " while building " << what << " for "
                                << info.name << ":\n"
                                << made.log;
  }
  return made.program;
}

}  // namespace opencl
}  // namespace autotune
