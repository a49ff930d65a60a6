// SPDX-License-Identifier: Apache-2.0
#include "daemon.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace autotune {
namespace server {

bool FolderLock::Take() {
  Descriptor file(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.valid() || flock(file.get(), LOCK_EX | LOCK_NB) != 0) return false;
  held_ = std::move(file);
  return true;
}

bool FolderLock::Publish(int port) {
  const std::string text = std::to_string(getpid()) + " " + std::to_string(port) + "\n";
  return ftruncate(held_.get(), 0) == 0 &&
         pwrite(held_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
}

pid_t FolderLock::Holder(int* port) const {
  Descriptor file(open(path_.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.valid() || flock(file.get(), LOCK_EX | LOCK_NB) == 0) return 0;
  char text[64] = "";
  const ssize_t size = pread(file.get(), text, sizeof(text) - 1, 0);
  int pid = 0;
  if (size <= 0 || std::sscanf(text, "%d %d", &pid, port) != 2) return 0;
  return pid;
}

void Daemon::Begin(const std::string& log_file) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    std::perror("autotune_server: pipe");
    std::exit(1);
  }
  Descriptor read_end(ends[0]);
  word_ = Descriptor(ends[1]);
  const pid_t child = fork();
  if (child < 0) {
    std::perror("autotune_server: fork");
    std::exit(1);
  }
  if (child > 0) {
    word_.Close();
    char message[512] = "";
    ssize_t size = 0;
    while (size < static_cast<ssize_t>(sizeof(message)) - 1) {
      const ssize_t got = read(read_end.get(), message + size, sizeof(message) - 1 - size);
      if (got <= 0) break;
      size += got;
    }
    // "ok" and the port; anything else, or nothing, is a failure.
    const bool ok = size > 2 && message[0] == 'o' && message[1] == 'k';
    std::fprintf(ok ? stdout : stderr, "%s\n", size > 0 ? message : "autotune_server: it died");
    std::fflush(nullptr);
    _exit(ok ? 0 : 1);
  }
  setsid();
  const int nothing = open("/dev/null", O_RDWR);
  const int log = open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(nothing, STDIN_FILENO);
  dup2(log >= 0 ? log : nothing, STDOUT_FILENO);
  dup2(log >= 0 ? log : nothing, STDERR_FILENO);
  if (nothing > STDERR_FILENO) close(nothing);
  if (log > STDERR_FILENO) close(log);
}

void Daemon::Ready(const std::string& message) {
  if (!word_.valid()) return;
  const ssize_t written = write(word_.get(), message.data(), message.size());
  (void)written;  // The parent may have been killed; the server serves all the same.
  word_.Close();
}

}  // namespace server
}  // namespace autotune
