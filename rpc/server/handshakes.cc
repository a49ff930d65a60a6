// SPDX-License-Identifier: Apache-2.0
#include "handshakes.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include "protocol.h"

namespace autotune {
namespace server {
namespace {

constexpr size_t kHead = 2 * sizeof(int32_t);
constexpr int32_t kLongestKey = 4096;
// Clients send all of it at once.
constexpr double kHandshakeWithinS = 3;
constexpr size_t kMostOfAPeer = 32;
constexpr size_t kMostPending = 64;
constexpr int kMostAccepted = 16;  // in one call, so that the loop serves others in between

int32_t NumberAt(const std::string& text, size_t at) {
  int32_t number = 0;
  std::memcpy(&number, text.data() + at, sizeof(number));
  return number;
}

/// Parses the words after the head. Returns false if the time limit is not a number.
bool Parse(const std::string& text, Client* client) {
  std::istringstream words(text);
  words >> client->key;
  const std::string option = "-timeout=";
  for (std::string word; words >> word;) {
    if (word.compare(0, option.size(), option) != 0) continue;
    try {
      client->timeout_s = std::stod(word.substr(option.size()));
    } catch (const std::exception&) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool HasGone(int connection) {
  pollfd watched{connection, POLLRDHUP, 0};
  return poll(&watched, 1, 0) > 0 && (watched.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void Handshakes::Accept(int listener) {
  for (int count = 0; count < kMostAccepted; ++count) {
    sockaddr_in from{};
    socklen_t size = sizeof(from);
    Descriptor connection(
        accept4(listener, reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC));
    if (!connection.valid()) {
      // No more descriptors: the oldest pending connection is closed.
      if ((errno == EMFILE || errno == ENFILE) && !pending_.empty()) pending_.erase(pending_.begin());
      return;
    }
    const uint32_t peer = from.sin_addr.s_addr;
    MakeRoom(peer);
    pending_.push_back({std::move(connection), peer, Now() + kHandshakeWithinS, ""});
  }
}

void Handshakes::MakeRoom(uint32_t peer) {
  const auto count = [this](uint32_t address) {
    return static_cast<size_t>(
        std::count_if(pending_.begin(), pending_.end(),
                      [address](const Pending& one) { return one.peer == address; }));
  };
  if (count(peer) < kMostOfAPeer && pending_.size() < kMostPending) return;
  // If the total is the limit, the address with the most pending handshakes loses one.
  uint32_t busiest = peer;
  if (count(peer) < kMostOfAPeer) {
    for (const Pending& one : pending_) {
      if (count(one.peer) > count(busiest)) busiest = one.peer;
    }
  }
  pending_.erase(std::find_if(pending_.begin(), pending_.end(),
                             [busiest](const Pending& one) { return one.peer == busiest; }));
}

void Handshakes::Watch(std::vector<pollfd>* watched) const {
  for (const Pending& one : pending_) watched->push_back({one.connection.get(), POLLIN, 0});
}

Handshakes::State Handshakes::Receive(Pending* one) {
  for (;;) {
    // Reads the handshake only: the bytes after it belong to the session.
    size_t wanted = kHead;
    if (one->received.size() >= kHead) {
      const int32_t size = NumberAt(one->received, sizeof(int32_t));
      if (NumberAt(one->received, 0) != kMagic || size <= 0 || size > kLongestKey) return State::kDrop;
      wanted += static_cast<size_t>(size);
    }
    if (one->received.size() == wanted) return State::kDone;
    char part[512];
    const size_t most = std::min(sizeof(part), wanted - one->received.size());
    const ssize_t got = recv(one->connection.get(), part, most, MSG_DONTWAIT);
    if (got > 0) {
      one->received.append(part, static_cast<size_t>(got));
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return State::kMore;
    } else {
      return State::kDrop;
    }
  }
}

std::vector<Client> Handshakes::Read() {
  std::vector<Client> complete;
  const double now = Now();
  std::vector<Pending> left;
  for (Pending& one : pending_) {
    const State state = Receive(&one);
    if (state == State::kMore && now < one.until) left.push_back(std::move(one));
    if (state != State::kDone) continue;
    Client client;
    client.since = now;
    if (!Parse(one.received.substr(kHead), &client)) continue;
    client.connection = std::move(one.connection);
    complete.push_back(std::move(client));
  }
  pending_ = std::move(left);
  return complete;
}

}  // namespace server
}  // namespace autotune
