// SPDX-License-Identifier: Apache-2.0
#include "program_cache.h"

#include <tvm/ffi/error.h>

#include <cstdlib>

#include "cl_error.h"

namespace autotune {
namespace opencl {
namespace {

namespace files = autotune_opencl::internal;

constexpr const char* kFolderVariable = "AUTOTUNE_OPENCL_PROGRAMS";

std::string Folder() {
  const char* folder = std::getenv(kFolderVariable);
  return folder != nullptr ? folder : "";
}

/// Everything that a compiled program depends on.
std::string Key(const DeviceInfo& info, const std::string& source) {
  std::string key;
  for (const std::string& part :
       {info.platform_name, info.vendor, info.name, info.device_version, info.driver_version}) {
    key += part + "\n";
  }
  return key + std::to_string(source.size()) + " " + files::Hex(files::Hash(source)) + "\n";
}

std::string BuildLog(cl_program program, cl_device_id device) {
  const ClApi& api = Api();
  size_t size = 0;
  if (api.clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size) !=
          CL_SUCCESS ||
      size <= 1) {
    return "(the driver gives no build log)";
  }
  std::string log(size, '\0');
  api.clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, &log[0], nullptr);
  log.resize(log.find_last_not_of(std::string("\0\n ", 3)) + 1);
  return log;
}

/// A program from what a driver once gave; null where it does not take it back.
cl_program FromBinary(Device* device, const std::string& binary) {
  const ClApi& api = Api();
  const cl_device_id id = device->info().id;
  const size_t size = binary.size();
  const auto* bytes = reinterpret_cast<const unsigned char*>(binary.data());
  cl_int loaded = CL_SUCCESS;
  cl_int code = CL_SUCCESS;
  cl_program program =
      api.clCreateProgramWithBinary(device->context(), 1, &id, &size, &bytes, &loaded, &code);
  if (code == CL_SUCCESS && loaded == CL_SUCCESS &&
      api.clBuildProgram(program, 1, &id, "", nullptr, nullptr) == CL_SUCCESS) {
    return program;
  }
  if (code == CL_SUCCESS) api.clReleaseProgram(program);
  return nullptr;
}

cl_program FromSource(Device* device, const std::string& source, const std::string& what) {
  const ClApi& api = Api();
  const cl_device_id id = device->info().id;
  const char* text = source.c_str();
  const size_t length = source.size();
  cl_int code = CL_SUCCESS;
  cl_program program = api.clCreateProgramWithSource(device->context(), 1, &text, &length, &code);
  Check(code, "clCreateProgramWithSource of " + what);
  code = api.clBuildProgram(program, 1, &id, "", nullptr, nullptr);
  if (code == CL_SUCCESS) return program;
  const std::string log = BuildLog(program, id);
  api.clReleaseProgram(program);
  TVM_FFI_THROW(RuntimeError) << "OpenCL: " << ErrorName(code) << " while building " << what
                              << " for " << device->info().name << ":\n"
                              << log;
  TVM_FFI_UNREACHABLE();
}

/// What the driver made of a program; empty where it does not give it.
std::string Binary(cl_program program) {
  const ClApi& api = Api();
  size_t size = 0;
  if (api.clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(size), &size, nullptr) !=
      CL_SUCCESS) {
    return "";
  }
  std::string binary(size, '\0');
  auto* bytes = reinterpret_cast<unsigned char*>(&binary[0]);
  if (api.clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(bytes), &bytes, nullptr) !=
      CL_SUCCESS) {
    return "";
  }
  return binary;
}

}  // namespace

std::vector<ImageArgument> ImagesOn(Device* device, const std::string& source, const std::string& kernel) {
  std::vector<ImageArgument> found = files::ImageArguments(source, kernel);
  const uint64_t most = device->image_buffer_max();
  if (!files::HasImages(Api(), device->context(), found, most)) found.clear();
  return found;
}

cl_program BuiltProgram(Device* device, const std::string& text,
                        const std::vector<ImageArgument>& images, const std::string& what) {
  const std::string source = images.empty() ? text : files::kWithImages + text;
  const std::string folder = Folder();
  if (folder.empty()) return FromSource(device, source, what);
  const std::string key = Key(device->info(), source);
  const std::string path = folder + "/" + files::Hex(files::Hash(key)) + ".bin";
  const std::string kept = files::ReadCache(path, key);
  if (!kept.empty()) {
    if (cl_program program = FromBinary(device, kept)) return program;
  }
  cl_program program = FromSource(device, source, what);
  const std::string binary = Binary(program);
  if (!binary.empty()) files::WriteCache(folder, path, key, binary);
  return program;
}

}  // namespace opencl
}  // namespace autotune
