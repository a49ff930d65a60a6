// SPDX-License-Identifier: Apache-2.0
//
// OpenCL error codes as names: a failed launch should read CL_OUT_OF_RESOURCES, not -5.
#ifndef AUTOTUNE_OPENCL_CL_ERROR_H_
#define AUTOTUNE_OPENCL_CL_ERROR_H_

#include <string>

#include "cl_api.h"

namespace autotune {
namespace opencl {

/// "CL_INVALID_VALUE (-30)"; a code that nobody documents is "unknown OpenCL error (-1234)".
std::string ErrorName(cl_int code);

/// Throws "OpenCL: <name> in <what>" unless the code is CL_SUCCESS.
void Check(cl_int code, const char* what);
void Check(cl_int code, const std::string& what);

}  // namespace opencl
}  // namespace autotune

#endif  // AUTOTUNE_OPENCL_CL_ERROR_H_
