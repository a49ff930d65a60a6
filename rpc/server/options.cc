// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <functional>
#include <map>
#include <stdexcept>

#include "../common/options.h"

namespace autotune {
namespace server {
namespace {

constexpr const char* kUsage =
    "usage: autotune_server --dir DIR --key KEY [--tracker HOST:PORT] [--bind ADDRESS]\n"
    "         [--port PORT] [--public-host HOST] [--public-port PORT] [--cpus LIST]\n"
    "         [--session-timeout SECONDS] [--serial NAME] [--emulated TEXT]\n"
    "         [--thermal-zone FILE] [--daemon]\n"
    "       autotune_server --dir DIR --status | --stop\n"
    "       autotune_server --version\n";

void SetTracker(const std::string& text, Options* options) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) Refuse("--tracker takes HOST:PORT, not '" + text + "'");
  options->tracker_host = text.substr(0, colon);
  options->tracker_port = WholeOption("--tracker", text.substr(colon + 1), 1, 65535);
}

Options Parse(int argc, char** argv) {
  Options options;
  const std::map<std::string, std::function<void()>> flags = {
      {"--daemon", [&] { options.daemon = true; }},
      {"--status", [&] { options.mode = Mode::kStatus; }},
      {"--stop", [&] { options.mode = Mode::kStop; }},
      {"--version", [&] { options.mode = Mode::kVersion; }},
  };
  const std::map<std::string, std::function<void(const std::string&)>> valued = {
      {"--dir", [&](const std::string& text) { options.folder = text; }},
      {"--key", [&](const std::string& text) { options.key = text; }},
      {"--tracker", [&](const std::string& text) { SetTracker(text, &options); }},
      {"--bind", [&](const std::string& text) { options.bind = text; }},
      {"--port",
       [&](const std::string& text) {
         options.port = WholeOption("--port", text, 0, 65535);
       }},
      {"--public-host", [&](const std::string& text) { options.public_host = text; }},
      {"--public-port",
       [&](const std::string& text) {
         options.public_port = WholeOption("--public-port", text, 0, 65535);
       }},
      {"--cpus",
       [&](const std::string& text) { options.cpus = CpusOption("--cpus", text); }},
      {"--session-timeout",
       [&](const std::string& text) {
         options.session_timeout_s = WholeOption("--session-timeout", text, 1, 86400);
       }},
      {"--serial", [&](const std::string& text) { options.serial = text; }},
      {"--emulated", [&](const std::string& text) { options.emulated = text; }},
      {"--thermal-zone", [&](const std::string& text) { options.thermal_zone = text; }},
  };
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (const auto flag = flags.find(name); flag != flags.end()) {
      flag->second();
      continue;
    }
    const auto option = valued.find(name);
    if (option == valued.end()) Refuse("there is no option '" + name + "'");
    if (++i == argc) Refuse(name + " needs a value");
    option->second(argv[i]);
  }
  if (options.mode == Mode::kVersion) return options;
  if (options.folder.empty()) Refuse("--dir is missing");
  if (options.mode == Mode::kServe && options.key.empty()) Refuse("--key is missing");
  // The key goes into JSON and into the space-separated handshake as it is.
  for (const char c : options.key) {
    if (c <= ' ' || c == '"' || c == '\\' || c == ':' || c == 0x7f) {
      Refuse("--key may hold no white space, quotes, backslashes or colons");
    }
  }
  return options;
}

}  // namespace

Options ParseOptions(int argc, char** argv) {
  try {
    return Parse(argc, argv);
  } catch (const std::invalid_argument& error) {
    ExitWithUsage("autotune_server", error, kUsage);
  }
}

}  // namespace server
}  // namespace autotune
