// SPDX-License-Identifier: Apache-2.0
#include "session_child.h"

#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "../../common/cpu_list.h"
#include "../../common/json_writer.h"
#include "../conditions.h"
#include "../log.h"
#include "session.h"
#include "../version.h"

namespace autotune {
namespace server {
namespace {

namespace ffi = tvm::ffi;

// TVM's modes of its thread pool.
constexpr int kOneCoreAThread = -2;
constexpr int kThreadsShareCores = -3;
constexpr int kMostDescriptors = 256;

std::string CpuListText(const cpu_set_t& set) {
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return autotune::CpuListText(cpus);
}

cpu_set_t Allowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  return set;
}

/// Binds this process, and TVM's pool in it, to the cores; returns the cores that the system gave.
std::string BindThreads(const std::string& list, int threads) {
  const std::vector<int> wanted = ParseCpuList(list);
  if (!wanted.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : wanted) CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0) {
      throw std::runtime_error("cores " + list + " cannot be had: " + std::strerror(errno));
    }
  }
  const cpu_set_t given = Allowed();
  ffi::Array<ffi::String> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &given)) cores.push_back(std::to_string(cpu));
  }
  const int count = threads > 0 ? threads : static_cast<int>(cores.size());
  // The pool reads it when it is made, with the first kernel that has threads.
  setenv("TVM_NUM_THREADS", std::to_string(count).c_str(), 1);
  const int mode = count == static_cast<int>(cores.size()) ? kOneCoreAThread : kThreadsShareCores;
  ffi::Function::GetGlobalRequired("runtime.config_threadpool")(mode, count, cores);
  return CpuListText(given);
}

/// A file of the session; names that lead out of its folder are refused.
std::string PathOf(const std::string& folder, const std::string& name) {
  if (name.empty() || name[0] == '/' || name.find("..") != std::string::npos) {
    throw std::runtime_error("'" + name + "' is not a file of this session");
  }
  return folder + "/" + name;
}

std::string InfoJson(const Options& options) {
  return JsonObject()
      .Text("server", kVersion)
      .Text("serial", options.serial)
      .Text("key", options.key)
      .Text("emulated", options.emulated)
      .Text("cpus", CpuListText(Allowed()))
      .Flag("opencl", ffi::Function::GetGlobal("device_api.opencl").has_value())
      .str();
}

void Register(const Options& options, const std::string& folder, SharedPage* page,
              const std::string& crashes) {
  using ffi::Function;
  const bool replace = true;
  const auto set = [&](const char* name, Function function) {
    Function::SetGlobal(name, function, replace);
  };
  set("tvm.rpc.server.workpath", Function::FromTyped([folder](ffi::String name) {
        return ffi::String(PathOf(folder, name));
      }));
  set("tvm.rpc.server.load_module", Function::FromTyped([folder](ffi::String name) {
        return ffi::Module::LoadFromFile(PathOf(folder, name));
      }));
  set("autotune.server.info",
      Function::FromTyped([&options] { return ffi::String(InfoJson(options)); }));
  const auto conditions = std::make_shared<Conditions>(options, getppid());
  set("autotune.server.conditions",
      Function::FromTyped([conditions] { return ffi::String(conditions->Json()); }));
  set("autotune.server.bind_threads", Function::FromTyped([](ffi::String list, int threads) {
        return ffi::String(BindThreads(list, threads));
      }));
  set("autotune.server.candidate", Function::FromTyped([page](ffi::String name) {
        if (!name.empty()) ++page->candidates;
        SetCandidate(page, name);
      }));
  set("autotune.server.crashes",
      Function::FromTyped([crashes] { return ffi::String(crashes); }));
}

/// The OpenCL runtime is part of the program, or lies beside it, where it was built with one. It is
/// loaded in the child only, and opens a driver when it is first used: drivers do not survive a fork.
void LoadOpenCl() {
  if (ffi::Function::GetGlobal("device_api.opencl").has_value()) return;
  char self[4096];
  const ssize_t size = readlink("/proc/self/exe", self, sizeof(self) - 1);
  if (size <= 0) return;
  self[size] = '\0';
  const std::string library =
      std::string(self, std::strrchr(self, '/') + 1) + "libautotune_opencl.so";
  if (access(library.c_str(), R_OK) != 0) return;
  if (dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    Log(std::string("OpenCL: ") + dlerror());
  }
}

void Serve(const Options& options, int connection, const std::string& folder, SharedPage* page,
           const std::string& crashes) {
  setenv("TMPDIR", folder.c_str(), 1);
  if (chdir(folder.c_str()) != 0) throw std::runtime_error("cannot enter " + folder);
  LoadOpenCl();
  Register(options, folder, page, crashes);
  if (!options.cpus.empty()) BindThreads(options.cpus, 0);
  ffi::Function::GetGlobalRequired("rpc.ServerLoop")(connection);
}

}  // namespace

void ServeInChild(const Options& options, int connection, const std::string& folder, pid_t server,
                  SharedPage* page, const std::string& crashes) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != server) _exit(1);  // The server died before it could be watched.
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGPIPE}) signal(number, SIG_DFL);
  // The server's own sockets and locks: a child that hangs must not hold them when the server is gone.
  for (int fd = STDERR_FILENO + 1; fd < kMostDescriptors; ++fd) {
    if (fd != connection) close(fd);
  }
  int code = 0;
  try {
    Serve(options, connection, folder, page, crashes);
  } catch (const std::exception& error) {
    Log(std::string("session: ") + error.what());
    code = 1;
  }
  _exit(code);  // Without destructors: drivers tend to hang in theirs.
}

void TellClient(int connection, const std::string& message) {
  try {
    ffi::Function::GetGlobalRequired("rpc.ReturnException")(connection, message);
  } catch (const std::exception&) {
    // The client has gone as well.
  }
}

}  // namespace server
}  // namespace autotune
