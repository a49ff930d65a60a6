// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "../common/cpu_list.h"

namespace autotune {
namespace observe {
namespace {

[[noreturn]] void Refuse(const std::string& message) {
  std::fprintf(stderr, "autotune_observe: %s\n%s", message.c_str(),
               "usage: autotune_observe --out FILE [--interval-ms N] [--limit-s N] [--cpus LIST]\n"
               "         [--watch FILE]... [--meter-command WORD]... [--detach] [-- COMMAND "
               "ARGUMENT...]\n       autotune_observe --clock\n");
  std::exit(2);
}

double Number(const std::string& option, const std::string& text, double low, double high) {
  size_t used = 0;
  double value = 0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != text.size() || !(value >= low && value <= high)) {
    Refuse(option + " takes a number from " + std::to_string(low) + " to " + std::to_string(high) +
           ", not '" + text + "'");
  }
  return value;
}

}  // namespace

Options ParseOptions(int argc, char** argv) {
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
      options.interval_s = Number(name, value, 1, 60000) / 1000;
    } else if (name == "--limit-s") {
      options.limit_s = Number(name, value, 0.001, 1e6);
    } else if (name == "--watch") {
      options.watch.push_back(value);
    } else if (name == "--meter-command") {
      options.meter_command.push_back(value);
    } else if (name == "--cpus") {
      options.cpus = value;
      try {
        ParseCpuList(value);
      } catch (const std::exception&) {
        Refuse("--cpus takes a list such as 4-7, not '" + value + "'");
      }
    } else {
      Refuse(name + " is not known");
    }
  }
  if (options.out.empty() && !options.clock) Refuse("--out is needed");
  return options;
}

}  // namespace observe
}  // namespace autotune
