// SPDX-License-Identifier: Apache-2.0
#ifndef AUTOTUNE_RUNTIME_SHIMS_SUPPORT_BASE64_H_
#define AUTOTUNE_RUNTIME_SHIMS_SUPPORT_BASE64_H_

#include <tvm/ffi/extra/base64.h>
#include <tvm/support/io.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace tvm {
namespace support {

/// Collects bytes, and writes them as text when it is told that there are no more.
class Base64OutStream : public Stream {
 public:
  explicit Base64OutStream(Stream* text) : text_(text) {}

  using Stream::Read;
  using Stream::Write;
  size_t Read(void*, size_t) final { return 0; }
  size_t Write(const void* data, size_t size) final {
    bytes_.append(static_cast<const char*>(data), size);
    return size;
  }
  void Finish() {
    const ffi::String encoded = ffi::Base64Encode(TVMFFIByteArray{bytes_.data(), bytes_.size()});
    text_->Write(static_cast<const void*>(encoded.data()), encoded.size());
  }

 private:
  Stream* text_;
  std::string bytes_;
};

class Base64InStream : public Stream {
 public:
  explicit Base64InStream(Stream* text) : text_(text) {}

  /// Reads the whole text; comes before the first Read.
  void InitPosition() {
    std::string encoded;
    char part[4096];
    while (const size_t got = text_->Read(static_cast<void*>(part), sizeof(part))) {
      encoded.append(part, got);
    }
    bytes_ = ffi::Base64Decode(TVMFFIByteArray{encoded.data(), encoded.size()});
  }

  using Stream::Read;
  using Stream::Write;
  size_t Read(void* data, size_t size) final {
    size = std::min(size, bytes_.size() - next_);
    if (size > 0) std::memcpy(data, bytes_.data() + next_, size);
    next_ += size;
    return size;
  }
  size_t Write(const void*, size_t) final { return 0; }

 private:
  Stream* text_;
  ffi::Bytes bytes_;
  size_t next_ = 0;
};

}  // namespace support
}  // namespace tvm

#endif  // AUTOTUNE_RUNTIME_SHIMS_SUPPORT_BASE64_H_
