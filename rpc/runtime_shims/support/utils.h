// SPDX-License-Identifier: Apache-2.0
#ifndef AUTOTUNE_RUNTIME_SHIMS_SUPPORT_UTILS_H_
#define AUTOTUNE_RUNTIME_SHIMS_SUPPORT_UTILS_H_

#include <string>

namespace tvm {
namespace support {

inline bool StartsWith(const std::string& text, const char* prefix) {
  return text.rfind(prefix, 0) == 0;
}

inline bool IsNumber(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace support
}  // namespace tvm

#endif  // AUTOTUNE_RUNTIME_SHIMS_SUPPORT_UTILS_H_
