// SPDX-License-Identifier: Apache-2.0
//
// TVM's binary layout: little-endian numbers, and a 64-bit count before text, lists and maps.
#ifndef AUTOTUNE_OPENCL_BYTE_STREAM_H_
#define AUTOTUNE_OPENCL_BYTE_STREAM_H_

#include <tvm/ffi/error.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace autotune {
namespace opencl {

#if defined(__BYTE_ORDER__)
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "numbers are written as they lie in memory");
#endif

class ByteWriter {
 public:
  template <typename T>
  void Number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void Count(size_t count) { Number(static_cast<uint64_t>(count)); }
  void Text(const std::string& text) {
    Count(text.size());
    bytes_ += text;
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  ByteReader(const char* data, size_t size) : next_(data), left_(size) {}

  template <typename T>
  T Number() {
    T value;
    Need(sizeof(value));
    std::memcpy(&value, next_, sizeof(value));
    Skip(sizeof(value));
    return value;
  }
  /// A count of things that take at least one byte each, so more than the bytes left is damage.
  size_t Count() {
    const auto count = Number<uint64_t>();
    Need(count);
    return static_cast<size_t>(count);
  }
  std::string Text() {
    const size_t size = Count();
    std::string text(next_, size);
    Skip(size);
    return text;
  }

 private:
  void Need(uint64_t count) const {
    if (count > left_) TVM_FFI_THROW(ValueError) << "the bytes of an OpenCL module end too early";
  }
  void Skip(size_t count) {
    next_ += count;
    left_ -= count;
  }

  const char* next_;
  size_t left_;
};

}  // namespace opencl
}  // namespace autotune

#endif  // AUTOTUNE_OPENCL_BYTE_STREAM_H_
