// SPDX-License-Identifier: Apache-2.0
#ifndef AUTOTUNE_RUNTIME_SHIMS_SUPPORT_RING_BUFFER_H_
#define AUTOTUNE_RUNTIME_SHIMS_SUPPORT_RING_BUFFER_H_

#include <tvm/ffi/error.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>

namespace tvm {
namespace support {

/// A queue of bytes between a connection and what reads or writes messages. The bytes lie in one
/// piece, and move to the front when the end is reached.
class RingBuffer {
 public:
  size_t bytes_available() const { return end_ - begin_; }

  /// Room for so many bytes in all.
  void Reserve(size_t size) {
    if (size > bytes_available()) MakeRoom(size - bytes_available());
  }

  void Write(const void* data, size_t size) {
    MakeRoom(size);
    if (size > 0) std::memcpy(bytes_.get() + end_, data, size);
    end_ += size;
  }

  void Read(void* data, size_t size) {
    TVM_FFI_ICHECK_LE(size, bytes_available());
    if (size > 0) std::memcpy(data, bytes_.get() + begin_, size);
    Consume(size);
  }

  /// Takes in what `receive(char*, size_t)` brings, at most so many bytes; returns how many.
  template <typename Receive>
  size_t WriteWithCallback(Receive receive, size_t most) {
    MakeRoom(most);
    const size_t got = receive(bytes_.get() + end_, most);
    end_ += got;
    return got;
  }

  /// Gives out what `send(const char*, size_t)` takes, at most so many bytes; returns how many.
  template <typename Send>
  size_t ReadWithCallback(Send send, size_t most) {
    const size_t sent = send(bytes_.get() + begin_, std::min(most, bytes_available()));
    Consume(sent);
    return sent;
  }

 private:
  // An emptied buffer above this size is given back: a phone has better uses for a tensor's memory.
  static constexpr size_t kMostKept = size_t{1} << 20;
  static constexpr size_t kLeast = 4096;

  void MakeRoom(size_t size) {
    if (size <= capacity_ - end_) return;
    const size_t held = bytes_available();
    // Moving must leave half of the buffer free, or the next bytes would move it all again.
    if (held <= capacity_ / 2 && size <= capacity_ - held) {
      if (held > 0) std::memmove(bytes_.get(), bytes_.get() + begin_, held);
    } else {
      capacity_ = std::max(kLeast, std::max(held + size, 2 * held));
      std::unique_ptr<char[]> larger(new char[capacity_]);
      if (held > 0) std::memcpy(larger.get(), bytes_.get() + begin_, held);
      bytes_ = std::move(larger);
    }
    begin_ = 0;
    end_ = held;
  }

  void Consume(size_t size) {
    begin_ += size;
    if (begin_ != end_) return;
    begin_ = end_ = 0;
    if (capacity_ > kMostKept) {
      bytes_.reset();
      capacity_ = 0;
    }
  }

  std::unique_ptr<char[]> bytes_;
  size_t capacity_ = 0;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace support
}  // namespace tvm

#endif  // AUTOTUNE_RUNTIME_SHIMS_SUPPORT_RING_BUFFER_H_
