// SPDX-License-Identifier: Apache-2.0
//
// The command line of the device server.
#ifndef AUTOTUNE_SERVER_OPTIONS_H_
#define AUTOTUNE_SERVER_OPTIONS_H_

#include <string>

namespace autotune {
namespace server {

enum class Mode { kServe, kStatus, kStop, kVersion };

struct Options {
  Mode mode = Mode::kServe;
  bool daemon = false;
  /// Folder of this server: its log, its lock, its sessions. One server a folder.
  std::string folder;
  /// Key under which the tracker gives this device out.
  std::string key;
  std::string tracker_host;
  int tracker_port = 0;  // 0: no tracker, the key is the match key
  std::string bind = "127.0.0.1";
  int port = 0;  // 0: any
  /// Where clients reach this server: a forwarded port of the host, for a phone behind adb.
  std::string public_host;
  int public_port = 0;  // 0: the same as `port`
  /// Cores for the kernels' threads, as the kernel writes lists ("4-7"); empty: all.
  std::string cpus;
  /// Longest session in seconds where the client asks for none.
  double session_timeout_s = 600;
  /// What this server tells the tracker of the device.
  std::string serial;
  std::string emulated;
  std::string thermal_zone;
};

/// Reads the command line. On a mistake prints one line on stderr and exits with code 2.
Options ParseOptions(int argc, char** argv);

}  // namespace server
}  // namespace autotune

#endif  // AUTOTUNE_SERVER_OPTIONS_H_
