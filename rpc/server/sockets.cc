// SPDX-License-Identifier: Apache-2.0
#include "sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace autotune {
namespace server {
namespace {

constexpr int kBacklog = 128;

/// Waits until the descriptor is ready; false at the deadline.
bool Wait(int fd, short events, double deadline) {
  for (;;) {
    const double left = deadline - Now();
    if (left <= 0) return false;
    pollfd waited{fd, events, 0};
    const int ready = poll(&waited, 1, static_cast<int>(std::ceil(std::min(left, 60.0) * 1e3)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

std::runtime_error Failure(const std::string& what) {
  return std::runtime_error(what + ": " + std::strerror(errno));
}

}  // namespace

void Descriptor::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Descriptor Listen(const std::string& address, int* port) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<uint16_t>(*port));
  if (inet_pton(AF_INET, address.c_str(), &where.sin_addr) != 1) {
    throw std::runtime_error("'" + address + "' is not an IPv4 address");
  }
  Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) throw Failure("socket");
  const int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  auto* any = reinterpret_cast<sockaddr*>(&where);
  if (bind(listener.get(), any, sizeof(where)) != 0) {
    throw Failure("cannot listen on " + address + ":" + std::to_string(*port));
  }
  if (listen(listener.get(), kBacklog) != 0) throw Failure("listen");
  socklen_t size = sizeof(where);
  getsockname(listener.get(), any, &size);
  *port = ntohs(where.sin_port);
  return listener;
}

Descriptor Connect(const std::string& host, int port, double timeout_s, std::string* why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found)) {
    *why = gai_strerror(code);
    return Descriptor();
  }
  const double deadline = Now() + timeout_s;
  Descriptor connected;
  for (const addrinfo* one = found; one != nullptr && !connected.valid(); one = one->ai_next) {
    Descriptor tried(socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!tried.valid()) continue;
    int error = 0;
    if (connect(tried.get(), one->ai_addr, one->ai_addrlen) != 0) {
      error = errno;
      if (error == EINPROGRESS) {
        socklen_t size = sizeof(error);
        error = ETIMEDOUT;
        if (Wait(tried.get(), POLLOUT, deadline)) {
          getsockopt(tried.get(), SOL_SOCKET, SO_ERROR, &error, &size);
        }
      }
    }
    if (error != 0) {
      *why = std::strerror(error);
      continue;
    }
    fcntl(tried.get(), F_SETFL, fcntl(tried.get(), F_GETFL) & ~O_NONBLOCK);
    const int on = 1;
    setsockopt(tried.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    connected = std::move(tried);
  }
  freeaddrinfo(found);
  return connected;
}

bool SendAll(int fd, const void* data, size_t size, double timeout_s) {
  const double deadline = Now() + timeout_s;
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    if (!Wait(fd, POLLOUT, deadline)) return false;
    const ssize_t sent = send(fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return false;
    }
    at += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

bool ReceiveAll(int fd, void* data, size_t size, double timeout_s) {
  const double deadline = Now() + timeout_s;
  char* at = static_cast<char*>(data);
  while (size > 0) {
    if (!Wait(fd, POLLIN, deadline)) return false;
    const ssize_t got = recv(fd, at, size, MSG_DONTWAIT);
    if (got == 0) return false;
    if (got < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return false;
    }
    at += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

bool SendInt(int fd, int32_t value, double timeout_s) {
  return SendAll(fd, &value, sizeof(value), timeout_s);
}

bool ReceiveInt(int fd, int32_t* value, double timeout_s) {
  return ReceiveAll(fd, value, sizeof(*value), timeout_s);
}

}  // namespace server
}  // namespace autotune
