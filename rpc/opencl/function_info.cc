// SPDX-License-Identifier: Apache-2.0
#include "function_info.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/reflection/accessor.h>
#include <tvm/ffi/string.h>

namespace autotune {
namespace opencl {
namespace {

namespace ffi = tvm::ffi;

template <typename T>
T Field(const ffi::ObjectRef& object, const char* name) {
  return ffi::reflection::FieldGetter("runtime.FunctionInfo", name)(object).cast<T>();
}

}  // namespace

FunctionInfo FunctionInfo::FromObject(const ffi::ObjectRef& object) {
  FunctionInfo info;
  info.name = Field<ffi::String>(object, "name");
  for (const DLDataType& type : Field<ffi::Array<DLDataType>>(object, "arg_types")) {
    info.arg_types.push_back(type);
  }
  for (const ffi::String& tag : Field<ffi::Array<ffi::String>>(object, "launch_param_tags")) {
    info.launch_param_tags.push_back(tag);
  }
  for (const int64_t tag : Field<ffi::Array<int64_t>>(object, "arg_extra_tags")) {
    info.arg_extra_tags.push_back(static_cast<int32_t>(tag));
  }
  return info;
}

FunctionInfo FunctionInfo::Read(ByteReader* reader) {
  FunctionInfo info;
  info.name = reader->Text();
  for (size_t left = reader->Count(); left > 0; --left) {
    DLDataType type;
    type.code = reader->Number<uint8_t>();
    type.bits = reader->Number<uint8_t>();
    type.lanes = reader->Number<uint16_t>();
    info.arg_types.push_back(type);
  }
  for (size_t left = reader->Count(); left > 0; --left) {
    info.launch_param_tags.push_back(reader->Text());
  }
  for (size_t left = reader->Count(); left > 0; --left) {
    info.arg_extra_tags.push_back(reader->Number<int32_t>());
  }
  return info;
}

void FunctionInfo::Write(ByteWriter* writer) const {
  writer->Text(name);
  writer->Count(arg_types.size());
  for (const DLDataType& type : arg_types) {
    writer->Number<uint8_t>(type.code);
    writer->Number<uint8_t>(type.bits);
    writer->Number<uint16_t>(type.lanes);
  }
  writer->Count(launch_param_tags.size());
  for (const std::string& tag : launch_param_tags) writer->Text(tag);
  writer->Count(arg_extra_tags.size());
  for (const int32_t tag : arg_extra_tags) writer->Number<int32_t>(tag);
}

}  // namespace opencl
}  // namespace autotune
