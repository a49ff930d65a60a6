// SPDX-License-Identifier: Apache-2.0
//
// The connection of a session, already made by the server. Connections to elsewhere are refused: a
// device that is lent out does not reach into its owner's network.
#ifndef AUTOTUNE_RUNTIME_SHIMS_SUPPORT_SOCKET_H_
#define AUTOTUNE_RUNTIME_SHIMS_SUPPORT_SOCKET_H_

#include <sys/socket.h>
#include <sys/types.h>
#include <tvm/ffi/error.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace tvm {
namespace support {

class SockAddr {
 public:
  SockAddr(const char* host, int port) : text_(std::string(host) + ":" + std::to_string(port)) {}
  int ss_family() const { return AF_INET; }
  std::string AsString() const { return text_ + " from a device server"; }

 private:
  std::string text_;
};

class Socket {
 public:
  using SockType = int;

  Socket() = default;
  explicit Socket(SockType socket) : socket_(socket) {}

  bool BadSocket() const {
    int error = 0;
    socklen_t size = sizeof(error);
    return socket_ < 0 || getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size) != 0;
  }
  void Close() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }
  [[noreturn]] static void Error(const char* what) {
    TVM_FFI_THROW(InternalError) << what << ": " << std::strerror(errno);
    TVM_FFI_UNREACHABLE();
  }

 protected:
  SockType socket_ = -1;
};

class TCPSocket : public Socket {
 public:
  using Socket::Socket;

  void Create(int) {}
  bool Connect(const SockAddr&) { return false; }

  /// Both return as the system calls do, which go on after a signal.
  ssize_t Send(const void* data, size_t size) {
    return Again([&] { return send(socket_, data, size, MSG_NOSIGNAL); });
  }
  ssize_t Recv(void* data, size_t size) {
    return Again([&] { return recv(socket_, data, size, 0); });
  }

  /// Both return how many bytes were moved before the connection ended.
  size_t SendAll(const void* data, size_t size) {
    const char* from = static_cast<const char*>(data);
    return All(size, [&](size_t done) { return Send(from + done, size - done); });
  }
  size_t RecvAll(void* data, size_t size) {
    char* to = static_cast<char*>(data);
    return All(size, [&](size_t done) { return Recv(to + done, size - done); });
  }

 private:
  template <typename Call>
  static ssize_t Again(Call call) {
    for (;;) {
      const ssize_t moved = call();
      if (moved >= 0 || errno != EINTR) return moved;
    }
  }
  template <typename Move>
  static size_t All(size_t size, Move move) {
    size_t done = 0;
    while (done < size) {
      const ssize_t moved = move(done);
      if (moved <= 0) break;
      done += static_cast<size_t>(moved);
    }
    return done;
  }
};

}  // namespace support
}  // namespace tvm

#endif  // AUTOTUNE_RUNTIME_SHIMS_SUPPORT_SOCKET_H_
