// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <stdexcept>

#include "../common/options.h"

namespace autotune {
namespace observe {
namespace {

constexpr const char* kUsage =
    "usage: autotune_observe --out FILE [--interval-ms N] [--limit-s N] [--cpus LIST]\n"
    "         [--watch FILE]... [--meter-command WORD]... [--detach] [-- COMMAND "
    "ARGUMENT...]\n       autotune_observe --clock\n";

Options Parse(int argc, char** argv) {
  Options options;
  int at = 1;
  for (; at < argc; ++at) {
    const std::string name = argv[at];
    if (name == "--") {
      options.command.assign(argv + at + 1, argv + argc);
      break;
    }
    if (name == "--detach") {
      options.detach = true;
      continue;
    }
    if (name == "--clock") {
      options.clock = true;
      continue;
    }
    if (at + 1 >= argc) Refuse(name + " is not known, or lacks its value");
    const std::string value = argv[++at];
    if (name == "--out") {
      options.out = value;
    } else if (name == "--interval-ms") {
      options.interval_s = RealOption(name, value, 1, 60000) / 1000;
    } else if (name == "--limit-s") {
      options.limit_s = RealOption(name, value, 0.001, 1e6);
    } else if (name == "--watch") {
      options.watch.push_back(value);
    } else if (name == "--meter-command") {
      options.meter_command.push_back(value);
    } else if (name == "--cpus") {
      options.cpus = CpusOption(name, value);
    } else {
      Refuse(name + " is not known");
    }
  }
  if (options.out.empty() && !options.clock) Refuse("--out is needed");
  return options;
}

}  // namespace

Options ParseOptions(int argc, char** argv) {
  try {
    return Parse(argc, argv);
  } catch (const std::invalid_argument& error) {
    ExitWithUsage("autotune_observe", error, kUsage);
  }
}

}  // namespace observe
}  // namespace autotune
