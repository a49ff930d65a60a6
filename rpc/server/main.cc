// SPDX-License-Identifier: Apache-2.0
//
// autotune_server: serves TVM's RPC on a phone or board, one client after the other.
//
// An RPC server runs whatever it is sent. It listens on the loopback address unless told otherwise;
// the host reaches it through adb or ssh.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>

#include "../common/json_writer.h"
#include "../common/programs_folder.h"
#include "session/crash_memory.h"
#include "daemon.h"
#include "session/folders.h"
#include "options.h"
#include "server.h"
#include "version.h"

namespace {

using namespace autotune::server;  // NOLINT(build/namespaces)

constexpr int kStopWithinMs = 10000;

int Status(const Options& options) {
  int port = 0;
  const pid_t pid = FolderLock(options.folder).Holder(&port);
  std::printf("%s\n", autotune::JsonObject()
                          .Text("server", kVersion)
                          .Flag("running", pid > 0)
                          .Number("pid", static_cast<uint64_t>(pid))
                          .Number("port", static_cast<uint64_t>(port))
                          .Raw("crashes", CrashMemory(options.folder + "/crashes.jsonl").Json())
                          .str()
                          .c_str());
  return 0;
}

int Stop(const Options& options) {
  const FolderLock lock(options.folder);
  int port = 0;
  const pid_t pid = lock.Holder(&port);
  if (pid <= 0) return 0;
  kill(pid, SIGTERM);
  for (int waited = 0; lock.Holder(&port) == pid; waited += 50) {
    if (waited == kStopWithinMs / 2) kill(pid, SIGKILL);
    if (waited > kStopWithinMs) {
      std::fprintf(stderr, "autotune_server: process %d does not end\n", static_cast<int>(pid));
      return 1;
    }
    usleep(50000);
  }
  return 0;
}

int Serve(const Options& options) {
  // Most of what a tuner sends runs once: its programs are not worth the device's storage.
  setenv(autotune::kProgramsVariable, "", 0);
  Daemon daemon;
  if (options.daemon) daemon.Begin(options.folder + "/server.log");
  try {
    FolderLock lock(options.folder);
    if (!lock.Take()) throw std::runtime_error("a server runs in " + options.folder);
    Server server(options);
    if (!lock.Publish(server.port())) throw std::runtime_error("the disk is full");
    const std::string word = "ok " + std::to_string(server.port());
    if (options.daemon) {
      daemon.Ready(word);
    } else {
      std::printf("%s\n", word.c_str());
      std::fflush(stdout);
    }
    server.Run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "autotune_server: %s\n", error.what());
    daemon.Ready(std::string("autotune_server: ") + error.what());
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  if (options.mode == Mode::kVersion) {
    std::printf("autotune_server %s\n", kVersion);
    return 0;
  }
  try {
    MakeFolders(options.folder);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "autotune_server: %s\n", error.what());
    return 1;
  }
  if (options.mode == Mode::kStatus) return Status(options);
  if (options.mode == Mode::kStop) return Stop(options);
  return Serve(options);
}
