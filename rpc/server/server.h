// SPDX-License-Identifier: Apache-2.0
//
// The server's loop: one thread, one session at a time.
#ifndef AUTOTUNE_SERVER_SERVER_H_
#define AUTOTUNE_SERVER_SERVER_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "session/crash_memory.h"
#include "handshakes.h"
#include "options.h"
#include "session/session.h"
#include "sockets.h"
#include "tracker_link.h"

namespace autotune {
namespace server {

class Server {
 public:
  /// Listens at once. Throws std::runtime_error where that is impossible.
  explicit Server(Options options);

  int port() const { return options_.port; }

  /// Serves until SIGTERM, SIGINT or SIGHUP.
  void Run();

 private:
  void HandleSession();
  void HandleTracker();
  /// Reads handshakes, and begins a session with the first that has the key when its turn has come.
  void HandleClients(bool connecting);
  /// False where another server of the device (one a cluster) has a session.
  bool TakeDevice();
  void Begin(Client client);
  void NewMatchKey();
  std::string InfoJson() const;

  Options options_;
  Descriptor listener_;
  TrackerLink tracker_;
  CrashMemory crashes_;
  SharedPage* page_;
  Session session_;
  Handshakes handshakes_;
  std::vector<Client> clients_;  // that have the key, and wait for their session
  Descriptor device_lock_;
  std::mt19937_64 random_;
  std::string match_key_;
  bool offered_ = false;
  double taken_since_ = 0;
  double next_notice_ = 0;
  std::string last_info_;
  uint64_t sessions_ = 0;
};

}  // namespace server
}  // namespace autotune

#endif  // AUTOTUNE_SERVER_SERVER_H_
