// SPDX-License-Identifier: Apache-2.0
//
// Handshakes of new clients. They are read concurrently, so that a client that sends nothing blocks no other.
#ifndef AUTOTUNE_SERVER_HANDSHAKES_H_
#define AUTOTUNE_SERVER_HANDSHAKES_H_

#include <poll.h>

#include <cstdint>
#include <string>
#include <vector>

#include "sockets.h"

namespace autotune {
namespace server {

/// A client whose handshake is complete.
struct Client {
  Descriptor connection;
  /// The key that it sent: "client:KEY".
  std::string key;
  /// The session's time limit in seconds, as requested; 0 if the server decides.
  double timeout_s = 0;
  /// When the handshake was complete.
  double since = 0;
};

/// Whether the other end has closed the connection.
bool HasGone(int connection);

class Handshakes {
 public:
  /// Accepts connections that wait at the listener, which must not block. If there are too many
  /// pending handshakes, the oldest one of an address is dropped.
  void Accept(int listener);

  /// Adds the pending connections to those that poll() waits for.
  void Watch(std::vector<pollfd>* watched) const;

  /// Reads what has arrived. Drops clients that are late, have disconnected or break the protocol. Returns
  /// the clients whose handshakes are complete.
  std::vector<Client> Read();

 private:
  struct Pending {
    Descriptor connection;
    uint32_t peer;
    double until;
    std::string received;
  };
  enum class State { kMore, kDone, kDrop };

  static State Receive(Pending* one);
  void MakeRoom(uint32_t peer);

  std::vector<Pending> pending_;  // the oldest first
};

}  // namespace server
}  // namespace autotune

#endif  // AUTOTUNE_SERVER_HANDSHAKES_H_
