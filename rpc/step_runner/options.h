// SPDX-License-Identifier: Apache-2.0
#ifndef AUTOTUNE_STEP_RUNNER_OPTIONS_H_
#define AUTOTUNE_STEP_RUNNER_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace autotune {
namespace step_runner {

struct Options {
  std::string folder;
  std::string settings;  ///< File of settings; empty for one, of `threads` on the cores it has.
  std::string switches;  ///< File of settings between which changes are measured instead.
  int threads = 1;
  uint64_t steps = 0;  ///< 0 for as many as there is time for.
  bool trace = false;
  bool crossings = false;  ///< Measure what it costs to bring tensors to a GPU and back instead.

  static const char* Usage();
  /// Throws std::invalid_argument with what is wrong.
  static Options Parse(const std::vector<std::string>& words);
};

}  // namespace step_runner
}  // namespace autotune

#endif  // AUTOTUNE_STEP_RUNNER_OPTIONS_H_
