// SPDX-License-Identifier: Apache-2.0
//
// What TVM's runtime reads from and writes to. The wheel ships the runtime's sources without this
// header; this one was written for them from how they use it.
#ifndef AUTOTUNE_RUNTIME_SHIMS_TVM_SUPPORT_IO_H_
#define AUTOTUNE_RUNTIME_SHIMS_TVM_SUPPORT_IO_H_

#include <cstddef>

namespace tvm {
namespace support {

template <typename T, typename Enable = void>
struct Serializer;

class Stream {
 public:
  virtual ~Stream() = default;
  /// Both return how many bytes were moved.
  virtual size_t Read(void* data, size_t size) = 0;
  virtual size_t Write(const void* data, size_t size) = 0;

  /// Both tell whether the value was there.
  template <typename T>
  bool Read(T* value) {
    return Serializer<T>::Read(this, value);
  }
  template <typename T>
  bool ReadArray(T* values, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      if (!Read(values + i)) return false;
    }
    return true;
  }

  template <typename T>
  void Write(const T& value) {
    Serializer<T>::Write(this, value);
  }
  template <typename T>
  void WriteArray(const T* values, size_t count) {
    for (size_t i = 0; i < count; ++i) Write(values[i]);
  }
};

}  // namespace support
}  // namespace tvm

#include <tvm/support/serializer.h>

#endif  // AUTOTUNE_RUNTIME_SHIMS_TVM_SUPPORT_IO_H_
