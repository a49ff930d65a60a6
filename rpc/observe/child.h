// SPDX-License-Identifier: Apache-2.0
#ifndef AUTOTUNE_OBSERVE_CHILD_H_
#define AUTOTUNE_OBSERVE_CHILD_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace autotune {
namespace observe {

/// What a command printed, line by line.
class Lines {
 public:
  explicit Lines(int pipe) : pipe_(pipe) {}

  int pipe() const { return pipe_; }
  bool open() const { return pipe_ >= 0; }
  /// Reads what is there, at most a pipe's worth: one who prints without end must not hold up the
  /// rest. Closes at the end of the file, with the rest as a last line.
  std::vector<std::string> Read();

 private:
  int pipe_;
  std::string rest_;
};

/// A command in a process group of its own.
struct Child {
  pid_t pid;
  Lines out;
  Lines err;
};

/// How a command ended.
struct Ended {
  int exit_code;  // 128 + number where a signal ended it
  long max_rss_kb;
  double user_s;
  double system_s;
};

/// Starts the command on the cores ("" for those that there are). Where it cannot be started, it
/// ends with 126 or 127 and a line on its stderr, as in a shell.
Child Start(const std::vector<std::string>& command, const std::string& cpus);

/// Whether the command has ended, and how.
bool Over(const Child& child, Ended* ended);

/// Sends a signal to the command and whatever it started in its group.
void Kill(const Child& child, int signal);

/// Cores that all threads of the process and its children may use together: "4-7".
std::string AllowedCpus(pid_t pid);

}  // namespace observe
}  // namespace autotune

#endif  // AUTOTUNE_OBSERVE_CHILD_H_
