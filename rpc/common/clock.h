// SPDX-License-Identifier: Apache-2.0
#ifndef AUTOTUNE_COMMON_CLOCK_H_
#define AUTOTUNE_COMMON_CLOCK_H_

#include <time.h>

namespace autotune {

/// Seconds of CLOCK_MONOTONIC, which all times that the programs tell are in.
inline double Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace autotune

#endif  // AUTOTUNE_COMMON_CLOCK_H_
