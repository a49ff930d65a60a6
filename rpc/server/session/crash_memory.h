// SPDX-License-Identifier: Apache-2.0
//
// What killed sessions of this server, kept on disk: the host asks for it after it has lost one, and
// a server that was restarted still knows.
#ifndef AUTOTUNE_SERVER_CRASH_MEMORY_H_
#define AUTOTUNE_SERVER_CRASH_MEMORY_H_

#include <cstdint>
#include <string>
#include <vector>

namespace autotune {
namespace server {

class CrashMemory {
 public:
  /// Reads what an earlier server has left in the file.
  explicit CrashMemory(std::string path);

  /// Remembers the end of a session: its cause ("SIGSEGV", "timeout") and what it ran then.
  void Add(uint64_t session, const std::string& cause, const std::string& candidate);

  size_t size() const { return lines_.size(); }
  /// A JSON list of objects, oldest first: all, or the last few.
  std::string Json() const { return Json(lines_.size()); }
  std::string Json(size_t last) const;

 private:
  std::string path_;
  std::vector<std::string> lines_;
};

}  // namespace server
}  // namespace autotune

#endif  // AUTOTUNE_SERVER_CRASH_MEMORY_H_
