// SPDX-License-Identifier: Apache-2.0
//
// Sockets whose every wait ends.
#ifndef AUTOTUNE_SERVER_SOCKETS_H_
#define AUTOTUNE_SERVER_SOCKETS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "../common/clock.h"

namespace autotune {
namespace server {

/// A file descriptor that is closed when it goes out of scope.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    Close();
    fd_ = other.Release();
    return *this;
  }
  ~Descriptor() { Close(); }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int Release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void Close();

 private:
  int fd_ = -1;
};

/// Listens on an address and port (0: any), without blocking; throws std::runtime_error. `port` becomes the port taken.
Descriptor Listen(const std::string& address, int* port);

/// Connects within so many seconds; invalid where that fails, with the reason in `why`.
Descriptor Connect(const std::string& host, int port, double timeout_s, std::string* why);

/// Sends or receives all bytes within so many seconds; false where the peer went away or was late.
bool SendAll(int fd, const void* data, size_t size, double timeout_s);
bool ReceiveAll(int fd, void* data, size_t size, double timeout_s);

/// Sends or receives a 32-bit number as TVM's protocols have it: little endian.
bool SendInt(int fd, int32_t value, double timeout_s);
bool ReceiveInt(int fd, int32_t* value, double timeout_s);

}  // namespace server
}  // namespace autotune

#endif  // AUTOTUNE_SERVER_SOCKETS_H_
