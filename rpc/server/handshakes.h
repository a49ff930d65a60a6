// SPDX-License-Identifier: Apache-2.0
//
// Clients at the door: what they say first is read side by side, so that silent ones keep nobody out.
#ifndef AUTOTUNE_SERVER_HANDSHAKES_H_
#define AUTOTUNE_SERVER_HANDSHAKES_H_

#include <poll.h>

#include <cstdint>
#include <string>
#include <vector>

#include "sockets.h"

namespace autotune {
namespace server {

/// A client that has said what it wants.
struct Client {
  Descriptor connection;
  /// The key that it names: "client:KEY".
  std::string key;
  /// Seconds that it asks for; 0 where it leaves that to the server.
  double timeout_s = 0;
  /// When it was heard.
  double since = 0;
};

/// Whether the other end has closed the connection.
bool HasGone(int connection);

class Handshakes {
 public:
  /// Accepts what waits at the listener, which must not block. Of too many silent clients the oldest of
  /// one address make room.
  void Accept(int listener);

  /// Adds what is waited for.
  void Watch(std::vector<pollfd>* watched) const;

  /// Reads what has come; drops clients that are late, have gone or talk nonsense. Returns those that have
  /// said all.
  std::vector<Client> Read();

 private:
  struct Silent {
    Descriptor connection;
    uint32_t peer;
    double until;
    std::string heard;
  };
  enum class State { kMore, kDone, kDrop };

  static State Hear(Silent* one);
  void MakeRoom(uint32_t peer);

  std::vector<Silent> silent_;  // the oldest first
};

}  // namespace server
}  // namespace autotune

#endif  // AUTOTUNE_SERVER_HANDSHAKES_H_
