// SPDX-License-Identifier: Apache-2.0
#include "session.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "folders.h"
#include "../handshakes.h"
#include "../log.h"
#include "session_child.h"

namespace autotune {
namespace server {
namespace {

constexpr double kDieWithinS = 5;
constexpr double kNoticeWithinS = 2;
constexpr const char* kClientGone = "client gone";

std::string SignalName(int number) {
  switch (number) {
    case SIGSEGV: return "SIGSEGV";
    case SIGBUS: return "SIGBUS";
    case SIGFPE: return "SIGFPE";
    case SIGILL: return "SIGILL";
    case SIGABRT: return "SIGABRT";
    case SIGTRAP: return "SIGTRAP";
    // Nobody here sends it without saying so: it comes from the system, mostly for want of memory.
    case SIGKILL: return "SIGKILL (out of memory?)";
    default: return "signal " + std::to_string(number);
  }
}

}  // namespace

SharedPage* MapSharedPage(const std::string& path) {
  Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  // Reserved now: a page that a full disk has no room for would kill whoever writes to it.
  const int failed = file.valid() ? posix_fallocate(file.get(), 0, sizeof(SharedPage)) : errno;
  void* page = failed != 0 ? MAP_FAILED
                           : mmap(nullptr, sizeof(SharedPage), PROT_READ | PROT_WRITE, MAP_SHARED,
                                  file.get(), 0);
  if (page == MAP_FAILED) {
    throw std::runtime_error(path + ": " + std::strerror(failed != 0 ? failed : errno));
  }
  auto* found = static_cast<SharedPage*>(page);
  found->candidate[sizeof(found->candidate) - 1] = '\0';
  return found;
}

void SetCandidate(SharedPage* page, const std::string& name) {
  std::strncpy(page->candidate, name.c_str(), sizeof(page->candidate) - 1);
  if (!name.empty()) msync(page, sizeof(SharedPage), MS_SYNC);
}

void Session::Start(const Options& options, uint64_t number, Descriptor connection,
                    double timeout_s, SharedPage* page, const std::string& crashes) {
  folder_ = options.folder + "/sessions/" + std::to_string(number);
  RemoveFolder(folder_);
  MakeFolders(folder_);
  SetCandidate(page, "");
  page->session = number;
  const pid_t server = getpid();
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
  if (child == 0) ServeInChild(options, connection.get(), folder_, server, page, crashes);
  setpgid(child, child);  // Here too: whichever of the two comes first.
  pid_ = child;
  number_ = number;
  timeout_s_ = timeout_s;
  deadline_ = Now() + timeout_s;
  killed_at_ = 0;
  client_gone_at_ = 0;
  connection_ = std::move(connection);
}

SessionEnd Session::Check() {
  int status = 0;
  const pid_t reaped = waitpid(pid_, &status, WNOHANG);
  if (reaped == pid_) {
    if (killed_at_ > 0) return Finish(kill_cause_);
    if (WIFSIGNALED(status)) return Finish(SignalName(WTERMSIG(status)));
    const int code = WEXITSTATUS(status);
    if (code == 0) return Finish("");
    return Finish(HasGone(connection_.get()) ? kClientGone
                                                   : "exit code " + std::to_string(code));
  }
  if (killed_at_ == 0 && Now() > deadline_) {
    Log("session " + std::to_string(number_) + ": its " + std::to_string(timeout_s_) +
        " s are over; killed");
    Kill("timeout");
    TellClient(connection_.get(), "RPCSessionTimeoutError: the session took longer than " +
                                      std::to_string(timeout_s_) + " s");
  }
  if (killed_at_ == 0 && HasGone(connection_.get())) {
    // The child sees it too, unless a kernel keeps it busy.
    if (client_gone_at_ == 0) client_gone_at_ = Now();
    if (Now() > client_gone_at_ + kNoticeWithinS) Kill(kClientGone);
  }
  if (killed_at_ > 0 && Now() > killed_at_ + kDieWithinS) {
    Log("session " + std::to_string(number_) + ": process " + std::to_string(pid_) +
        " does not die; it hangs in a driver and is given up");
    return Finish("hung in a driver, cannot be killed");
  }
  return SessionEnd{};
}

void Session::Kill(const std::string& cause) {
  // SIGTERM is not tried: a process that hangs in a driver or a kernel does not hear it.
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);
  if (killed_at_ > 0) return;
  killed_at_ = Now();
  kill_cause_ = cause;
}

SessionEnd Session::Finish(const std::string& cause) {
  kill(-pid_, SIGKILL);  // What the child may have started.
  pid_ = -1;
  connection_.Close();
  RemoveFolder(folder_);
  SessionEnd end;
  end.ended = true;
  end.cause = cause;
  return end;
}

}  // namespace server
}  // namespace autotune
