// SPDX-License-Identifier: Apache-2.0
#include "log.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

namespace autotune {
namespace server {

void Log(const std::string& line) {
  constexpr off_t kMostBytes = 1 << 20;
  struct stat about {};
  if (fstat(STDERR_FILENO, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > kMostBytes) {
    if (ftruncate(STDERR_FILENO, 0) == 0) lseek(STDERR_FILENO, 0, SEEK_SET);
  }
  char stamp[32] = "";
  const time_t now = time(nullptr);
  tm parts{};
  gmtime_r(&now, &parts);
  strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%SZ ", &parts);
  // One write, so that the lines of parent and child do not mix.
  const std::string whole = stamp + line + "\n";
  const ssize_t written = write(STDERR_FILENO, whole.data(), whole.size());
  (void)written;  // A full disk must not stop the server.
}

}  // namespace server
}  // namespace autotune
