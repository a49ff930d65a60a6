// SPDX-License-Identifier: Apache-2.0
//
// TVM's binary layout: numbers little-endian, and a 64-bit count before text and lists.
#ifndef AUTOTUNE_RUNTIME_SHIMS_TVM_SUPPORT_SERIALIZER_H_
#define AUTOTUNE_RUNTIME_SHIMS_TVM_SUPPORT_SERIALIZER_H_

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/endian.h>
#include <tvm/ffi/string.h>
#include <tvm/support/io.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tvm {
namespace support {

static_assert(TVM_FFI_LITTLE_ENDIAN, "numbers are written as they lie in memory");

/// Numbers, enumerations and plain structures.
template <typename T>
struct Serializer<T, std::enable_if_t<std::is_trivially_copyable_v<T>>> {
  static void Write(Stream* stream, const T& value) {
    stream->Write(static_cast<const void*>(&value), sizeof(T));
  }
  static bool Read(Stream* stream, T* value) {
    return stream->Read(static_cast<void*>(value), sizeof(T)) == sizeof(T);
  }
};

template <>
struct Serializer<std::string> {
  static void Write(Stream* stream, const std::string& text) {
    stream->Write(static_cast<uint64_t>(text.size()));
    stream->Write(static_cast<const void*>(text.data()), text.size());
  }
  static bool Read(Stream* stream, std::string* text) {
    uint64_t size = 0;
    if (!stream->Read(&size)) return false;
    text->resize(size);
    return stream->Read(static_cast<void*>(text->data()), size) == size;
  }
};

template <>
struct Serializer<ffi::String> {
  static void Write(Stream* stream, const ffi::String& text) {
    stream->Write(std::string(text));
  }
  static bool Read(Stream* stream, ffi::String* text) {
    std::string read;
    if (!stream->Read(&read)) return false;
    *text = ffi::String(std::move(read));
    return true;
  }
};

template <typename List, typename T>
struct ListSerializer {
  static void Write(Stream* stream, const List& list) {
    stream->Write(static_cast<uint64_t>(list.size()));
    for (const T& one : list) stream->Write(one);
  }
  static bool Read(Stream* stream, List* list) {
    uint64_t size = 0;
    if (!stream->Read(&size)) return false;
    list->clear();
    for (; size > 0; --size) {
      T one;
      if (!stream->Read(&one)) return false;
      list->push_back(std::move(one));
    }
    return true;
  }
};

template <typename T>
struct Serializer<std::vector<T>> : ListSerializer<std::vector<T>, T> {};

template <typename T>
struct Serializer<ffi::Array<T>> : ListSerializer<ffi::Array<T>, T> {};

}  // namespace support
}  // namespace tvm

#endif  // AUTOTUNE_RUNTIME_SHIMS_TVM_SUPPORT_SERIALIZER_H_
