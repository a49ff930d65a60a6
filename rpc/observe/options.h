// SPDX-License-Identifier: Apache-2.0
#ifndef AUTOTUNE_OBSERVE_OPTIONS_H_
#define AUTOTUNE_OBSERVE_OPTIONS_H_

#include <string>
#include <vector>

namespace autotune {
namespace observe {

struct Options {
  /// Where the record goes.
  std::string out;
  double interval_s = 0.1;
  /// Cores of the command, as the kernel writes lists; empty: as they are.
  std::string cpus;
  /// When the command is killed; without a command, how long is sampled.
  double limit_s = 600;
  /// Files that are sampled. `%p` stands for the command's process.
  std::vector<std::string> watch;
  /// A program that prints what a meter shows, word by word; it runs for as long as is observed.
  std::vector<std::string> meter_command;
  bool detach = false;
  /// Only print the time that records are in.
  bool clock = false;
  /// Empty: only sample.
  std::vector<std::string> command;
};

/// Reads the command line. On a mistake prints one line on stderr and exits with code 2.
Options ParseOptions(int argc, char** argv);

}  // namespace observe
}  // namespace autotune

#endif  // AUTOTUNE_OBSERVE_OPTIONS_H_
