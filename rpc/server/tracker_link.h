// SPDX-License-Identifier: Apache-2.0
//
// The server's side of TVM's tracker protocol: JSON messages with a length before them, one answer
// to each.
#ifndef AUTOTUNE_SERVER_TRACKER_LINK_H_
#define AUTOTUNE_SERVER_TRACKER_LINK_H_

#include <string>

#include "sockets.h"

namespace autotune {
namespace server {

/// A connection to a tracker, made again by itself after it was lost.
class TrackerLink {
 public:
  TrackerLink(std::string host, int port) : host_(std::move(host)), port_(port) {}

  /// Connects if there is no connection and it is time to try again. True where there is one.
  bool Connected();

  /// Offers a session under a key: the tracker hands out where and with which match key.
  bool Offer(const std::string& key, const std::string& public_host, int public_port,
             const std::string& match_key);

  /// Tells the tracker about the device: a JSON object with "key" and "addr".
  bool Inform(const std::string& info);

  /// Whether the offer still waits at the tracker: false when a client has taken it.
  bool StillOffered(const std::string& match_key, bool* offered);

  /// For poll(): readable means that the tracker has gone, since nothing is read here in between.
  int descriptor() const { return socket_.get(); }
  void Drop();

 private:
  bool Ask(const std::string& message, std::string* answer);

  std::string host_;
  int port_;
  Descriptor socket_;
  double retry_at_ = 0;
  double retry_after_s_ = 0;
};

}  // namespace server
}  // namespace autotune

#endif  // AUTOTUNE_SERVER_TRACKER_LINK_H_
