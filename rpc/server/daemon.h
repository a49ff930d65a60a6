// SPDX-License-Identifier: Apache-2.0
//
// The server as a process that outlives the shell that started it, found again by its folder.
#ifndef AUTOTUNE_SERVER_DAEMON_H_
#define AUTOTUNE_SERVER_DAEMON_H_

#include <sys/types.h>

#include <string>

#include "sockets.h"

namespace autotune {
namespace server {

/// The lock that a running server holds on its folder; it goes with the process, however that ends.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder) : path_(folder + "/server.lock") {}

  /// Takes the lock; false where a server has it already.
  bool Take();
  /// Writes this process and its port into the lock's file; false where the disk is full.
  bool Publish(int port);
  /// The process that holds it, and its port; 0 where none does.
  pid_t Holder(int* port) const;

 private:
  std::string path_;
  Descriptor held_;
};

/// Goes on in a child without a terminal, whose output goes to a log file. The parent waits until the
/// child calls `Ready`, then exits with its word: 0, or 1 with the message on stderr.
class Daemon {
 public:
  void Begin(const std::string& log_file);
  /// Tells the parent that the server serves (an empty message) or why it does not.
  void Ready(const std::string& message);

 private:
  Descriptor word_;
};

}  // namespace server
}  // namespace autotune

#endif  // AUTOTUNE_SERVER_DAEMON_H_
