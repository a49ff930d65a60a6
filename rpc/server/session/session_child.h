// SPDX-License-Identifier: Apache-2.0
//
// The only part of the server that calls TVM: what a session's child does.
#ifndef AUTOTUNE_SERVER_SESSION_CHILD_H_
#define AUTOTUNE_SERVER_SESSION_CHILD_H_

#include <sys/types.h>

#include <string>

#include "../options.h"

namespace autotune {
namespace server {

struct SharedPage;

/// Serves TVM's RPC over the connection until the client closes it, then ends the process.
///
/// The client finds these functions beside TVM's own:
///   autotune.server.info() -> str            what the server is, as JSON
///   autotune.server.conditions() -> str      heat, clocks and cores now, as JSON; see conditions.h
///   autotune.server.bind_threads(str, int) -> str
///       binds the thread pool to a list of cores ("4-7"; empty: all) with so many threads (0: one a
///       core); returns the cores that the system really gave
///   autotune.server.candidate(str)           names what runs next, for the memory of crashes
///   autotune.server.crashes() -> str         a JSON list of what killed sessions, up to this one
[[noreturn]] void ServeInChild(const Options& options, int connection, const std::string& folder,
                               pid_t server, SharedPage* page, const std::string& crashes);

/// Sends an error to the client in the place of an answer.
void TellClient(int connection, const std::string& message);

}  // namespace server
}  // namespace autotune

#endif  // AUTOTUNE_SERVER_SESSION_CHILD_H_
