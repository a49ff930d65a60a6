// SPDX-License-Identifier: Apache-2.0
//
// The ways in which a tensor crosses between host and GPU.
#ifndef AUTOTUNE_STEP_RUNNER_CROSSED_H_
#define AUTOTUNE_STEP_RUNNER_CROSSED_H_

#include <array>
#include <cstddef>

namespace autotune {
namespace step_runner {

enum Way : size_t { kCopied, kMapped, kReordered, kWays };

/// Something of each way.
template <typename T>
using Crossed = std::array<T, kWays>;

}  // namespace step_runner
}  // namespace autotune

#endif  // AUTOTUNE_STEP_RUNNER_CROSSED_H_
