// SPDX-License-Identifier: Apache-2.0
//
// One client's session: a child process that may crash, hang or be killed without harm to the server.
#ifndef AUTOTUNE_SERVER_SESSION_H_
#define AUTOTUNE_SERVER_SESSION_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "../options.h"
#include "../sockets.h"

namespace autotune {
namespace server {

/// What child and server both see. It lies in a file, so that a server that was taken down by a
/// candidate, or whose device was, can tell of it when it is started again.
struct SharedPage {
  std::atomic<uint64_t> candidates;  // begun since the server started
  uint64_t session;                  // the one that runs now
  char candidate[256];               // the one that runs now; empty between them
};

/// Maps the file, which children inherit, with what an earlier server has left in it. Throws
/// std::runtime_error.
SharedPage* MapSharedPage(const std::string& path);

/// Names what runs now, on disk before it runs: it may take the device down. Empty: nothing.
void SetCandidate(SharedPage* page, const std::string& name);

/// How a session ended.
struct SessionEnd {
  bool ended = false;
  /// Empty where it ended in order; else what killed it, such as "SIGSEGV" or "timeout".
  std::string cause;
};

class Session {
 public:
  Session() = default;

  /// Forks the child that serves the connection, in a folder of its own. Throws std::runtime_error.
  void Start(const Options& options, uint64_t number, Descriptor connection, double timeout_s,
             SharedPage* page, const std::string& crashes);

  bool running() const { return pid_ > 0; }
  uint64_t number() const { return number_; }

  /// Looks after the child: reaps it when it ended, kills it when its time is over or its client has
  /// gone. A child that does not die of SIGKILL hangs in a driver; it is given up, and its end says so.
  SessionEnd Check();

  /// Kills the child now; the session's end will have this cause.
  void Kill(const std::string& cause);

 private:
  SessionEnd Finish(const std::string& cause);

  pid_t pid_ = -1;
  uint64_t number_ = 0;
  double timeout_s_ = 0;
  double deadline_ = 0;
  double killed_at_ = 0;
  double client_gone_at_ = 0;
  std::string kill_cause_;
  Descriptor connection_;
  std::string folder_;
};

}  // namespace server
}  // namespace autotune

#endif  // AUTOTUNE_SERVER_SESSION_H_
