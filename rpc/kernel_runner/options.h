// SPDX-License-Identifier: Apache-2.0
#ifndef AUTOTUNE_KERNEL_RUNNER_OPTIONS_H_
#define AUTOTUNE_KERNEL_RUNNER_OPTIONS_H_

#include <string>
#include <vector>

#include "tensor.h"

namespace autotune {
namespace kernel_runner {

struct Options {
  std::string library;
  std::string symbol;
  std::vector<TensorSpec> tensors;  ///< In the order of the kernel's parameters.
  int threads = 1;
  int repeat = 1;
  double min_repeat_ms = 0;

  static const char* Usage();
  /// Throws std::invalid_argument with what is wrong.
  static Options Parse(const std::vector<std::string>& words);
};

}  // namespace kernel_runner
}  // namespace autotune

#endif  // AUTOTUNE_KERNEL_RUNNER_OPTIONS_H_
