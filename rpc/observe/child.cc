// SPDX-License-Identifier: Apache-2.0
#include "child.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "../common/cpu_list.h"

namespace autotune {
namespace observe {
namespace {

constexpr size_t kLongestLine = 65536, kMostAtOnce = 65536;
constexpr int kNotFound = 127, kNotStarted = 126;

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

void Pipe(int ends[2]) {
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error(std::strerror(errno));
}

[[noreturn]] void Become(const std::vector<std::string>& command, const std::string& cpus) {
  setpgid(0, 0);
  const std::vector<int> wanted = ParseCpuList(cpus);
  if (!wanted.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : wanted) CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0) {
      std::fprintf(stderr, "cores %s cannot be had: %s\n", cpus.c_str(), std::strerror(errno));
      _exit(kNotStarted);
    }
  }
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  if (command[0].find('/') == std::string::npos) {
    execvp(words[0], words.data());
  } else {
    execv(words[0], words.data());
  }
  if (errno == ENOEXEC) {
    // What the kernel cannot start, the system's shell may: a script, or a program of an emulator.
    std::vector<char*> shell = {const_cast<char*>("sh"), const_cast<char*>("-c"),
                                const_cast<char*>("exec \"$0\" \"$@\"")};
    shell.insert(shell.end(), words.begin(), words.end());
    execvp(shell[0], shell.data());
  }
  std::fprintf(stderr, "%s: %s\n", words[0], std::strerror(errno));
  _exit(errno == ENOENT ? kNotFound : kNotStarted);
}

void AddAllowed(pid_t pid, cpu_set_t* all, int depth) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/task";
  DIR* tasks = opendir(folder.c_str());
  if (tasks == nullptr) return;
  while (const dirent* entry = readdir(tasks)) {
    const pid_t thread = static_cast<pid_t>(std::atoi(entry->d_name));
    if (thread <= 0) continue;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(thread, sizeof(set), &set) == 0) CPU_OR(all, all, &set);
    // A shell that runs the command has it as a child. Kernels without this file show the first
    // process only.
    std::ifstream children(folder + "/" + entry->d_name + "/children");
    pid_t child = 0;
    while (depth > 0 && children >> child) AddAllowed(child, all, depth - 1);
  }
  closedir(tasks);
}

}  // namespace

std::vector<std::string> Lines::Read() {
  std::vector<std::string> lines;
  char buffer[4096];
  ssize_t got = 1;
  for (size_t all = 0; all < kMostAtOnce; all += static_cast<size_t>(got)) {
    got = read(pipe_, buffer, sizeof(buffer));
    if (got <= 0) break;
    for (ssize_t i = 0; i < got; ++i) {
      if (buffer[i] == '\n') {
        lines.push_back(rest_);
        rest_.clear();
      } else if (rest_.size() < kLongestLine) {
        rest_ += buffer[i];
      }
    }
  }
  if (got == 0) {
    if (!rest_.empty()) lines.push_back(rest_);
    close(pipe_);
    pipe_ = -1;
  }
  return lines;
}

Child Start(const std::vector<std::string>& command, const std::string& cpus) {
  int out[2], err[2];
  Pipe(out);
  Pipe(err);
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error(std::strerror(errno));
  if (pid == 0) {
    const int none = open("/dev/null", O_RDONLY);
    dup2(none, 0);
    dup2(out[1], 1);
    dup2(err[1], 2);
    Become(command, cpus);
  }
  setpgid(pid, pid);
  for (int* ends : {out, err}) {
    close(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
  return Child{pid, Lines(out[0]), Lines(err[0])};
}

bool Over(const Child& child, Ended* ended) {
  int status = 0;
  rusage used;
  if (wait4(child.pid, &status, WNOHANG, &used) != child.pid) return false;
  ended->exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  ended->max_rss_kb = used.ru_maxrss;
  ended->user_s = Seconds(used.ru_utime);
  ended->system_s = Seconds(used.ru_stime);
  return true;
}

void Kill(const Child& child, int signal) { kill(-child.pid, signal); }

std::string AllowedCpus(pid_t pid) {
  cpu_set_t all;
  CPU_ZERO(&all);
  AddAllowed(pid, &all, 4);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &all)) cpus.push_back(cpu);
  }
  return CpuListText(cpus);
}

}  // namespace observe
}  // namespace autotune
