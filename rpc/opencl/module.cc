// SPDX-License-Identifier: Apache-2.0
#include "module.h"

#include <tvm/ffi/function.h>
#include <tvm/ffi/memory.h>

#include "byte_stream.h"
#include "program_cache.h"

namespace autotune {
namespace opencl {
namespace {

namespace ffi = tvm::ffi;

// TVM writes this before each kernel of a source text, followed by the kernel's name.
constexpr const char* kDelimiter = "// Function: ";

/// The part of the text that belongs to one kernel. Each part stands alone, so a kernel is compiled
/// without its neighbours: a failing one does not take the others with it.
std::string SourceOf(const std::string& code, const std::string& name) {
  const std::string delimiter(kDelimiter);
  size_t begin = code.find(delimiter);
  while (begin != std::string::npos) {
    begin += delimiter.size();
    const size_t line_end = code.find('\n', begin);
    const size_t next = code.find(delimiter, begin);
    if (line_end != std::string::npos && code.substr(begin, line_end - begin) == name) {
      return code.substr(line_end + 1,
                         next == std::string::npos ? next : next - line_end - 1);
    }
    begin = next;
  }
  TVM_FFI_THROW(RuntimeError) << "the OpenCL source has no kernel '" << name << "' after a '"
                              << delimiter << "' line";
  TVM_FFI_UNREACHABLE();
}

}  // namespace

ClModule::ClModule(std::string format, Functions functions, std::string code,
                   ffi::Map<ffi::String, ffi::String> inspectable)
    : format_(std::move(format)),
      functions_(std::move(functions)),
      code_(std::move(code)),
      inspectable_(std::move(inspectable)) {}

ffi::Optional<ffi::Function> ClModule::GetFunction(const ffi::String& name) {
  const std::string wanted = name;
  for (const auto& [key, info] : functions_) {
    if (key != wanted) continue;
    std::shared_ptr<Kernel> kernel = KernelFor(key, info);
    // The function owns its kernel, and so outlives this module if need be.
    return ffi::Function::FromPacked([kernel](ffi::PackedArgs args, ffi::Any*) {
      kernel->Launch(reinterpret_cast<const TVMFFIAny*>(args.data()), args.size());
    });
  }
  return std::nullopt;
}

std::shared_ptr<Kernel> ClModule::KernelFor(const std::string& name, const FunctionInfo& info) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<Kernel>& kernel = kernels_[name];
  if (kernel == nullptr) {
    if (format_ != "cl") {
      TVM_FFI_THROW(RuntimeError) << "OpenCL kernel " << name << " is in format '" << format_
                                  << "', but only source ('cl') can be run";
    }
    FunctionInfo named = info;
    named.name = name;
    kernel = std::make_shared<Kernel>(named, SourceOf(code_, name));
  }
  return kernel;
}

ffi::Bytes ClModule::SaveToBytes() const {
  ByteWriter writer;
  writer.Text(format_);
  writer.Count(functions_.size());
  for (const auto& [key, info] : functions_) {
    writer.Text(key);
    info.Write(&writer);
  }
  writer.Text(code_);
  return ffi::Bytes(writer.Take());
}

ffi::String ClModule::InspectSource(const ffi::String& format) const {
  const std::string wanted = format.empty() ? "cl" : std::string(format);
  const auto it = inspectable_.find(ffi::String(wanted));
  if (it != inspectable_.end()) return (*it).second;
  return wanted == format_ ? ffi::String(code_) : ffi::String();
}

ffi::Module CreateModule(ffi::Bytes code, ffi::String format,
                         ffi::Map<ffi::String, ffi::ObjectRef> functions,
                         ffi::Map<ffi::String, ffi::String> inspectable) {
  ClModule::Functions own;
  for (const auto& [name, info] : functions) {
    own.emplace_back(name, FunctionInfo::FromObject(info));
  }
  return ffi::Module(ffi::make_object<ClModule>(std::string(format), std::move(own),
                                                std::string(code.data(), code.size()),
                                                std::move(inspectable)));
}

void CompilePrograms(const std::string& code) {
  const std::string delimiter(kDelimiter);
  Device& device = GetDevice(0);
  for (size_t at = code.find(delimiter); at != std::string::npos;
       at = code.find(delimiter, at + delimiter.size())) {
    const size_t begin = at + delimiter.size();
    const std::string name = code.substr(begin, code.find('\n', begin) - begin);
    const std::string source = SourceOf(code, name);
    const ImageArguments images = ImagesOn(&device, source, name);
    Api().clReleaseProgram(BuiltProgram(&device, source, images, "kernel " + name));
  }
}

ffi::Module LoadModule(ffi::Bytes bytes) {
  ByteReader reader(bytes.data(), bytes.size());
  std::string format = reader.Text();
  ClModule::Functions functions;
  for (size_t left = reader.Count(); left > 0; --left) {
    std::string name = reader.Text();
    functions.emplace_back(std::move(name), FunctionInfo::Read(&reader));
  }
  std::string code = reader.Text();
  return ffi::Module(ffi::make_object<ClModule>(std::move(format), std::move(functions),
                                                std::move(code),
                                                ffi::Map<ffi::String, ffi::String>()));
}

}  // namespace opencl
}  // namespace autotune
