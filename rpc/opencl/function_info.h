// SPDX-License-Identifier: Apache-2.0
//
// What the code generator says about one kernel: its arguments and how it is launched.
#ifndef AUTOTUNE_OPENCL_FUNCTION_INFO_H_
#define AUTOTUNE_OPENCL_FUNCTION_INFO_H_

#include <dlpack/dlpack.h>
#include <tvm/ffi/object.h>

#include <cstdint>
#include <string>
#include <vector>

#include "byte_stream.h"

namespace autotune {
namespace opencl {

/// Our own copy of TVM's runtime.FunctionInfo, whose C++ header the wheel does not ship.
struct FunctionInfo {
  std::string name;
  std::vector<DLDataType> arg_types;
  std::vector<std::string> launch_param_tags;
  std::vector<int32_t> arg_extra_tags;  ///< Kept only so that saving gives back what was loaded.

  /// Reads TVM's object by the names of its fields.
  static FunctionInfo FromObject(const tvm::ffi::ObjectRef& object);
  static FunctionInfo Read(ByteReader* reader);
  void Write(ByteWriter* writer) const;
};

}  // namespace opencl
}  // namespace autotune

#endif  // AUTOTUNE_OPENCL_FUNCTION_INFO_H_
